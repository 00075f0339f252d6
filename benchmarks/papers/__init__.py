"""The papers' experiments, beside their published numbers.

``python -m benchmarks.papers run btg-table1`` appends to ``results/``; ``python -m benchmarks.papers table btg-table1``
sets our numbers beside the paper's; ``python -m benchmarks.papers list`` shows what there is.
"""
