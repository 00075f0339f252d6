"""The losses that metric losses are compared with: sums over samples, and metric losses with a name of their own."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Unpack, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from metricfit.confusion import ConfusionMatrix, count_labels, indicator, one_against_rest
from metricfit.distributed import sum_over_processes
from metricfit.inputs import InputOptions, Samples, Task, check_task, expect, flatten_inputs, safe_divide
from metricfit.losses.companions import losses_and_mass
from metricfit.losses.metric_loss import MetricLoss
from metricfit.metrics import FBeta, MetricLike, get
from metricfit.steps import Amplifier, Cosine, Identity

Array = NDArray[np.float64]
TOLERANCE = 1e-2  # of games in training: for logits that are nearly the same the exact mixture has very many strategies


class SampleLoss(nn.Module):
    """A loss that is a formula of the samples, averaged with their weights.

    It takes task, weight, ignore_index, from_probabilities, members and validate, as :class:`metricfit.MetricLoss`.
    """

    tasks: ClassVar[tuple[Task, ...]] = get_args(Task)  # those that the loss is for; the first is the default
    weight: Tensor | None
    group: Any = None  # processes whose sums are added up, for formulas that do so

    def __init__(self, **options: Unpack[InputOptions]) -> None:
        super().__init__()
        self.task = options.setdefault("task", self.tasks[0])
        check_task(self.task)
        wanted = f"{' or '.join(map(repr, self.tasks))} for {type(self).__name__}"
        expect(self.task in self.tasks, "task", wanted, self.task)
        self.register_buffer("weight", options.pop("weight", None), persistent=False)
        self.options = options

    def forward(self, input: Tensor, target: Tensor, sample_weight: Tensor | None = None) -> Tensor:
        """The loss of a batch, a scalar; 0 where everything is ignored."""
        options: InputOptions = {**self.options, "weight": self.weight}
        with torch.autocast(input.device.type if isinstance(input, Tensor) else "cpu", enabled=False):
            samples = flatten_inputs(input, target, sample_weight, allow_empty=self.group is not None, **options)
            loss = self._of_samples(samples, samples.probabilities)
            (weight,) = sum_over_processes([samples.total], self.group)
            return torch.where(weight > 0, loss, torch.zeros_like(loss))

    @abstractmethod
    def _of_samples(self, samples: Samples, p: Tensor) -> Tensor:
        """The formula, given the samples and their probabilities (…, n, d)."""


def _shares(samples: Samples, p: Tensor) -> tuple[Tensor, Tensor]:
    target, weight = samples.target, samples.weight
    shares = target if target.is_floating_point() else indicator(target, p)
    return shares, weight if weight.ndim == p.ndim else weight[..., None]


class MAELoss(SampleLoss):
    """The mean absolute error 2 - 2 f_y, f_y the probability of the true class (surrogate-fbeta eq. 14).

    >>> MAELoss()(torch.zeros(1, 2), torch.tensor([0]))
    tensor(1.)
    """

    def _of_samples(self, samples: Samples, p: Tensor) -> Tensor:
        y, weight = _shares(samples, p)
        total, right = (weight * y).sum(), (weight * y * p).sum()
        if self.task != "multiclass":
            total, right = weight.sum(), right + (weight * (1 - y) * (1 - p)).sum()
        return 2 - 2 * safe_divide(right, total)


class DiceLoss(SampleLoss):
    """One minus the soft Dice coefficient 2 Σ p y / (Σ p + Σ y), averaged over the classes that occur.

    ``squared`` has Σ p² + Σ y² in the denominator (Milletari et al. 2016).

    >>> DiceLoss(task="binary")(torch.tensor([0.0, 0.0]), torch.tensor([1, 0]))
    tensor(0.5000)
    """

    def __init__(self, *, squared: bool = False, **options: Unpack[InputOptions]) -> None:
        super().__init__(**options)
        self.power = 2 if squared else 1

    def _of_samples(self, samples: Samples, p: Tensor) -> Tensor:
        y, weight = _shares(samples, p)
        overlap = (weight * p * y).sum(dim=0)
        sizes = (weight * (p**self.power + y**self.power)).sum(dim=0)
        occurs = ((weight * y).sum(dim=0) > 0).to(p.dtype)
        return 1 - safe_divide((safe_divide(2 * overlap, sizes) * occurs).sum(), occurs.sum())


class FocalLoss(SampleLoss):
    """The focal loss (1 - f_y)^gamma · (-log f_y) of Lin et al. 2017; class weights play the part of alpha.

    ``gamma`` says how much well-classified samples are played down; 0 is cross-entropy.

    >>> FocalLoss(gamma=2.0)(torch.zeros(1, 2), torch.tensor([0]))
    tensor(0.1733)
    """

    def __init__(self, *, gamma: float = 2.0, **options: Unpack[InputOptions]) -> None:
        super().__init__(**options)
        expect(gamma >= 0, "gamma", "a number >= 0", gamma)
        self.gamma = gamma

    def _of_samples(self, samples: Samples, p: Tensor) -> Tensor:
        losses, mass = losses_and_mass(samples)
        wrong = -torch.expm1(-losses)
        # A power below 1 has an infinite slope at 0: the base is replaced there before the power is taken.
        eased = torch.where(wrong > 0, torch.where(wrong > 0, wrong, 1.0) ** self.gamma, float(self.gamma == 0))
        return safe_divide((mass * eased * losses).sum(), mass.sum())


class WMWLoss(SampleLoss):
    """The Wilcoxon-Mann-Whitney surrogate of AUROC (Yan et al. 2003).

    The weighted mean over pairs of a positive i and a negative j of ``max(0, margin - (f_i - f_j))^power``, with a
    margin in (0, 1] and a whole power >= 2, for binary tasks. All pairs are summed in O(n log n) by sorting the
    negatives and adding up their powers, not by forming the pairs.

    >>> WMWLoss(margin=0.5)(torch.tensor([9.0, -9.0]), torch.tensor([1, 0]))
    tensor(0.)
    """

    tasks = ("binary",)

    def __init__(self, *, margin: float = 0.3, power: int = 2, **options: Unpack[InputOptions]) -> None:
        super().__init__(**options)
        expect(0 < margin <= 1, "margin", "a number in (0, 1]", margin)
        expect(isinstance(power, int) and power >= 2, "power", "a whole number >= 2", power)
        self.margin, self.power = margin, power

    def _of_samples(self, samples: Samples, p: Tensor) -> Tensor:
        f, y, weight = p[:, 0], samples.target[:, 0], samples.weight[:, 0]
        positives, negatives = weight * y, weight * (1 - y)
        order = f.detach().argsort(descending=True)
        sorted_f, sorted_weight = f[order], negatives[order]
        # Negatives that come within the margin of positive i are the first reached[i] of the sorted ones.
        reached = torch.searchsorted(-sorted_f.detach(), self.margin - f.detach())
        total = torch.zeros_like(f)
        for m in range(self.power + 1):
            sums = torch.cat([f.new_zeros(1), (sorted_weight * sorted_f**m).cumsum(0)])
            total = total + math.comb(self.power, m) * (self.margin - f) ** (self.power - m) * sums[reached]
        return safe_divide((positives * total).sum(), positives.sum() * negatives.sum())


class SurrogateFBetaLoss(SampleLoss):
    """-y log f + (1 - y) log(β² p / (1 - p) + f), f the probability and p the share of positives (eq. 20).

    With ``q`` the noise-robust form of eq. 25: y (1 - f^q) / q + (1 - y) ((β² p / (1 - p) + f)^q - 1) / q. As in the
    paper each sample counts n / n_y times (eq. 2), that is 1 / p or 1 / (1 - p): the mean over the training set is the
    sum of both classes' means (eq. 21).

    Args:
        beta: Recall counts beta times as much as precision.
        q: Robustness in (0, 1]; ``None`` is eq. 20, the limit q → 0.
        class_balanced: Whether samples are weighted by eq. 2; otherwise each counts once.
        positive_share: p of the training set, one number, or one per label. Give it: by default it is the batch's,
            which changes from batch to batch.
        options: As in :class:`SampleLoss`; the task is "binary" or "multilabel". With members one loss per member.

    >>> loss = SurrogateFBetaLoss(beta=1.0, positive_share=0.5)
    >>> loss(torch.tensor([0.0, 0.0]), torch.tensor([1, 0]))  # log 2 + log 1.5
    tensor(1.0986)
    """

    tasks = ("binary", "multilabel")
    positive_share: Tensor | None

    def __init__(
        self, beta: float = 1.0, *, q: float | None = None, class_balanced: bool = True,
        positive_share: float | Sequence[float] | Tensor | None = None, **options: Unpack[InputOptions],
    ) -> None:  # fmt: skip
        super().__init__(**options)
        expect(0 < beta < math.inf, "beta", "a number > 0", beta)
        expect(q is None or 0 < q <= 1, "q", "a number in (0, 1], or None for eq. 20", q)
        share = None if positive_share is None else torch.as_tensor(positive_share)
        if share is not None:
            inside, number = bool(((share > 0) & (share < 1)).all()), share.numel() if self.task == "binary" else 1
            expect(inside, "positive_share", "shares strictly between 0 and 1", positive_share)
            expect(share.ndim < 2 and number == 1, "positive_share", "one number, or one per label", positive_share)
        self.beta, self.q, self.class_balanced = float(beta), q, class_balanced
        self.register_buffer("positive_share", share, persistent=False)

    def _of_samples(self, samples: Samples, p: Tensor) -> Tensor:
        y, weight, smallest = samples.target, samples.weight, torch.finfo(p.dtype).tiny
        positives, total = sum_over_processes([(weight * y).sum(dim=-2), weight.sum(dim=-2)], self.group)
        share, labels = safe_divide(positives, total)[..., None, :], p.shape[-1]
        if self.positive_share is not None:
            share, number = self.positive_share.to(p), self.positive_share.numel()
            expect(number in (1, labels), "positive_share", f"one number for each of {labels} labels", number)
        # A batch without negatives has p = 1: eq. 20 is then infinite, but no sample asks for it.
        reached = self.beta**2 * safe_divide(share, 1 - share) + p
        if self.q is None:
            missed = -p.clamp_min(smallest).log() if samples.from_probabilities else F.softplus(-samples.scores)
            alarm = reached.clamp_min(smallest).log()
        else:
            missed = (1 - p.clamp_min(smallest) ** self.q) / self.q
            alarm = (reached.clamp_min(smallest) ** self.q - 1) / self.q
        if self.class_balanced:
            one = torch.ones_like(share)
            missed, alarm = missed * safe_divide(one, share), alarm * safe_divide(one, 1 - share)
        (losses,) = sum_over_processes([(weight * (y * missed + (1 - y) * alarm)).sum(dim=-2)], self.group)
        return safe_divide(losses, total).mean(dim=-1)


class SoftFBetaLoss(MetricLoss):
    """One minus the soft F-beta score: the F-score of raw probabilities.

    With ``task="binary"`` and no class weights it is surrogate-fbeta's eq. 23-24, the F-score of the positive class;
    otherwise the macro average. Recall counts ``beta`` times as much as precision: one number, or one per class. The
    options are those of :class:`metricfit.MetricLoss`.

    >>> SoftFBetaLoss(task="binary")(torch.tensor([9.0, -9.0]), torch.tensor([1, 0]))
    tensor(0.0001)
    """

    def __init__(self, beta: float | tuple[float, ...] = 1.0, **options: Any) -> None:
        super().__init__(FBeta(beta=beta), step=Identity(), **options)


class AnyLoss(MetricLoss):
    """AnyLoss (Han et al. 2024): a metric of probabilities amplified by 1 / (1 + exp(-L (p - 1/2))).

    L is the ``sharpness``, the task "binary" or "multilabel"; other options are those of :class:`metricfit.MetricLoss`.

    >>> AnyLoss("f1")(torch.tensor([9.0, -9.0]), torch.tensor([1, 0]))
    tensor(0.)
    """

    def __init__(
        self, metric: MetricLike = "f1", *, sharpness: float = 73.0, task: Task = "binary", **options: Any
    ) -> None:
        super().__init__(metric, step=Amplifier(sharpness), task=task, **options)


class SOLLoss(MetricLoss):
    """The score-oriented loss (Marchetti et al. 2022): a metric of the matrix expected at a random threshold.

    The threshold's density is a raised cosine of half width ``delta`` around ``threshold``; with None it is uniform on
    (0, 1). The task is "binary" or "multilabel"; other options are those of :class:`metricfit.MetricLoss`.

    >>> SOLLoss("f1", delta=None)(torch.tensor([0.0, 0.0]), torch.tensor([1, 0]))
    tensor(0.5000)
    """

    def __init__(
        self, metric: MetricLike = "f1", *, delta: float | None = 0.1, task: Task = "binary", **options: Any
    ) -> None:
        if task == "multiclass":
            raise ValueError("task: several classes have several thresholds; use MultiSOLLoss.")
        super().__init__(metric, step=Identity() if delta is None else Cosine(delta), task=task, **options)


class MultiSOLLoss(SampleLoss):
    """The score-oriented loss of several classes (Marchetti et al. 2025, arXiv:2511.22587).

    With thresholds τ on the simplex a sample belongs to class j where p_j - τ_j is largest. Its chance to do so is
    the mean over random τ of Π σ(sharpness · (p_j - p_k - τ_j + τ_k)) over the other classes k; the metric is taken of
    the counts of each class against the rest that these chances make. ``thresholds`` says how many are drawn,
    uniformly; or they are your own, (draws, C).

    >>> MultiSOLLoss("recall")(torch.eye(3) * 99, torch.arange(3)) < 0.2
    tensor(True)
    """

    tasks = ("multiclass",)

    def __init__(
        self, metric: MetricLike = "f1", *, thresholds: int | Tensor = 100, sharpness: float = 10.0,
        **options: Unpack[InputOptions],
    ) -> None:  # fmt: skip
        super().__init__(**options)
        self.metric, self.thresholds, self.sharpness = get(metric), thresholds, sharpness

    def _of_samples(self, samples: Samples, p: Tensor) -> Tensor:
        taus = self.thresholds
        if not isinstance(taus, Tensor):
            generator = torch.Generator().manual_seed(0)  # the same for every batch
            taus = torch.empty(taus, p.shape[-1]).exponential_(generator=generator)
            taus = taus / taus.sum(dim=-1, keepdim=True)
        ahead = p[:, None] - taus.to(p)
        gaps = ahead[..., :, None] - ahead[..., None, :]  # of each class before each; before itself σ(0) = 1/2
        chance = 2 * F.logsigmoid(self.sharpness * gaps).sum(dim=-1).exp()
        counts = count_labels(chance.mean(dim=1), *one_against_rest(samples.target, samples.weight, p))
        return self.metric.loss(lambda _: ConfusionMatrix(counts, "multilabel", absent="skip"))


class AdversarialF1Loss(SampleLoss):
    """Adversarial prediction for F1 (Wang et al. 2015; Fathony and Kolter 2020), for binary tasks.

    A predictor chooses labels ŷ of the batch, an adversary labels y̌; both may mix. With the logits ψ the loss is
    -(v + ψ·y), v the value of the game E[F1(ŷ, y̌)] - ψ·E[y̌], and its gradient E[y̌] - y. It is a mean over batches of
    at most ``batch_size`` samples, for which the authors advise 20; larger inputs are cut into such pieces. Weights,
    probabilities and members have no place in the game.

    >>> AdversarialF1Loss()(torch.tensor([5.0, -5.0]), torch.tensor([1, 0]))  # F1 = 1
    tensor(-1.)
    """

    tasks = ("binary",)

    def __init__(self, *, batch_size: int = 20, **options: Unpack[InputOptions]) -> None:
        for name in sorted({"weight", "from_probabilities", "members"} & set(options)):
            raise ValueError(f"{name}: has no place in the game of labels; leave it out.")
        super().__init__(**options)
        expect(isinstance(batch_size, int) and batch_size >= 1, "batch_size", "a whole number >= 1", batch_size)
        self.batch_size = batch_size

    def _of_samples(self, samples: Samples, p: Tensor) -> Tensor:
        kept = samples.weight[:, 0] > 0
        once = bool((samples.weight[kept] == 1).all())
        expect(once, "sample_weight", "none, since each sample counts once in the game of labels", "other weights")
        logits = samples.scores[kept, 0]
        pieces = logits.detach().cpu().double().split(self.batch_size)
        values, marginals = zip(*(equilibrium(piece.numpy(), TOLERANCE) for piece in pieces), strict=True)
        adversary = torch.from_numpy(np.concatenate(marginals)).to(logits)
        reached = sum(values) + (logits.detach() * adversary).sum()  # E[F1]
        loss: Tensor = ((logits * (adversary - samples.target[kept, 0])).sum() - reached) / len(pieces)
        return loss


def equilibrium(logits: Array, tolerance: float = 1e-7) -> tuple[float, Array]:
    """The game's value v and the adversary's probability of each label, (n,), by double oracle.

    Find the equilibrium of the strategies so far, add each side's best response to it, and stop when neither gains more
    than ``tolerance`` by it.

    >>> value, marginals = equilibrium(np.array([3.0, 0.0]))
    >>> round(value, 4), marginals.tolist()
    (-2.1667, [1.0, 0.5])
    """
    predictor = adversary = (logits > 0).astype(np.float64)[None]
    while True:
        size = predictor.sum(axis=1)[:, None] + adversary.sum(axis=1)
        f1 = np.where(size == 0, 1.0, 2 * predictor @ adversary.T / np.maximum(size, 1))
        value, p, q = _matrix_game(f1 - adversary @ logits)
        marginals = q @ adversary
        answer, reached = _best_response(adversary, q, 1.0, np.zeros_like(logits))
        reply, lowered = _best_response(predictor, p, -1.0, logits)
        gained, saved = float(reached - logits @ marginals - value), float(lowered + value)
        if max(gained, saved) <= tolerance:
            return value, marginals
        predictor = np.vstack([predictor, answer]) if gained > tolerance else predictor
        adversary = np.vstack([adversary, reply]) if saved > tolerance else adversary


def _best_response(strategies: Array, probabilities: Array, sign: float, logits: Array) -> tuple[Array, float]:
    """The labels with the largest ``sign`` E[F1] + ψ·y against a mixture of the other side's, and this value."""
    numbers = np.arange(strategies.shape[1] + 1)  # of labels, on either side
    of_size = (numbers == strategies.sum(axis=1)[:, None]) * probabilities[:, None]
    share = 2 / np.maximum(numbers[:, None] + numbers, 1)
    gains = logits + sign * share @ (of_size.T @ strategies)  # of each label, by the number of labels taken
    order = np.argsort(-gains, axis=1, kind="stable")
    best = np.take_along_axis(gains, order, axis=1).cumsum(axis=1).diagonal(-1)  # the k best of k
    values = np.append(sign * of_size[:, 0].sum(), best)  # without labels on both sides F1 is 1
    k = int(values.argmax())
    answer = np.zeros(len(logits))
    answer[order[k, :k]] = 1.0
    return answer, float(values[k])


def _matrix_game(payoff: Array) -> tuple[float, Array, Array]:
    """Value and optimal mixtures of rows, which want much, and of columns, by a linear program of the columns."""
    from scipy.optimize import linprog  # training needs the other losses of this file, without it

    rows, columns = payoff.shape
    if rows == columns == 1:
        return float(payoff[0, 0]), np.ones(1), np.ones(1)
    found: Any = linprog(
        [0.0] * columns + [1.0], A_ub=np.hstack([payoff, -np.ones((rows, 1))]), b_ub=np.zeros(rows),
        A_eq=[[1.0] * columns + [0.0]], b_eq=[1.0], bounds=[(0, None)] * columns + [(None, None)],
    )  # fmt: skip
    return float(found.fun), -found.ineqlin.marginals, found.x[:columns]
