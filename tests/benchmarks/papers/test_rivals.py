"""The papers' rivals that are no neural networks, as the benchmark fits them."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.papers import data, rivals


@pytest.mark.parametrize("method", rivals.NAMES)
def test_rivals_tell_classes_apart_by_their_largest_score(method: str) -> None:
    parts = data.split(data.load("synthetic_33", rows=600), seed=0)
    scores = rivals.fit(method, parts, seed=0)(parts.test[0])
    assert scores.shape == (120, 2)
    assert (scores.argmax(axis=1) == parts.test[1].numpy()).mean() > 0.75
    if method.startswith("svmperf"):
        assert scores.sum(axis=1) == pytest.approx(np.zeros(120))


@pytest.mark.parametrize("method", ["rf", "ccs"])
def test_images_are_reduced_to_what_explains_four_fifths_of_the_training_part(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = np.random.default_rng(0)
    y = np.arange(90) % 3
    X = np.clip(random.normal(60 + 60 * y[:, None, None, None], 20, (90, 3, 8, 8)), 0, 255).astype(np.uint8)
    parts = data.split(data.Problem("made up", X, y, ["a", "b", "c"]), seed=0)
    kept = []
    fitted = rivals.PCA.fit
    monkeypatch.setattr(rivals.PCA, "fit", lambda self, X: kept.append(fitted(self, X)) or self)
    scores = rivals.fit(method, parts, seed=0)(parts.test[0])
    assert (scores.argmax(axis=1) == parts.test[1].numpy()).all()
    share = np.cumsum(np.linalg.svd(parts.train[0].flatten(1) - parts.train[0].flatten(1).mean(0))[1] ** 2)
    assert kept[0].n_components_ == int(np.searchsorted(share / share[-1], 0.8)) + 1
