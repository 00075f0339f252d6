"""Forty real tables, strong rivals: who decides best for F1, MCC and balanced accuracy.

``python -m benchmarks.suite run`` appends to ``results/``; ``python -m benchmarks.suite table`` turns that into
``docs/results.md``, its picture and the table of the README.
"""
