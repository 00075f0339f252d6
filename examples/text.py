"""Imbalanced text with hashed words: F1 of the rare class, against cross-entropy and Dice.

By default the messages are generated: words by a law of frequency, a twentieth of the messages about a topic whose
words also occur elsewhere. ``python -m examples.text --data sms_spam``, in the repository, takes real text messages, of
which 13 % are spam, from the folder that METRICFIT_DATA names. The same linear network on hashed words is trained with
each loss, with the same steps; the decision is the arg max, except where the table says that a threshold was tuned on
validation rows.

    python examples/text.py --seeds 5
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable

import numpy as np
import torch
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.metrics import f1_score
from sklearn.model_selection import train_test_split
from torch import Tensor, nn

from metricfit import MetricLoss
from metricfit.decisions import best_threshold
from metricfit.losses import DiceLoss

LOSSES: dict[str, Callable[[], nn.Module]] = {
    "cross-entropy": nn.CrossEntropyLoss,
    "Dice": DiceLoss,
    "F1": lambda: MetricLoss("f1[1]"),
    "F1 + 0.5 cross-entropy": lambda: MetricLoss("f1[1]", cross_entropy=0.5, balance="sqrt", memory=0.9),
}
TUNED = "cross-entropy, tuned threshold"


def generated(n: int = 2500) -> tuple[list[str], np.ndarray]:
    """Messages of about twelve words out of 400."""
    random = np.random.default_rng(0)
    y = (random.random(n) < 0.05).astype(np.int64)
    common = 1 / np.arange(1, 401)
    topic = common * np.where(random.random(400) < 0.15, 6.0, 1.0)  # sixty words are likelier in this topic
    shares = np.stack([common / common.sum(), topic / topic.sum()])
    lengths = random.poisson(12, n) + 1
    return [
        " ".join(f"w{w}" for w in random.choice(400, size, p=shares[k])) for size, k in zip(lengths, y, strict=True)
    ], y


def real(name: str) -> tuple[list[str], np.ndarray]:
    """A text set by name."""
    from benchmarks import data

    found = data.load(name)
    return found.X.iloc[:, 0].astype(str).tolist(), np.asarray(found.y).astype(np.int64)


def train(loss: nn.Module, x: Tensor, y: Tensor, seed: int, steps: int) -> nn.Linear:
    """The usual loop; it knows nothing of the loss."""
    model = nn.Linear(x.shape[1], 2)
    nn.init.zeros_(model.weight)
    nn.init.zeros_(model.bias)
    optimiser = torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    order = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        batch = torch.randint(len(x), (256,), generator=order)
        optimiser.zero_grad()
        loss(model(x[batch]), y[batch]).backward()
        optimiser.step()
        schedule.step()
    return model


def main() -> None:
    """Train with every loss on every split, and print F1 with its spread."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="generated", help="generated, or a text set such as sms_spam")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=400)
    options = parser.parse_args()
    torch.set_num_threads(1)
    messages, y = generated() if options.data == "generated" else real(options.data)
    hashing = HashingVectorizer(n_features=1024, alternate_sign=False, norm="l2")
    x = torch.from_numpy(hashing.transform(messages).toarray()).float()
    found: dict[str, list[float]] = {name: [] for name in [*LOSSES, TUNED]}
    for seed in range(options.seeds):
        rest, test = train_test_split(np.arange(len(y)), test_size=0.4, stratify=y, random_state=seed)
        rows, valid = train_test_split(rest, test_size=0.25, stratify=y[rest], random_state=seed)
        for name, make in LOSSES.items():
            model = train(make(), x[rows], torch.from_numpy(y[rows]), seed, options.steps)
            with torch.no_grad():
                p = model(x).softmax(dim=1)[:, 1].numpy()
            found[name].append(100 * f1_score(y[test], p[test] > 0.5))
            if name == "cross-entropy":
                rule = best_threshold(y[valid], p[valid], "f1")
                found[TUNED].append(100 * f1_score(y[test], p[test] >= rule.threshold))
    print(f"{options.data}: {len(y)} messages, {100 * y.mean():.1f} % in the rare class")
    print(f"F1 × 100 of the rare class on new messages, mean ± standard deviation of {options.seeds} splits")
    for name, values in found.items():
        spread = statistics.stdev(values) if len(values) > 1 else float("nan")
        print(f"{name:32}{statistics.mean(values):6.1f} ± {spread:.1f}")


if __name__ == "__main__":
    main()
