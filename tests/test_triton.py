"""The Triton kernels, run by Triton's interpreter on the CPU, against the plain formulas."""

import importlib.util
import os
import subprocess
import sys

import pytest

CODE = """
import torch
from metricfit import MetricLoss
import metricfit.fast.loss, metricfit.fast.torch_loss
from tests.test_kernels import plain_loss, samples

metricfit.fast.loss.numba_is_here = lambda: False
metricfit.fast.loss.takes_arrays = lambda input: False
metricfit.fast.torch_loss.takes_triton = lambda input: True
for spec, classes, temperature, fixed in [
    ("f1", 2, 0.2, False), ("mcc", 5, 0.4, False), ("f1", 5, 0.01, True), ("mcc", 37, 0.2, False)
]:
    loss = MetricLoss(spec, temperature=temperature, detach_threshold=fixed, weight=torch.rand(classes) + 0.5)
    scores, target, weight = samples(12, classes, dtype=torch.float32)
    target[3], scores[3, 1] = -100, float("nan")
    leaf = scores.clone().requires_grad_()
    value = loss(leaf, target, weight)
    assert "FusedLoss" in str(value.grad_fn)
    (gradient,) = torch.autograd.grad(2 * value, leaf)
    expected, expected_gradient = plain_loss(loss, scores, target, weight)
    assert abs(value.item() - expected.item()) < 2e-6, (spec, classes, temperature)
    size = expected_gradient.abs().max().item()
    torch.testing.assert_close(gradient.double() / 2, expected_gradient, rtol=2e-4, atol=2e-5 * size)
    assert (gradient[3] == 0).all()
print("all equal")
"""


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="needs triton (comes with torch for CUDA)")
def test_value_and_gradient_equal_the_plain_ones():
    # In a process of its own: Triton reads the variable when it is imported.
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    done = subprocess.run(
        [sys.executable, "-c", CODE], env=environment, capture_output=True, text=True, timeout=500, check=False
    )
    assert "all equal" in done.stdout, done.stderr[-2000:]
