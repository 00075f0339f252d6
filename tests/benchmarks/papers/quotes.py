"""Where each number of docs/papers.md comes from: by the first words of a paragraph, one item per number, in order.

An item is ``data set, loss, rule, metric`` (the mean over trials, ± their standard deviation where the page has one),
two of them with `` - `` between (the paired difference ± its standard error), ``low`` or ``high`` of several with ``|``
between, ``p …`` for a number in print (``p:btg …``: of another paper), ``check`` for what a script of
``benchmarks/papers/checks`` measured without writing rows, and ``set`` for a setting or a limit. ``*3`` repeats an
item; ``gain 5000 F1`` is what a limit on adult's capital gain reaches, ``order …, rf accuracy`` a model of
``checks/cocktail_order.csv`` on changed data, ``scaled 0 to 1, roc f1`` what SVM-perf or CCS have on adult in
``checks/adult_scaling.csv``, for each C or for one. A loss has the linear step where it has one, ``f1~`` the sigmoid.
``ad1`` is adult with one-hot codes, ``@128`` a batch size, ``@*`` all of them.
"""

from __future__ import annotations

from itertools import product

_ADULT = [f"{net}.{code}" for net, code in product(("slp", "mlp"), ("ad", "ad1"))]
_BAL_GM = (("anyloss_balanced_accuracy", "bal"), ("anyloss_gmean", "gm"))


def _range(items: list[str]) -> str:
    return f"low {' | '.join(items)}; high {' | '.join(items)}"


def _row(loss: str, rule: str = "mt") -> str:
    return f"p ad {loss} f1; p ad {loss} acc; ad {loss} {rule} f1; ad {loss} {rule} acc; check*4"


_ORDERS = ("as in the tables", "random order", "a quarter of the rows", "half of the features", "by moment",
           "random order, by moment", "ten moments")  # fmt: skip


def _changed(kind: str) -> str:
    of = f"order {kind}"
    return f"{of}, rf macro_f1; {of}, rf accuracy; check*2; {of}, lr macro_f1"


