"""Modules of optional libraries are left out, doctests and all, where the library is missing; the header says so."""

from importlib.util import find_spec

NEEDS = {
    "src/metricfit/fast/triton_rows.py": "triton",
    "src/metricfit/integrations/huggingface.py": "transformers",
    "src/metricfit/integrations/lightning.py": "lightning",
    "src/metricfit/integrations/skorch.py": "skorch",
    "tests/integrations/loss_ranks.py": "transformers",
}
MISSING = sorted({library for library in NEEDS.values() if find_spec(library) is None})
collect_ignore = [path for path, library in NEEDS.items() if library in MISSING]


def pytest_report_header():
    if not MISSING:
        return None
    return f"not installed, so not tested: {', '.join(MISSING)} (make test-slow installs them; triton comes with CUDA)"
