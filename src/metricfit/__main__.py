"""``python -m metricfit`` is the command line."""

from metricfit.cli.entry import main

if __name__ == "__main__":
    main()
