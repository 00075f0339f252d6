"""skorch: ``MetricLoss`` is the criterion, also inside a grid search.

python examples/with_skorch.py           (pip install 'metricfit[skorch]')
"""

from __future__ import annotations

import numpy as np
import torch
from sklearn.datasets import make_classification
from sklearn.metrics import f1_score
from sklearn.model_selection import GridSearchCV, train_test_split
from skorch import NeuralNetClassifier
from torch import nn

from metricfit import MetricLoss
from metricfit.integrations.skorch import TemperatureAnnealing


def main() -> None:
    """Choose how much cross-entropy to mix in, by cross-validation, for macro F1."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    X, y = make_classification(
        2000, 10, n_informative=5, n_classes=3, weights=[0.7, 0.22, 0.08], class_sep=0.8, random_state=0
    )
    train_X, test_X, train_y, test_y = train_test_split(X.astype(np.float32), y, stratify=y, random_state=0)
    net = NeuralNetClassifier(
        nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 3)),
        criterion=MetricLoss,  # instead of nn.CrossEntropyLoss
        criterion__metric="f1:average=macro",
        predict_nonlinearity=nn.Softmax(dim=-1),  # skorch knows this by itself only for its own criteria
        callbacks=[("annealing", TemperatureAnnealing(factor=0.7, patience=5))],
        optimizer=torch.optim.AdamW,
        lr=0.01,
        batch_size=256,
        max_epochs=30,
        iterator_train__shuffle=True,
        verbose=0,
    )
    search = GridSearchCV(net, {"criterion__cross_entropy": [0.0, 0.5]}, scoring="f1_macro", cv=3).fit(train_X, train_y)
    best = search.best_estimator_
    print(f"cross-entropy mixed in: {search.best_params_['criterion__cross_entropy']}")
    print(f"epochs: {len(best.history)}, last temperature: {best.history[-1, 'temperature']:.3f}")
    print(f"macro F1 on new points: {f1_score(test_y, best.predict(test_X), average='macro'):.3f}")


if __name__ == "__main__":
    main()