QUOTES: dict[tuple[str, str], str] = {
    ("", "Differences are paired"): "set*2",
    ("Bridging the gap", "A network trained"): "set*2",
    ("Bridging the gap", "**Claimed**"): "set*3",
    ("Bridging the gap", "**It is the method.**"): """
        set; cp f1 mt f1; p cp f1 f1; ma f1 mt f1; p ma f1 f1; ma f3 mt rec; p ma f3 rec""",
    ("Bridging the gap", "**The gain over cross-entropy"): """
        cp f1 mt f1; cp bce mt f1; ma f1 mt f1; ma bce mt f1; cp f1 mt f1; ma f1 mt f1; cp f1 dec f1; ma f1 dec f1;
        cp f1 dec f1; cp bce dec f1; ma f1 dec f1; ma bce dec f1; cp bce tun f1; cp f1 tun f1; ma bce tun f1;
        ma f1 tun f1""",
    ("Bridging the gap", "**Adult, and why"): """
        ad f1 mt f1; p ad f1 f1; ad acc mt f1; p ad acc f1; ad bce mt f1; p ad bce f1;
        ad f2 mt pre; ad f2 mt rec; p ad f2 pre; p ad f2 rec""",
    ("Bridging the gap", "| loss (F1, accuracy)"): "; ".join(
        [_row("f1"), _row("acc"), _row("bce", "raw"), _row("auroc"), _row("f1+weighted"), _row("acc+weighted")]
    ),
    ("Bridging the gap", "The codes as they are"): """
        p ad f1+weighted f1; p ad f1+weighted acc; ad f1+oversampled mt f1; ad f1+oversampled mt acc;
        ad f1 mt f1; check; ad bce mt f1; check; ad bce tun f1""",
    ("Bridging the gap", "One-hot codes instead"): f"""
        {_range([f"ad1 {loss} mt f1 - ad {loss} mt f1" for loss in ("f1", "acc", "bce")])};
        ad1 f1 mt f1; ad1 acc mt f1; ad1 bce mt f1; ad1 bce tun f1; ad1 f1 tun f1""",
    ("Bridging the gap", "**Batch sizes**"): """
        set; p s5 bce f1 @128; p s5 bce f1 @4096; low s5 f1 mt f1 @*; high s5 f1 mt f1 @*; s5 bce raw f1 @128;
        s5 bce raw f1 @4096; low s5 bce tun f1 @*; high s5 bce tun f1 @*; low p s5 f1~ f1 @*; high p s5 f1~ f1 @*;
        s5 f1~ mt f1 @1024; set; s33 f1 mt f1 @1024; low p s33 f1 f1 @*; high p s33 f1 f1 @*; p s33 bce f1 @1024;
        s33 bce raw f1 @1024; s33 bce dec f1 @1024""",
    ("Bridging the gap", "**Its search over the steps**"): "set*3",
    ("Bridging the gap", "**Its lookup table**"): "set",
    ("Bridging the gap", "**Images**"): """
        tr f1 mt f1; fr f1 mt f1; tr acc mt f1; fr acc mt f1; tr bce mt f1; fr bce mt f1; p tr f1 f1; p fr f1 f1;
        p tr acc f1; p fr acc f1; p tr bce f1; p fr bce f1; tr bce dec f1; fr bce dec f1; tr bce tun f1;
        fr bce tun f1; set""",
    ("Bridging the gap", "**Credit card fraud**"): """
        cc f1 mt f1; p cc f1 f1; cc f1~ mt f1; p cc f1~ f1; cc acc mt f1; p cc acc f1; cc bce mt f1; p cc bce f1;
        cc bce tun f1; cc f1 tun f1; cc f1 mt f1; set""",
    ("Bridging the gap", "* *AUROC as a loss*"): """
        cp auroc mt f1; p cp auroc f1; ad auroc mt f1; p ad auroc f1; ma auroc mt f1; p ma auroc f1; set;
        p cc auroc acc;
        p cc auroc auc; p ad auroc f1; check*6; p cp auroc acc; p ad auroc acc; p ma auroc acc""",
    ("Bridging the gap", "* *The adversarial F1*"): """
        cp adversarial_f1 raw f1; p cp adversarial_f1 f1; ad adversarial_f1 raw f1; p ad adversarial_f1 f1;
        ma adversarial_f1 raw f1; p ma adversarial_f1 f1; set; cp adversarial_f1 mt acc; ad adversarial_f1 mt acc;
        ma adversarial_f1 mt acc; p cp adversarial_f1 acc; p ad adversarial_f1 acc; p ma adversarial_f1 acc;
        cp adversarial_f1 mt f1; cp adversarial_f1 dec f1; ad adversarial_f1 dec f1; cc adversarial_f1 dec f1;
        ma adversarial_f1 dec f1; ma adversarial_f1 tun f1""",
    ("Bridging the gap", "* *WMW and Dice*"): """
        cp wmw_auroc mt f1; cp dice mt f1; p cp wmw_auroc f1; p cp dice f1; cp dice_released sco auc""",
    ("Bridging the gap", '* *The "AUROC"'): """
        cp f1 mt bal; p cp f1 auc; ma f1 mt bal; p ma f1 auc; cp f1 sco auc; ma f1 sco auc; cp bce sco auc;
        ma bce sco auc""",
    ("Bridging the gap", "* *Cross-entropy*"): """
        cp bce mt acc; p cp bce acc; cp bce+weighted mt f1; p cp bce+weighted f1; cp bce+oversampled mt f1;
        p cp bce+oversampled f1; cp bce raw acc; cp bce+weighted raw f1; cp bce+oversampled raw f1; set""",
    ("Bridging the gap", "* *Oversampling on mammography*"): """
        ma f1+oversampled mt f1; ma f1+oversampled~ mt f1; p ma f1+oversampled f1; p ma f1+oversampled~ f1""",
    ("Bridging the gap", "* *SVM-perf*"): """
        set; ma svmperf_error dec f1; p ma svmperf_error f1; ma svmperf_f1 dec f1; p ma svmperf_f1 f1;
        p ad svmperf_f1 acc; p ad svmperf_roc acc; ad svmperf_f1 dec acc; ad svmperf_roc dec acc;
        low scaled 0 to 1, roc accuracy; high scaled 0 to 1, roc accuracy; low scaled 0 to 1, roc f1;
        high scaled 0 to 1, roc f1; p ad svmperf_roc acc; p ad svmperf_roc f1; scaled 0 to 1, f1 accuracy @0.01;
        scaled 0 to 1, f1 f1 @0.01; p ad svmperf_f1 acc; p ad svmperf_f1 f1; scaled standardised, error accuracy @0.01;
        scaled standardised, error f1 @0.01;
        p ad svmperf_error acc; p ad svmperf_error f1; ad1 svmperf_error dec acc; ad1 svmperf_f1 dec acc;
        ad1 svmperf_roc dec acc; cc svmperf_roc dec acc; p cc svmperf_roc acc""",
    ("Bridging the gap", "* *The sigmoid step"): "p ma f1~ f1; ma f1~ mt f1",
    ("Multi-class Fβ", "**Claimed**"): """
        cp f1 dec f1; cp ce dec f1; p cp f1 f1; p cp ce f1; cp f1 dec f1 - cp ce dec f1; cp ce tun f1; ma f1 dec f1;
        ma ce dec f1; p ma f1 f1; p ma ce f1; ma f1 dec f1 - ma ce dec f1; ad f1 dec f1; ad ce dec f1;
        ad f1 dec f1 - ad ce dec f1; ad f1 dec acc; ad ce dec acc; ad ce tun f1; ad f1 dec f1 - ad ce tun f1;
        p ad f1 f1;
        p ad ce f1; cc f1 dec f1; p cc f1 f1; cc ce dec f1; p cc ce f1; p:east cc ce f1; ad1 f1 dec f1; ad1 ce dec f1;
        ad1 ce tun f1""",
    ("Multi-class Fβ", "A β for Dog"): """
        ci fbeta_precision dec rec[Dog]; set; ci fbeta_recall dec rec[Dog]; ci fbeta_precision dec pre[Dog];
        ci fbeta_recall dec pre[Dog]; p ci fbeta_precision rec[Dog]; p ci fbeta_recall rec[Dog];
        p ci fbeta_precision pre[Dog]; p ci fbeta_recall pre[Dog]""",
    ("EAST", "The same with annealing"): "set",
    ("EAST", "**Cocktail party**"): """
        cp f1 dec f1; cp mcc dec f1; cp acc dec f1; cp ce dec f1; p cp f1 f1; p cp mcc f1; p cp acc f1; p cp ce f1;
        cp mcc dec mcc; cp ce dec mcc; cp ce tun f1; p cp dice f1; cp dice dec f1; check*2; p cp dice f1; p cp dice acc;
        check*2; p ma dice f1; p ma dice acc""",
    ("EAST", "**All of it is better"): "set*2; cp rf dec mf1; p cp rf mf1; cp ccs dec mf1; p cp ccs mf1",
    ("EAST", "| | random forest"): "; ".join(
        ["p cp rf mf1; p cp rf acc; p cp ce f1; p cp ce acc; p cp ccs mf1", *map(_changed, _ORDERS)]
    ),
    ("EAST", "**Mammography**"): """
        ma f1 dec f1; ma mcc dec f1; ma ce dec f1; ma dice dec f1; p ma f1 f1; p ma mcc f1; p ma ce f1; p ma dice f1;
        ma f1 dec f1 - ma ce dec f1; ma mcc dec mcc - ma ce dec mcc; set*2; ma rf dec mf1; p ma rf mf1; set;
        p:multiclass-fbeta ma ce f1; p ma ce f1""",
    ("EAST", "**Credit card fraud**"): """
        set*2; cc f1 dec f1; p cc f1 f1; cc mcc dec mcc; p cc mcc mcc; cc ce dec f1; p cc ce f1; cc rf dec mf1;
        p cc rf mf1; cc ce tun f1""",
    ("EAST", "**Accuracy as a loss**"): "p ma acc f1; p cc acc f1; set*4",
    ("EAST", "**Adult**"): """
        ad f1 dec f1; ad ce dec f1; ad f1 dec f1 - ad ce dec f1; ad mcc dec mcc - ad ce dec mcc;
        ad acc dec acc - ad ce dec acc; ad ce tun f1; ad ce tun mcc; ad f1 dec f1 - ad ce tun f1;
        ad mcc dec mcc - ad ce tun mcc; ad1 f1 dec f1; ad1 ce dec f1; ad1 ce tun f1""",
    ("EAST", "Print is far lower"): """
        p ad f1 f1; p ad mcc f1; p ad acc f1; p ad ce f1; gain 13000 F1; gain 13000 accuracy; gain 13000 MCC;
        gain 15000 F1; gain 15000 accuracy; gain 15000 MCC; p ad ce f1; p ad ce acc; p ad ce mcc; gain 5000 F1;
        gain 5000 accuracy; gain 5000 MCC;
        p ad f1 f1;
        p ad f1 acc; p ad f1 mcc; check*8""",
    ("EAST", "**The other lines of Table 3**"): """
        ad rf dec mf1; p ad rf mf1; ad1 rf dec mf1; ma rf dec mf1; p ma rf mf1; ad ccs dec mf1; ad1 ccs dec mf1;
        p ad ccs mf1; p ad ccs acc; cc ccs dec mf1; p cc ccs mf1;
        low scaled standardised, CCS accuracy | scaled as they are, CCS accuracy | scaled 0 to 1, CCS accuracy;
        high scaled standardised, CCS accuracy | scaled as they are, CCS accuracy | scaled 0 to 1, CCS accuracy;
        set""",
    ("EAST", "**Images**"): f"""
        ci rf dec acc; p ci f1 acc; ci f1 dec acc; ci acc dec acc; ci mcc dec acc; ci dice dec acc; ci ce dec acc;
        p ci ce acc;
        ci fbeta_0.1 dec rec[Dog]; set; ci fbeta_1.0 dec rec[Dog]; ci fbeta_10.0 dec rec[Dog];
        ci fbeta_0.1 dec pre[Dog];
        ci fbeta_1.0 dec pre[Dog]; ci fbeta_10.0 dec pre[Dog]; p ci fbeta_0.1 rec[Dog]; p ci fbeta_10.0 rec[Dog];
        p ci fbeta_0.1 pre[Dog]; p ci fbeta_10.0 pre[Dog];
        {_range([f"ci fbeta_{beta} dec mf1" for beta in ("0.1", "0.25", "0.5", "1.0", "2.5", "5.0", "10.0")])};
        ci ce tuned_for_fbeta_recall_Dog rec[Dog]; ci ce tuned_for_fbeta_recall_Dog pre[Dog];
        ci fbeta_recall dec rec[Dog]; ci fbeta_recall dec pre[Dog]""",
    ("AnyLoss", "**At the authors' protocol**"): "set",
    ("AnyLoss", "**Learning speed**"): "set",
    ("AnyLoss", "At one half that holds"): """
        mlp.ma anyloss_balanced_accuracy dec bal; mlp.ma anyloss_gmean dec gm; mlp.ma bce dec bal; mlp.ma bce dec gm;
        mlp.ma anyloss_f1 dec f1; mlp.ma bce dec f1; slp.ma anyloss_f1 dec f1; slp.ma bce dec f1; set""",
    ("AnyLoss", "**With a tuned threshold**"): "mlp.ma bce tun bal; mlp.ma bce tun gm; set*3",
    ("AnyLoss", "**Adult**"): f"""
        {_range([f"{at} anyloss_f1 dec f1 - {at} bce dec f1" for at in _ADULT])};
        {_range([f"{at} {loss} dec {of} - {at} bce dec {of}" for at in _ADULT for loss, of in _BAL_GM])};
        {_range([f"{at} bce tun {of} - {at} {loss} dec {of}" for at in _ADULT[1:]
                 for loss, of in (("anyloss_f1", "f1"), *_BAL_GM)])};
        {_range([f"{at} bce tun acc - {at} anyloss_accuracy dec acc" for at in _ADULT[1:]])};
        slp.ad anyloss_accuracy dec acc; slp.ad bce tun acc; slp.ad anyloss_f1 dec f1; slp.ad bce tun f1;
        slp.ad anyloss_balanced_accuracy dec bal; slp.ad bce tun bal; slp.ad anyloss_gmean dec gm; slp.ad bce tun gm""",
    ("AnyLoss", "**Credit card fraud**"): f"""
        slp.cc anyloss_f1 dec f1; slp.cc bce dec f1; mlp.cc anyloss_f1 dec f1; mlp.cc bce dec f1;
        {_range([f"{net}.cc {loss} dec {of} - {net}.cc bce dec {of}" for net in ("slp", "mlp")
                 for loss, of in _BAL_GM])};
        slp.cc anyloss_f1 dec f1; slp.cc bce tun f1; set; mlp.cc mse dec f1""",
    ("How it was run", "Ours are means"): "set",
}  # fmt: skip
