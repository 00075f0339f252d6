"""``metricfit demo``."""

from __future__ import annotations

from pathlib import Path

from metricfit.cli import command as cli
from metricfit.cli.train import Train

_MAX_EPOCHS: int | None = None


class Demo(cli.Command):
    """Train on a small table that comes with scikit-learn and show what it bought.

    Writes digits.csv, handwritten digits of which some are rare, and a model folder with a report; shows the command
    to try with a table of your own.
    """

    out: Path = cli.an_out("Where to write.", "DIR", default=Path("metricfit-demo"))
    seed: int = cli.a_seed()
    overwrite: bool = cli.to_overwrite()

    def run(self) -> None:
        table, model = self.out / "digits.csv", self.out / "model"
        free = self.overwrite or not (table.exists() or model.exists())
        cli.expect(free, f"--out: {self.out} holds an earlier demo; --overwrite replaces it.")
        import numpy as np
        from sklearn.datasets import load_digits
        from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

        self.out.mkdir(parents=True, exist_ok=True)
        digits = load_digits(as_frame=True).frame.rename(columns={"target": "digit"}).astype(int)
        digit, random = digits["digit"].to_numpy(), np.random.default_rng(0)
        kept = [random.permutation(np.flatnonzero(digit == k))[: int(170 * 0.7**k) + 6] for k in range(10)]
        digits = digits.iloc[np.sort(np.concatenate(kept))]  # digit k keeps about 0.7^k
        digits.to_csv(table, index=False)
        counts = digits["digit"].value_counts()
        self.note(
            f"{len(digits)} of scikit-learn's handwritten digits, from {counts[0]} zeros to {counts[9]} nines: "
            f"{table}\nMacro F1 counts a rare digit as much as a common one; cross-entropy does not.\n"
            f"$ metricfit train {table} --target digit --metric f1_macro --out {model}\n"
            f"Afterwards try: metricfit predict {model} {table} --keep digit"
        )
        train = Train(
            data=str(table), target=["digit"], metric="f1_macro", out=model, max_epochs=_MAX_EPOCHS, seed=self.seed,
            overwrite=self.overwrite, json=self.json, quiet=self.quiet,
        )  # fmt: skip
        # So small a network gains nothing by threads, and on a busy machine they wait for each other.
        with train.held, threadpool_limits(1):
            train.run()
