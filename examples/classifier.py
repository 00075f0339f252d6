"""MetricClassifier on a table with categories and gaps: train on F1, see what it bought, keep a recall.

python examples/classifier.py
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from sklearn.metrics import f1_score, precision_score, recall_score
from sklearn.model_selection import train_test_split

from metricfit import MetricClassifier


def customers(n: int = 6000) -> tuple[pd.DataFrame, pd.Series]:
    """Made-up customers, about 7 % of whom leave; a tenth of the ages is missing."""
    random = np.random.default_rng(0)
    table = pd.DataFrame(
        {
            "age": np.where(random.random(n) < 0.1, np.nan, random.normal(45, 12, n).round()),
            "plan": random.choice(["basic", "family", "business"], n, p=[0.6, 0.3, 0.1]),
            "months": random.integers(1, 72, n),
            "calls": random.poisson(1.5, n),
            "since": pd.Timestamp("2020-01-01") + pd.to_timedelta(random.integers(0, 1500, n), unit="D"),
        }
    )
    risk = -4.2 + 0.7 * table["calls"] - 0.03 * table["months"] + 1.2 * (table["plan"] == "basic")
    leaves = random.random(n) < 1 / (1 + np.exp(-risk))
    return table, pd.Series(np.where(leaves, "leaves", "stays"), name="next_year")


def main() -> None:
    """Train, explain, and trade precision for a recall of 70 %."""
    X, y = customers()
    train_X, test_X, train_y, test_y = train_test_split(X, y, test_size=0.3, stratify=y, random_state=0)

    classifier = MetricClassifier("f1[leaves]", random_state=0).fit(train_X, train_y)
    print(classifier.explain())
    predicted = classifier.predict(test_X)
    print(f"\nF1 on new customers: {f1_score(test_y, predicted, pos_label='leaves'):.3f}\n")
    print(classifier.history_.tail(3).to_string(index=False), end="\n\n")

    careful = MetricClassifier("precision[leaves] subject to recall[leaves] >= 0.7", random_state=0)
    predicted = careful.fit(train_X, train_y).predict(test_X)
    recall = recall_score(test_y, predicted, pos_label="leaves")
    precision = precision_score(test_y, predicted, pos_label="leaves")
    print(f"Asked for a recall of 70 %: recall {recall:.3f}, precision {precision:.3f} on new customers")


if __name__ == "__main__":
    main()
