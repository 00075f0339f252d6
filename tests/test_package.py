"""The public face: names, laziness, version."""

import subprocess
import sys
from importlib.metadata import version

import pytest

import metricfit


def test_every_public_name_is_there_and_documented():
    for name in metricfit.__all__:
        thing = getattr(metricfit, name)
        assert name == "__version__" or thing.__doc__, name
    assert set(metricfit.__all__) <= set(dir(metricfit))


def test_version_is_the_installed_one():
    assert metricfit.__version__ == version("metricfit")


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'MetricClasifier'"):
        _ = metricfit.MetricClasifier


def test_importing_a_loss_imports_neither_scikit_learn_nor_pandas():
    script = (
        "import sys, metricfit; print([m for m in ('sklearn', 'pandas', 'matplotlib', 'numba') if m in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
