"""What the cut-off is worth on card fraud, in euros: F1's, one half, scikit-learn's grid, the exact one for money.

The gains are those of scikit-learn's example of cost-sensitive learning: a refused fraud brings 50, a refused purchase
costs 5, an accepted fraud costs its amount, an accepted purchase brings 2 % of its amount. Each split: half of the rows
fits the model, a quarter chooses the cut-off, a quarter tests. Writes money.csv and money.md beside itself.

    METRICFIT_DATA=../shared/data python -m benchmarks.decisions.money --splits 20
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn import config_context
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import make_scorer
from sklearn.model_selection import TunedThresholdClassifierCV, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from benchmarks.data import load
from metricfit.decisions import best_threshold, calibrate

HERE = Path(__file__).parent
MODELS = {
    "logistic": lambda: make_pipeline(StandardScaler(), LogisticRegression(max_iter=500)),
    "boosting": lambda: HistGradientBoostingClassifier(max_iter=100, learning_rate=0.05, random_state=0),
}
BASE = "accept everything"


def gains(amount: np.ndarray) -> tuple[float, float, np.ndarray, np.ndarray]:
    return 50.0, -5.0, -amount, 0.02 * amount


def total(y: np.ndarray, refused: np.ndarray, amount: np.ndarray) -> float:
    tp, fp, fn, tn = gains(amount)
    return float(np.where(y == 1, np.where(refused, tp, fn), np.where(refused, fp, tn)).sum())


def expected_gain(p: np.ndarray, amount: np.ndarray) -> np.ndarray:
    """What refusing a purchase is expected to bring more than accepting it."""
    tp, fp, fn, tn = gains(amount)
    return p * (tp - fn) + (1 - p) * (fp - tn)


def earned(y: np.ndarray, decided: np.ndarray, amount: np.ndarray) -> float:
    """For scikit-learn, which tries it at 100 thresholds."""
    return total(np.asarray(y), np.asarray(decided) == 1, np.asarray(amount))


def run(split: int) -> list[dict[str, object]]:
    data = load("creditcard")
    keep = data.X["Amount"] > 0
    X, y = data.X[keep].drop(columns="Time", errors="ignore"), data.y[keep].to_numpy().astype(int)
    fit, rest, y_fit, y_rest = train_test_split(X, y, test_size=0.5, stratify=y, random_state=split)
    choose, test, y_choose, y_test = train_test_split(rest, y_rest, test_size=0.5, stratify=y_rest, random_state=split)
    amount, amount_test = choose["Amount"].to_numpy(), test["Amount"].to_numpy()
    found: list[dict[str, object]] = []
    for name, make in MODELS.items():
        model = make().fit(fit, y_fit)
        p, p_test = model.predict_proba(choose)[:, 1], model.predict_proba(test)[:, 1]
        calibration = calibrate(y_choose, p)
        with config_context(enable_metadata_routing=True):
            scorer = make_scorer(earned).set_score_request(amount=True)
            grid = TunedThresholdClassifierCV(model, scoring=scorer, cv="prefit", refit=False)
            grid.fit(choose, y_choose, amount=amount)
        refused = {
            BASE: p_test > 2,
            "0.5": p_test >= 0.5,
            "F1's cut-off": p_test >= best_threshold(y_choose, p, "f1").threshold,
            "scikit-learn's grid": grid.predict(test) == 1,
            "best cut-off for money": p_test >= best_threshold(y_choose, p, gain=gains(amount)).threshold,
            "expected gain > 0": expected_gain(p_test, amount_test) > 0,
            "calibrated, expected gain > 0": expected_gain(calibration.apply(p_test), amount_test) > 0,
        }
        for way, called in refused.items():
            value = total(y_test, called, amount_test)
            found.append(
                {"split": split, "model": name, "rule": way, "euros": round(value, 2), "refused": int(called.sum())}
            )
    return found


def page(frame: pd.DataFrame) -> str:
    lines = [
        f"# What the cut-off is worth: card fraud, {frame['split'].nunique()} splits",
        "",
        "Euros earned more than by accepting everything, on a quarter of the rows (71,000 purchases, 116 frauds):",
        "mean over splits ± its standard error, and how many purchases are refused. Made by `money.py`.",
        "",
        "| rule | " + " | ".join(f"{m}: € | refused" for m in MODELS) + " |",
        "|---|" + "---:|---:|" * len(MODELS),
    ]
    for rule in [r for r in frame["rule"].unique() if r != BASE]:
        cells = []
        for model in MODELS:
            wide = frame[frame["model"] == model].pivot_table(index="split", columns="rule", values="euros")
            more = wide[rule] - wide[BASE]
            cells.append(f"{more.mean():,.0f} ± {more.std(ddof=1) / np.sqrt(len(more)):,.0f}")
            cells.append(f"{frame[(frame['model'] == model) & (frame['rule'] == rule)]['refused'].mean():.0f}")
        lines.append(f"| {rule} | " + " | ".join(cells) + " |")
    lines += ["", "Paired differences, best cut-off for money less:", ""]
    for model in MODELS:
        wide = frame[frame["model"] == model].pivot_table(index="split", columns="rule", values="euros")
        for rule in [r for r in frame["rule"].unique() if r not in (BASE, "best cut-off for money")]:
            gap = wide["best cut-off for money"] - wide[rule]
            lines.append(
                f"* {model}, {rule}: {gap.mean():+,.0f} ± {gap.std(ddof=1) / np.sqrt(len(gap)):,.0f}, "
                f"better in {int((gap > 0).sum())} of {len(gap)}"
            )
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--splits", type=int, default=20)
    frame = pd.DataFrame([row for split in range(parser.parse_args().splits) for row in run(split)])
    frame.to_csv(HERE / "money.csv", index=False)
    (HERE / "money.md").write_text(page(frame))


if __name__ == "__main__":
    main()
