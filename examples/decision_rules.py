"""Decision rules for any scikit-learn model: one cut-off, class offsets, several labels, costs.

python examples/decision_rules.py
"""

from __future__ import annotations

import numpy as np
from sklearn.datasets import load_wine, make_classification, make_multilabel_classification
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import balanced_accuracy_score, f1_score
from sklearn.model_selection import cross_val_predict, train_test_split
from sklearn.naive_bayes import GaussianNB

from metricfit.decisions import (
    DecisionRule,
    TunedRuleClassifier,
    bayes_rule,
    best_label_thresholds,
    best_offsets,
    best_threshold,
)


def two_classes() -> None:
    """Three per cent of frauds: the best F1, then the best recall with at most 5 % of cases to look into."""
    X, y = make_classification(8000, weights=[0.97], class_sep=1.2, random_state=0)
    score = cross_val_predict(LogisticRegression(), X, y, method="predict_proba")[:, 1]
    print("F1 at 0.5:", round(f1_score(y, score >= 0.5), 3))
    print(best_threshold(y, score, "f1"), end="\n\n")
    print(best_threshold(y, score, "recall[1] subject to predicted_share[1] <= 0.05", confidence=0.95), end="\n\n")


def several_classes() -> None:
    """Class offsets for macro F1, kept as JSON."""
    X, y = make_classification(
        3000, n_features=10, n_informative=6, n_classes=4, weights=[0.7, 0.2, 0.07], class_sep=0.8, random_state=0
    )
    proba = cross_val_predict(GaussianNB(), X, y, method="predict_proba")
    best = best_offsets(y, proba, "f1_macro")
    print(best)
    print(f"plain arg max: {best.argmax_value:.4g}")
    print(DecisionRule.from_json(best.rule.to_json()).apply(proba[:10]), end="\n\n")


def costs() -> None:
    """A missed fraud costs nine false alarms: for probabilities that can be trusted, no data are needed."""
    print("costs of 1 and 9:", bayes_rule([[0, 1], [9, 0]], ["fine", "fraud"]).in_words(), end="\n\n")


def several_labels() -> None:
    """One cut-off per label, chosen together for micro F1."""
    X, y = make_multilabel_classification(1500, n_classes=5, random_state=0)
    forest = RandomForestClassifier(50, random_state=0)
    columns = cross_val_predict(forest, X, y, method="predict_proba")
    score = np.stack([column[:, 1] for column in columns], axis=1)
    print(best_label_thresholds(y, score, "f1_micro"), end="\n\n")


def a_classifier() -> None:
    """The same inside one scikit-learn estimator."""
    X, y = load_wine(return_X_y=True)
    X_train, X_test, y_train, y_test = train_test_split(X[:, :3], y, random_state=0, stratify=y)
    model = TunedRuleClassifier(GaussianNB(), metric="balanced_accuracy").fit(X_train, y_train)
    print("wines:", model.rule_.in_words())
    found = balanced_accuracy_score(y_test, model.predict(X_test))
    print("balanced accuracy on new wines:", round(found, 3))


if __name__ == "__main__":
    two_classes()
    several_classes()
    costs()
    several_labels()
    a_classifier()
