"""Many data sets, all rivals: what training on the metric buys, measured by paired splits.

``python -m benchmarks.suite run`` appends to ``results/``; ``python -m benchmarks.suite table`` turns that into
``docs/results.md`` and its plots.
"""
