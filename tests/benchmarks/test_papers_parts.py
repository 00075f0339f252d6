"""What the papers' experiments are made of: data, networks, losses."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.metrics import f1_score, fbeta_score, roc_auc_score
from sklearn.preprocessing import StandardScaler
from torch.nn import functional as F

from benchmarks.data import Dataset
from benchmarks.papers import data, images, losses, networks

BOTH = (True, False)


@pytest.fixture
def adult(monkeypatch: pytest.MonkeyPatch) -> pd.DataFrame:
    """A table like adult, so that no download is needed."""
    random = np.random.default_rng(0)
    X = pd.DataFrame(
        {
            "age": random.integers(17, 90, 60),
            "workclass": random.choice(["Private", "State-gov", None], 60),
            "fnlwgt": random.integers(1, 9, 60),
        }
    )
    y = pd.Series(random.integers(0, 2, 60))
    monkeypatch.setattr(data, "load_benchmark", lambda name: Dataset(name, X, y, "", 40))
    return X


@pytest.fixture
def packed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """30 colour images and 30 grey ones in the place of the real ones; the list has the names that were unpacked."""
    unpacked = []

    def load(name: str) -> Dataset:
        unpacked.append(name)
        random = np.random.default_rng(0)
        shape = (30, 32, 32, 3) if name == "cifar10" else (30, 28, 28)
        return Dataset(name, random.integers(0, 256, shape, dtype=np.uint8), np.arange(30) % 10, "", 20)

    monkeypatch.setattr(images, "load_benchmark", load)
    monkeypatch.setattr(images.tempfile, "gettempdir", lambda: str(tmp_path))
    return unpacked


def test_adult_loses_the_weights_of_its_rows_and_gets_codes_or_indicators(adult: pd.DataFrame) -> None:
    codes = data.load("adult")
    assert codes.X.shape == (60, 2)
    order = sorted(["?", "Private", "State-gov"])
    assert codes.X[:, 1].tolist() == [order.index("?" if pd.isna(w) else w) for w in adult["workclass"]]
    indicators = data.load("adult", encoding="onehot").X
    assert indicators.shape == (60, 4)
    assert (indicators[:, 1:].argmax(axis=1) == codes.X[:, 1]).all()
    assert codes.fixed_test is not None
    assert codes.fixed_test.sum() == 20


def test_creditcard_has_29_features_with_or_without_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    columns = [*(f"V{i}" for i in range(1, 29)), "Amount"]
    X = pd.DataFrame(np.arange(58.0).reshape(2, 29), columns=columns)
    for table in (X, X.assign(Time=[0, 1])[["Time", *columns]]):
        monkeypatch.setattr(data, "load_benchmark", lambda name, table=table: Dataset(name, table, [0, 1], ""))
        found = data.load("creditcard").X
        assert found.shape == (2, 29)
        assert found[:, 28] == pytest.approx(np.log1p(X["Amount"]), rel=1e-6)


@pytest.mark.parametrize(("name", "share"), [("synthetic_5", 0.0476), ("synthetic_33", 0.3333)])
def test_synthetic_sets_are_two_round_blobs_two_deviations_apart(name: str, share: float) -> None:
    problem = data.load(name)
    assert problem.y.mean() == pytest.approx(share, abs=1e-4)
    centres = [problem.X[problem.y == k].mean(axis=0) for k in (0, 1)]
    assert np.linalg.norm(centres[1] - centres[0]) == pytest.approx(2, abs=0.2)
    assert np.cov(problem.X[problem.y == 0].T) == pytest.approx(np.eye(2), abs=0.05)
    assert not np.array_equal(data.load(name, seed=1).X, problem.X)


def test_a_split_has_the_fractions_covers_all_rows_and_is_scaled_by_the_training_part() -> None:
    problem = data.load("synthetic_5")
    problem.X[:, 1] = np.arange(len(problem.y))  # so that rows can be recognised
    parts = data.split(problem, seed=3)
    pieces = (parts.train, parts.validation, parts.test)
    assert [len(y) for _, y in pieces] == [6720, 1680, 2100]
    plain = data.split(problem, seed=3, scale=False)
    rows = [X[:, 1].long() for X, _ in (plain.train, plain.validation, plain.test)]
    assert torch.cat(rows).sort().values.equal(torch.arange(10_500))
    assert all(y.equal(torch.from_numpy(problem.y)[r]) for (_, y), r in zip(pieces, rows, strict=True))
    scaler = StandardScaler().fit(problem.X[rows[0]])
    for (X, _), r in zip(pieces, rows, strict=True):
        assert X.numpy() == pytest.approx(scaler.transform(problem.X[r]), abs=1e-4)
    assert parts.prior[1] == pytest.approx(float(parts.train[1].float().mean()))


def test_a_stratified_split_shares_out_every_class() -> None:
    parts = data.split(data.load("synthetic_5", rows=300), seed=0, stratified=True)
    assert [int(y.sum()) for _, y in (parts.train, parts.validation, parts.test)] == [13, 3, 4]


def test_two_fractions_leave_the_official_test_part_alone(packed: list[str]) -> None:
    problem = data.load("cifar10")
    parts = data.split(problem, (0.8, 0.2), seed=0, scale=False)
    assert [len(y) for _, y in (parts.train, parts.validation, parts.test)] == [16, 4, 10]
    assert parts.test[0].numpy() == pytest.approx(problem.X[20:] / 255, abs=1e-6)
    with pytest.raises(ValueError, match="no official test part"):
        data.split(data.load("synthetic_5"), (0.8, 0.2), seed=0)


def test_images_are_scaled_as_each_paper_says(packed: list[str]) -> None:
    problem = data.load("cifar10")
    channels = data.split(problem, seed=0).train[0]
    assert channels.mean(dim=(0, 2, 3)) == pytest.approx([0, 0, 0], abs=1e-5)
    assert channels.std(dim=(0, 2, 3), correction=0) == pytest.approx([1, 1, 1], abs=1e-5)
    pixels = data.split(problem, seed=0, scale="pixel_mean").train[0]
    assert pixels.mean(dim=0).abs().max() < 1e-6
    plain = data.split(problem, seed=0, scale=False).train[0]
    assert torch.allclose(data.split(problem, seed=0, scale="half").train[0], 2 * plain - 1)
    with pytest.raises(ValueError, match="for images"):
        data.split(data.load("synthetic_5"), seed=0, scale="half")


def test_images_are_unpacked_once_framed_and_split_into_the_papers_classes(packed: list[str]) -> None:
    grey = data.load("fashion_mnist_class0")
    assert grey.X.shape == (30, 1, 32, 32)
    assert (grey.X[:, :, :2] == 0).all()
    assert grey.X[:, :, 2:-2, 2:-2].any()
    assert grey.y.tolist() == [int(k % 10 == 0) for k in range(30)]
    assert data.load("cifar10_transportation").y[:10].tolist() == [1, 1, 0, 0, 0, 0, 0, 0, 1, 1]
    assert data.load("cifar10_frog").classes == ["rest", "frog"]
    assert packed == ["fashion_mnist", "cifar10"]


def test_a_sample_keeps_the_rare_class_and_the_official_split(
    packed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data, "FEWEST_OF_A_CLASS", 1)
    small = data.load("cifar10", rows=15)
    assert small.fixed_test is not None
    assert np.bincount(small.y[small.fixed_test], minlength=10).min() == 1
    assert np.bincount(small.y[~small.fixed_test], minlength=10).min() == 1


def test_images_are_averaged_down(packed: list[str]) -> None:
    whole, small = (data.load("cifar10", side=side).X for side in (None, 16))
    assert small.shape == (*whole.shape[:2], 16, 16)
    assert small[3, 1, 5, 7] == round(whole[3, 1, 10:12, 14:16].astype(float).mean())
    with pytest.raises(ValueError, match="side: expected a divisor of 32"):
        data.load("cifar10", side=10)


def test_caltech256_says_what_to_supply_and_reads_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from PIL import Image

    monkeypatch.setenv("METRICFIT_DATA", str(tmp_path))
    with pytest.raises(FileNotFoundError, match=r"001\.ak47"):
        data.load("caltech256")
    for folder in ("001.ak47", "002.american-flag"):
        (tmp_path / "caltech256" / folder).mkdir(parents=True)
        Image.new("L", (9, 5), 200).save(tmp_path / "caltech256" / folder / "a.jpg")
    problem = data.load("caltech256")
    assert (problem.X.shape, problem.y.tolist()) == ((2, 3, 128, 128), [0, 1])
    assert problem.classes == ["ak47", "american-flag"]


def test_oversampling_repeats_only_rows_of_the_smaller_class() -> None:
    X, y = data.oversampled((torch.arange(50.0)[:, None], (torch.arange(50) < 5).long()), seed=0)
    assert torch.bincount(y).tolist() == [45, 45]
    assert sorted(X[y == 0, 0].tolist()) == list(range(5, 50))
    assert set(X[y == 1, 0].tolist()) == set(range(5))


@pytest.mark.parametrize(
    ("name", "shape", "outputs", "known"),
    [
        ("tiny-darknet", (3, 224, 224), 1000, 1_042_104),
        ("darknet-19", (3, 224, 224), 1000, 20_842_376),
        ("resnet-18", (3, 32, 32), 10, 11_173_962),
        ("resnet-34", (3, 32, 32), 10, 21_282_122),
        ("512-256-128", (22,), 2, 22 * 512 + 512 + 512 * 256 + 256 + 256 * 128 + 128 + 128 * 2 + 2),
        ("linear", (6,), 1, 7),
    ],
)
def test_networks_have_the_known_numbers_of_parameters(
    name: str, shape: tuple[int, ...], outputs: int, known: int
) -> None:
    assert networks.n_parameters(networks.build(name, shape, outputs)) == known


@pytest.mark.parametrize("name", ["tiny-darknet", "darknet-19", "resnet-18", "resnet-34"])
def test_narrow_networks_take_small_images_grey_or_not(name: str) -> None:
    for channels in (1, 3):
        network = networks.build(name, (channels, 32, 32), 1, width=0.1).eval()
        with torch.no_grad():
            assert network(torch.randn(2, channels, 32, 32)).shape == (2,)
            assert networks.build(name, (channels, 32, 32), 4, width=0.05)(torch.randn(2, channels, 32, 32)).shape == (
                2,
                4,
            )


def test_dropout_comes_after_each_hidden_layer_and_not_in_evaluation() -> None:
    network = networks.build("32-16", (5,), 1, dropout=0.5)
    kinds = [type(layer).__name__ for layer in network]
    assert kinds == ["Linear", "ReLU", "Dropout", "Linear", "ReLU", "Dropout", "Linear", "Flatten"]
    X = torch.randn(8, 5)
    assert not torch.equal(network(X), network(X))
    network.eval()
    assert torch.equal(network(X), network(X))


def sample(n: int = 200, d: int = 2) -> tuple[torch.Tensor, torch.Tensor]:
    random = torch.Generator().manual_seed(0)
    y = torch.randint(d, (n,), generator=random)
    return torch.randn(n, d, generator=random) + 2 * F.one_hot(y, d), y


def build(method: str, *, single: bool = True, **options: object) -> losses.Built:
    return losses.build(method, n_classes=2, prior=0.3, single_output=single, **options)  # type: ignore[arg-type]


EVERY = [name.replace("<number>", "2.5") for name in losses.NAMES]


@pytest.mark.parametrize("method", EVERY)
@pytest.mark.parametrize("single", BOTH)
def test_every_loss_has_a_gradient_with_one_output_and_with_two(method: str, single: bool) -> None:
    if single and method.startswith("fbeta"):
        with pytest.raises(ValueError, match="one β a class"):
            build(method, single=True)
        return
    built = build(method, single=single)
    assert built.n_outputs == (1 if single else 2)
    logits, y = sample(20)
    y = y.roll(1)  # some wrong, or there would be nothing left to learn for adversarial F1
    logits = (logits[:, 1] - logits[:, 0] if single else logits).requires_grad_()
    built.loss(logits, y).backward()
    assert logits.grad is not None
    assert logits.grad.isfinite().all()
    assert logits.grad.abs().sum() > 0


@pytest.mark.parametrize(
    "method", ["f1", "f2", "accuracy", "mcc", "soft_fbeta", "surrogate_fbeta", "mae", "bce", "mse"]
)
def test_one_output_and_the_difference_of_two_are_the_same_loss(method: str) -> None:
    logits, y = sample()
    two = build(method, single=False).loss(logits, y)
    one = build(method).loss(logits[:, 1] - logits[:, 0], y)
    # The dynamic threshold of two classes is 1/2 too, so that the steps are the same up to their normalisation.
    assert two.item() == pytest.approx(one.item(), abs=1e-5)


@pytest.mark.parametrize("approximation", ["linear", "sigmoid", "annealed"])
def test_sharp_logits_give_one_minus_the_metric(approximation: str) -> None:
    logits, y = sample()
    hard = (logits[:, 1] > logits[:, 0]).long()
    sharp = 1e4 * (logits[:, 1] - logits[:, 0])
    for method, beta in (("f1", 1), ("f2", 2), ("f3", 3)):
        built = build(method, approximation=approximation, k=50.0)
        assert built.annealed == (approximation == "annealed")
        assert 1 - built.loss(sharp, y).item() == pytest.approx(fbeta_score(y, hard, beta=beta), abs=1e-5)


def test_annealed_losses_follow_their_temperature() -> None:
    built = build("f1", approximation="annealed", single=False)
    logits, y = sample()
    before = built.loss(logits, y).item()
    built.loss.set_temperature(0.01)  # type: ignore[operator]
    hard = 1 - f1_score(y, logits.argmax(dim=1))
    assert abs(built.loss(logits, y).item() - hard) < abs(before - hard)


def test_betas_of_single_classes_are_filled_up_with_ones() -> None:
    logits, y = sample(d=4)
    built = losses.build(
        "fbeta_recall", n_classes=4, prior=[0.25] * 4, single_output=False, beta_of_class={2: 5.0}, delta=0.01
    )
    hard = logits.argmax(dim=1)
    expected = np.mean([fbeta_score(y == c, hard == c, beta=5 if c == 2 else 1) for c in range(4)])
    assert 1 - built.loss(1e4 * logits, y).item() == pytest.approx(expected, abs=1e-4)


def test_f_scores_of_softmax_are_the_positive_class_of_two_and_macro_of_more() -> None:
    logits, y = sample()
    hard = logits.argmax(dim=1)
    assert 1 - build("f1", single=False).loss(1e4 * logits, y).item() == pytest.approx(f1_score(y, hard), abs=1e-5)
    macro = build("f1", single=False, average="macro").loss(1e4 * logits, y).item()
    assert 1 - macro == pytest.approx(f1_score(y, hard, average="macro"), abs=1e-5)


def test_several_thresholds_give_the_mean_of_their_losses() -> None:
    from metricfit import MetricLoss

    logits, y = sample()
    z = logits[:, 1] - logits[:, 0]
    grid = (0.1, 0.5, 0.9)
    each = [MetricLoss("f1", task="binary", step="linear:delta=0.1", threshold=t)(z, y).item() for t in grid]
    assert build("f1", thresholds=grid).loss(z, y).item() == pytest.approx(np.mean(each), abs=1e-6)


def test_weights_are_those_of_btg() -> None:
    logits, y = sample()
    z = logits[:, 1] - logits[:, 0]
    weights = torch.where(y == 1, 1 / (2 * 0.3), 1 / (2 * 0.7))
    each = F.binary_cross_entropy_with_logits(z, y.float(), reduction="none")
    # Up to the factor of the negatives' weight, which an optimiser like Adam does not see.
    assert build("bce", weighted=True).loss(z, y).item() == pytest.approx(
        (weights * each).mean().item() * 1.4, rel=1e-5
    )
    p = z.sigmoid()
    mae = (weights * (2 - 2 * torch.where(y == 1, p, 1 - p))).sum() / weights.sum()
    assert build("mae", weighted=True).loss(z, y).item() == pytest.approx(mae.item(), rel=1e-5)
    with pytest.raises(ValueError, match="no effect"):
        build("mse", weighted=True)


@pytest.mark.parametrize("beta", [0.5, 1.0, 2.0])
def test_losses_of_surrogate_fbeta_follow_its_equations(beta: float) -> None:
    logits, y = sample()
    z, t = logits[:, 1] - logits[:, 0], y.double()
    f = z.double().sigmoid()
    odds = beta**2 * 0.3 / 0.7
    equation_20 = torch.where(y == 1, -f.log(), (odds + f).log())
    equation_2 = torch.where(y == 1, 1 / 0.3, 1 / 0.7)  # the training set's shares
    balanced = (equation_2 * equation_20).mean()
    assert build("surrogate_fbeta", beta=beta).loss(z, y).item() == pytest.approx(equation_20.mean().item(), rel=1e-5)
    made = build("surrogate_fbeta", beta=beta, balanced=True).loss(z, y).item()
    assert made == pytest.approx(balanced.item(), rel=1e-5)
    hits = (1 + beta**2) * (f * t).sum()
    equation_24 = hits / (hits + beta**2 * ((1 - f) * t).sum() + (f * (1 - t)).sum())
    for share_is_known in BOTH:
        made = build("soft_fbeta", beta=beta, balanced=share_is_known).loss(z, y).item()
        assert made == pytest.approx(1 - equation_24.item(), rel=1e-5)


@pytest.mark.parametrize("single", BOTH)
def test_balanced_rivals_have_the_scale_of_equation_2_on_any_batch(single: bool) -> None:
    logits, y = sample(7)  # a batch whose shares are not the training set's
    logits.requires_grad_()
    z = logits[:, 1] - logits[:, 0]
    entropy = absolute = torch.zeros(())
    for i in range(len(y)):
        weight = 1 / 0.3 if y[i] == 1 else 1 / 0.7
        right = z[i].sigmoid() if y[i] == 1 else 1 - z[i].sigmoid()
        entropy = entropy - weight * right.log() / len(y)
        absolute = absolute + weight * (2 - 2 * right) / len(y)  # eq. 14
    for method, expected in (("bce", entropy), ("mae", absolute)):
        made = build(method, single=single, balanced=True).loss(z if single else logits, y)
        assert made.item() == pytest.approx(expected.item(), rel=1e-5)
        slopes = [torch.autograd.grad(value, logits, retain_graph=True)[0] for value in (made, expected)]
        torch.testing.assert_close(*slopes, rtol=1e-4, atol=1e-6)
    with pytest.raises(ValueError, match="balanced"):
        build("mse", single=single, balanced=True)


def test_dice_is_of_the_output_itself_or_of_its_sigmoid() -> None:
    logits, y = sample()
    z = logits[:, 1] - logits[:, 0]
    for method, f in (("dice", z), ("dice_sigmoid", z.sigmoid())):
        built = build(method)
        expected = 1 - 2 * (f * y).sum() / ((f**2).sum() + y.sum())
        assert built.loss(z, y).item() == pytest.approx(expected.item(), rel=1e-5)
        assert built.raw == (method == "dice")
    # Nothing speaks against false positives in the form of the released code.
    released = build("dice_released").loss
    assert released(torch.ones(4), torch.tensor([1, 0, 0, 0])) == released(
        torch.tensor([1.0, 0, 0, 0]), torch.tensor([1, 0, 0, 0])
    )


def test_auroc_losses_fall_as_the_order_gets_better() -> None:
    random = torch.Generator().manual_seed(0)
    y = torch.randint(2, (300,), generator=random)
    noise = torch.randn(300, generator=random)
    for method in ("auroc", "wmw_auroc"):
        loss = build(method).loss
        found = [(roc_auc_score(y, noise + shift * y), loss(noise + shift * y, y).item()) for shift in (0, 1, 2, 4)]
        assert [value for _, value in found] == sorted((value for _, value in found), reverse=True)


def test_unknown_names_list_the_known_ones() -> None:
    with pytest.raises(ValueError, match="mammography"):
        data.load("mamography")
    with pytest.raises(ValueError, match="wmw_auroc"):
        build("hinge")
    with pytest.raises(ValueError, match="darknet-19"):
        networks.build("vgg", (3, 32, 32), 2)
    with pytest.raises(ValueError, match="two classes"):
        losses.build("auroc", n_classes=3, prior=[0.3, 0.3, 0.4], single_output=False)
