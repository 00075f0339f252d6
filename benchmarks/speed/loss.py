"""What MetricLoss costs beside F.cross_entropy: forward and backward, and how both grow with samples and classes.

    python benchmarks/speed/loss.py ratios   # time against F.cross_entropy, written to ratios.csv
    python benchmarks/speed/loss.py options  # one logit, cross-entropy and memory mixed in, written to options.csv
    python benchmarks/speed/loss.py growth   # exponents over n and d beside other libraries, written to growth.csv
    python benchmarks/speed/loss.py plots    # both drawn
    python benchmarks/speed/loss.py tables   # both, and those of fit.csv, as tables, written into docs/speed.md

Every ratio is taken within one run: contestants take turns, one step each, and a ratio is that of two neighbouring
steps. The median of the ratios is reported with their quartiles.
"""

from __future__ import annotations

import argparse
import csv
import ctypes
import importlib.util
import math
import os
import platform
import random
import statistics
import subprocess
import sys
import time
import types
from pathlib import Path

import torch
from torch.nn import functional as F

from metricfit import MetricLoss, __version__

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "speed.md"
IMAGES = PAGE.parent / "images"
CLOCKS = {"wall": time.perf_counter, "cpu": time.thread_time}
SHAPES = [(1024, 2), (1024, 10), (65536, 10), (8192, 257), (65536, 257), (8192, 1000), (262144, 21), (4, 21, 256, 256)]
LEAST_ROUNDS = 7
"""Of the growth's turns, however long they take."""


def machine() -> dict[str, object]:
    """What the numbers depend on."""
    model = platform.processor()
    if Path("/proc/cpuinfo").exists():
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), model)
    try:
        import numba

        compiler = numba.__version__
    except ImportError:
        compiler = ""
    return {
        "cpu": model, "cores": os.cpu_count(), "threads": torch.get_num_threads(), "metricfit": __version__,
        "torch": torch.__version__, "numba": compiler, "python": platform.python_version(),
        "load": round(os.getloadavg()[0], 1), "date": time.strftime("%Y-%m-%d"),
    }  # fmt: skip


def batch(shape: tuple[int, ...]) -> tuple[torch.Tensor, torch.Tensor]:
    random = torch.Generator().manual_seed(0)
    logits = torch.randn(shape, generator=random).requires_grad_()
    return logits, torch.randint(shape[1], shape[:1] + shape[2:], generator=random)


def one_step(loss, logits, target, clock=time.perf_counter) -> float:
    logits.grad = None
    start = clock()
    loss(logits, target).backward()
    return clock() - start


def interleaved(contestants, logits, target, seconds: float, clock, least: int = 9) -> dict[str, list[float]]:
    """Step times, the contestants taking turns in random order, so that none always follows the same one."""
    names = list(contestants)
    for name in names:
        for _ in range(3):
            one_step(contestants[name], logits, target)
    times: dict[str, list[float]] = {name: [] for name in names}
    shuffle = random.Random(0)
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times[names[0]]) < least:
        for name in shuffle.sample(names, len(names)):
            times[name].append(one_step(contestants[name], logits, target, clock))
    return times


def without_numba(loss):
    """The same loss along the pure-torch path."""

    def call(logits, target):
        from metricfit import fast

        known, fast.compiled_loops = fast.compiled_loops, lambda: None
        try:
            return loss(logits, target)
        finally:
            fast.compiled_loops = known

    return call


def plainly(loss):
    """The same loss along the plain formulas."""

    def call(logits, target):
        from metricfit import fast

        known, fast.metric_loss = fast.metric_loss, lambda *_, **__: None
        try:
            return loss(logits, target)
        finally:
            fast.metric_loss = known

    return call


def ratios(seconds: float, clock: str, shapes: list[tuple[int, ...]]) -> None:
    contestants = {"cross_entropy": F.cross_entropy, "f1": MetricLoss("f1"), "mcc": MetricLoss("mcc")}
    contestants |= {f"{name}, without numba": without_numba(MetricLoss(name)) for name in ("f1", "mcc")}
    rows = [row for shape in shapes for row in compared(contestants, *batch(shape), seconds, clock)]
    write("ratios.csv", rows)


def options(seconds: float, clock: str) -> None:
    """One logit, and what is mixed in; also along the plain formulas."""
    rows = []
    for shape in ((1024,), (65536,), (1024, 2), (1024, 10), (65536, 10)):
        task = "binary" if len(shape) == 1 else "multiclass"
        losses = {
            "f1": MetricLoss("f1", task=task),
            "mcc + cross-entropy": MetricLoss("mcc", task=task, cross_entropy=0.5),
            "f1 + weighted cross-entropy, memory": MetricLoss(
                "f1", task=task, cross_entropy=0.5, balance="sqrt", memory=0.9
            ),
        }
        contestants = {"cross_entropy": F.cross_entropy, **losses}
        contestants |= {f"{name}, plain": plainly(loss) for name, loss in losses.items()}
        logits, target = batch(shape if len(shape) > 1 else (*shape, 2))
        if task == "binary":
            contestants["cross_entropy"] = F.binary_cross_entropy_with_logits
            logits, target = logits[:, 0].detach().clone().requires_grad_(), target.float()
        rows += compared(contestants, logits, target, seconds, clock)
    write("options.csv", rows)


def compared(contestants, logits, target, seconds: float, clock: str) -> list[dict[str, object]]:
    """The first of the contestants is the reference."""
    times = interleaved(contestants, logits, target, seconds, CLOCKS[clock])
    base = times[next(iter(contestants))]
    rows = []
    for name in contestants:
        quotients = [mine / theirs for mine, theirs in zip(times[name], base, strict=True)]
        low, middle, high = statistics.quantiles(quotients, n=4)
        rows.append({
            "shape": "x".join(map(str, logits.shape)), "loss": name, "repetitions": len(base),
            "milliseconds": f"{statistics.median(times[name]) * 1e3:.4g}", "ratio": f"{middle:.3f}",
            "quartile_1": f"{low:.3f}", "quartile_3": f"{high:.3f}",
            "against_fast_level": f"{statistics.median(times[name]) / fast_level(base):.3f}",
            "fast_against_fast": f"{fast_level(times[name]) / fast_level(base):.3f}", "clock": clock, **machine(),
        })  # fmt: skip
        print(*list(rows[-1].values())[:9], sep="\t", flush=True)
    return rows


def fast_level(times: list[float]) -> float:
    """The median of the fastest fifth of the steps: memory is warm there."""
    return statistics.median(sorted(times)[: max(1, len(times) // 5)])


def write(name: str, rows) -> None:
    with (HERE / name).open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def read(name: str) -> list[dict[str, str]]:
    with (HERE / name).open() as file:
        return list(csv.DictReader(file))


def naive_f1(logits, target):
    """One-hot rows and a matrix product, as it is often written."""
    p = logits.softmax(1)
    truth = F.one_hot(target, logits.shape[1]).to(p.dtype)
    matrix = truth.T @ p
    tp = matrix.diagonal()
    return 1 - (2 * tp / (matrix.sum(0) + matrix.sum(1)).clamp_min(1e-12)).mean()


def rivals() -> list[str]:
    """Names of losses and matrices; libraries that are not installed are left out."""
    return [name for group in LIBRARIES.values() for name in group()]


def rival(name: str):
    """The loss or matrix of a name; only its own library is imported."""
    return LIBRARIES.get(name.split()[0], plain)()[name]


def plain():
    return {
        "cross_entropy": F.cross_entropy, "metricfit f1": MetricLoss("f1"), "metricfit mcc": MetricLoss("mcc"),
        "naive one-hot": naive_f1,
    }  # fmt: skip


def of_torchmetrics():
    if importlib.util.find_spec("torchmetrics") is None:
        return {}
    from torchmetrics.functional.classification import multiclass_confusion_matrix

    def matrix(logits, target):
        return multiclass_confusion_matrix(logits, target, logits.shape[1])

    return {"torchmetrics matrix (no gradient)": matrix}


def of_sklearn():
    from sklearn.metrics import confusion_matrix

    def matrix(logits, target):
        return confusion_matrix(target.numpy(), logits.detach().argmax(1).numpy())

    return {"sklearn matrix (no gradient)": matrix}


def of_smp():
    """Losses for images, of which a table is one of 1 × 1 pixels; MCC is for two classes."""
    place = importlib.util.find_spec("segmentation_models_pytorch")
    if place is None:
        return {}
    # The package itself imports its encoders and with them torchvision; the losses need none of that.
    package = types.ModuleType("segmentation_models_pytorch")
    package.__path__, package.__spec__ = list(place.submodule_search_locations or []), place
    sys.modules.setdefault("segmentation_models_pytorch", package)
    from segmentation_models_pytorch.losses import DiceLoss, JaccardLoss, MCCLoss, TverskyLoss

    found = {f"smp {kind.__name__}": as_images(kind("multiclass")) for kind in (DiceLoss, JaccardLoss, TverskyLoss)}
    of_two = MCCLoss()
    found["smp MCCLoss"] = lambda logits, target: of_two(
        (logits[:, 1:] - logits[:, :1]).sigmoid()[..., None, None], (target == 1).float()[:, None, None, None]
    )
    return found


def of_monai():
    if importlib.util.find_spec("monai") is None:
        return {}
    from monai.losses import DiceLoss, TverskyLoss

    options = {"to_onehot_y": True, "softmax": True}
    found = {"Dice": DiceLoss(**options), "Jaccard": DiceLoss(**options, jaccard=True)}
    found["Tversky"] = TverskyLoss(**options)
    return {f"monai {name}": as_images(loss, channel=True) for name, loss in found.items()}


def as_images(loss, channel=False):
    def call(logits, target):
        labels = target[:, None, None]
        return loss(logits[:, :, None, None], labels[:, None] if channel else labels)

    return call


def of_libauc():
    if importlib.util.find_spec("libauc") is None:
        return {}
    from libauc.losses import AUCMLoss

    auc = AUCMLoss(device="cpu")
    return {"LibAUC AUCM": lambda logits, target: auc(logits[:, 1:].sigmoid(), (target[:, None] == 1).float())}


def of_ap_perf():
    if importlib.util.find_spec("ap_perf") is None:
        return {}
    from ap_perf import MetricLayer, PerformanceMetric

    class F1(PerformanceMetric):
        def define(self, cells):
            return 2 * cells.tp / (cells.ap + cells.pp)

    metric = F1()
    metric.initialize()
    metric.enforce_special_case_positive()
    metric.set_cs_special_case_positive(True)
    layer = MetricLayer(metric)
    return {"ap_perf F1": lambda logits, target: layer(logits[:, 1] - logits[:, 0], (target == 1).float())}


LIBRARIES = {
    "": plain, "torchmetrics": of_torchmetrics, "sklearn": of_sklearn, "smp": of_smp, "monai": of_monai,
    "LibAUC": of_libauc, "ap_perf": of_ap_perf,
}  # fmt: skip
"""By the first word of a loss's name."""


def step_of(loss, logits, target):
    """A function that takes one step; evaluation alone where the loss has no gradient."""

    def step() -> None:
        logits.grad = None
        value = loss(logits, target)
        if isinstance(value, torch.Tensor) and value.requires_grad:
            value.backward()

    return step


def measure_memory(name: str, shapes: list[tuple[int, int]]) -> None:
    """Memory of a step of each size beyond the batch itself, in a process of its own; printed for the parent."""
    loss = rival(name)
    for shape in shapes:
        logits, target = batch(shape)
        step = step_of(loss, logits, target)
        step()
        logits.grad = None
        print(peak_memory(step))


def measure_times(name: str, shapes: list[tuple[int, int]], seconds: float, clock: str) -> None:
    """Times of steps of all sizes, and of cross-entropy at the same, taking turns in random order; printed.

    One line a round: the loss at each size, then cross-entropy.
    """
    batches, loss = [batch(shape) for shape in shapes], rival(name)
    steps = [step_of(loss, *each) for each in batches] + [step_of(F.cross_entropy, *each) for each in batches]
    for step in steps:
        step()
    shuffle, now = random.Random(0), CLOCKS[clock]
    end, rounds = time.perf_counter() + seconds, 0
    while time.perf_counter() < end or rounds < LEAST_ROUNDS:
        times = [0.0] * len(steps)
        for i in shuffle.sample(range(len(steps)), len(steps)):
            start = now()
            steps[i]()
            times[i] = now() - start
        print(*times)
        rounds += 1


def peak_memory(step) -> int:
    """Largest resident memory during a step beyond that before it, from the kernel's own record (Linux)."""
    status, reset = Path("/proc/self/status"), Path("/proc/self/clear_refs")

    def entry(name: str) -> int:
        return next(int(line.split()[1]) * 1024 for line in status.read_text().splitlines() if line.startswith(name))

    try:
        ctypes.CDLL("libc.so.6").malloc_trim(0)  # what earlier steps freed must not be reused unseen
        reset.write_text("5")
    except OSError:
        return -1
    before = entry("VmRSS")
    step()
    return entry("VmHWM") - before


def growth(seconds: float, clock: str) -> None:
    usual = {"n": [(n, 32) for n in (8192, 32768, 131072, 524288)], "d": [(4096, d) for d in (32, 128, 512, 2048)]}
    special = {
        "smp MCCLoss": {"n": [(n, 2) for n in (8192, 32768, 131072, 524288)]},
        "LibAUC AUCM": {"n": [(n, 2) for n in (8192, 32768, 131072, 524288)]},
        "ap_perf F1": {"n": [(n, 2) for n in (25, 50, 100, 200)]},  # a step of 400 samples takes 20 s
    }
    rows = []
    for name in rivals():
        for over, shapes in special.get(name, usual).items():
            sizes = [n if over == "n" else d for n, d in shapes]
            common = ["--name", name, "--threads", str(torch.get_num_threads())]
            common += ["--shapes", *(f"{n}x{d}" for n, d in shapes)]
            memory = [int(line) for line in child("memory", *common)]
            lines = child("times", *common, "--clock", clock, "--seconds", str(seconds))
            rounds = [[float(value) for value in line.split()] for line in lines]
            mine, usual_loss = [r[: len(sizes)] for r in rounds], [r[len(sizes) :] for r in rounds]
            slopes = quartiles([exponent(sizes, times) for times in mine])
            ratios_of = [[a / b for a, b in zip(x, y, strict=True)] for x, y in zip(mine, usual_loss, strict=True)]
            rows.append({
                "loss": name, "over": over, "sizes": " ".join(map(str, sizes)),
                **dict(zip(("quartile_1", "time_exponent", "quartile_3"), (f"{s:.2f}" for s in slopes), strict=True)),
                "memory_exponent": f"{exponent(sizes, memory):.2f}" if min(memory) > 0 else "",
                "milliseconds": " ".join(f"{quartiles(column)[1] * 1e3:.3g}" for column in zip(*mine, strict=True)),
                "over_cross_entropy": " ".join(f"{quartiles(c)[1]:.3g}" for c in zip(*ratios_of, strict=True)),
                "megabytes": " ".join(f"{m / 1e6:.3g}" for m in memory), "rounds": len(rounds), "clock": clock,
                **machine(),
            })  # fmt: skip
            print(*list(rows[-1].values())[:10], sep="\t", flush=True)
    write("growth.csv", rows)


def child(what: str, *arguments: str) -> list[str]:
    """The lines that this script prints in a process of its own; what libraries print at their import is left out."""
    command = [sys.executable, __file__, what, *arguments]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    return [line for line in lines if line and (line[0].isdigit() or line[0] == "-")]


def quartiles(values) -> list[float]:
    values = list(values)
    return statistics.quantiles(values, n=4, method="inclusive") if len(values) > 1 else values * 3


def exponent(sizes, values) -> float:
    """The slope of log value over log size, without the smallest size, which is mostly fixed cost."""
    return statistics.linear_regression([math.log(s) for s in sizes[1:]], [math.log(v) for v in values[1:]]).slope


def plots() -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    rows = read("ratios.csv")
    shapes = list(dict.fromkeys(row["shape"] for row in rows))
    losses = [name for name in dict.fromkeys(row["loss"] for row in rows) if name != "cross_entropy"]
    figure, axes = plt.subplots(figsize=(9, 4))
    width = 0.8 / len(losses)
    for i, name in enumerate(losses):
        mine = [next(row for row in rows if (row["shape"], row["loss"]) == (shape, name)) for shape in shapes]
        middle = [float(row["ratio"]) for row in mine]
        spread = [
            [m - float(row["quartile_1"]) for m, row in zip(middle, mine, strict=True)],
            [float(row["quartile_3"]) - m for m, row in zip(middle, mine, strict=True)],
        ]
        places = [j + (i - (len(losses) - 1) / 2) * width for j in range(len(shapes))]
        axes.bar(places, middle, width, yerr=spread, label=name, error_kw={"elinewidth": 0.8})
    for level, text in ((1.5, "1.5 ×"), (3, "3 ×"), (6, "6 ×")):
        axes.axhline(level, color="grey", linewidth=0.8, linestyle="--")
        axes.annotate(text, (len(shapes) - 0.55, level), fontsize=8, va="bottom")
    axes.set_yscale("log")
    axes.set_yticks([0.25, 0.5, 1, 2, 4, 8], ["0.25", "0.5", "1", "2", "4", "8"])
    axes.minorticks_off()
    axes.set_ylim(top=16)
    axes.set_xticks(range(len(shapes)), shapes, fontsize=8)
    axes.set_ylabel("time / F.cross_entropy's")
    axes.set_title("Forward and backward, median and quartiles")
    axes.legend(fontsize=8, ncols=4, loc="upper center")
    figure.tight_layout()
    IMAGES.mkdir(parents=True, exist_ok=True)
    figure.savefig(IMAGES / "speed-ratios.png", dpi=120)
    if not (HERE / "growth.csv").exists():
        return
    rows = read("growth.csv")
    figure, panels = plt.subplots(2, 2, figsize=(10, 8.5))
    names = list(dict.fromkeys(row["loss"] for row in rows))
    colours = dict(zip(names, plt.get_cmap("tab20").colors, strict=False)) | {"cross_entropy": "black"}
    for row in rows:
        column, name = (0 if row["over"] == "n" else 1), row["loss"]
        sizes = [int(size) for size in row["sizes"].split()]
        for line, key in enumerate(("milliseconds", "megabytes")):
            values = [float(value) for value in row[key].split()]
            ours = name.startswith(("metricfit", "cross_entropy"))
            style = {"color": colours[name], "linewidth": 2.5 if ours else 1.2, "zorder": 3 if ours else 2}
            panels[line][column].loglog(sizes, values, marker="o" if ours else ".", label=name, **style)
            panels[line][column].set_ylabel(key)
            panels[line][column].set_xlabel(
                "samples, 32 classes (2 for smp MCCLoss, AUCM, ap_perf)" if column == 0 else "classes, 4,096 samples"
            )
    handles, labels = panels[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, fontsize=8, ncols=4, loc="lower center")
    figure.tight_layout(rect=(0, 0.1, 1, 1))
    figure.savefig(IMAGES / "speed-growth.png", dpi=120)


def tables() -> None:
    """Write the tables between the marks of docs/speed.md."""
    page = PAGE.read_text()
    made = {"ratios": table_of_ratios(), "growth": table_of_growth(), "epochs": table_of_epochs()}
    for name, lines in {**made, "fits": table_of_fits()}.items():
        begin, end = f"<!-- table: {name} -->\n", f"<!-- end of table: {name} -->"
        if page.count(begin) != 1 or page.count(end) != 1:
            raise SystemExit(f"{PAGE}: expected one mark {begin.strip()} and one {end}; put both around the table.")
        head, rest = page.split(begin)
        page = head + begin + "\n" + "\n".join(lines) + "\n\n" + end + rest.split(end)[1]
    PAGE.write_text(page)


def table_of_ratios() -> list[str]:
    """One line per shape: macro F1 with and without numba at both levels, and the price that is accepted."""
    rows = {(row["shape"], row["loss"]): row for row in read("ratios.csv")}
    lines = [
        "| logits | fastest fifths | our median / its fast level | price | without numba: fastest fifths "
        "| our median / its fast level | price |",
        "|---|---|---|---|---|---|---|",
    ]
    for shape in dict.fromkeys(shape for shape, _ in rows):
        sizes = [int(size) for size in shape.split("x")]
        samples = math.prod(sizes) // sizes[1]
        cells = [" × ".join(f"{size:,}" for size in sizes) + (" (masks)" if len(sizes) > 2 else "")]
        for loss, price in (("f1", "1.5"), ("f1, without numba", "3" if samples >= 65536 else "6")):
            row = rows[shape, loss]
            cells += [f"{float(row[key]):.2f}" for key in ("fast_against_fast", "against_fast_level")] + [price]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def table_of_growth() -> list[str]:
    """One line per loss: exponents over samples and classes, and the time beside cross-entropy's at the largest."""
    rows = {(row["loss"], row["over"]): row for row in read("growth.csv")}
    lines = [
        "| | time over n | memory over n | time over d | memory over d | time / cross-entropy's at the largest n "
        "| at the largest d |",
        "|---|---|---|---|---|---|---|",
    ]
    for loss in dict.fromkeys(loss for loss, _ in rows):
        found = [rows.get((loss, over)) for over in ("n", "d")]
        cells = [loss]
        for row in found:
            spread = "{time_exponent} ({quartile_1}–{quartile_3})".format(**row) if row else ""
            cells += [spread, row["memory_exponent"] if row else ""]
        cells += [row["over_cross_entropy"].split()[-1] if row else "" for row in found]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def table_of_epochs() -> list[str]:
    """One line per metric and number of networks."""
    lines = ["| | ratio | quartiles |", "|---|---|---|"]
    for row in read("fit.csv"):
        if row["what"].startswith("an epoch"):
            low, high = (f"{float(row[key]):.2f}" for key in ("lower_quartile", "upper_quartile"))
            lines.append(f"| {row['what']} | {float(row['median']):.2f} | {low} to {high} |")
    return lines


def table_of_fits() -> list[str]:
    """One line per network and batch: MLPClassifier's time over ours, for five networks together / for one."""
    values = {row["what"]: float(row["median"]) for row in read("fit.csv")}
    kinds = [f"{kind}, {how}" for kind in ("float64", "float32") for how in ("validated", "plain")]
    lines = [f"| `MLPClassifier` over ours | {' | '.join(kinds)} |", "|---|---|---|---|---|"]
    for hidden in ((128, 64), (32, 16)):
        for batch_size in (512, 200):
            cells = [f"{hidden[0]}-{hidden[1]}, batch {batch_size}"]
            for kind in kinds:
                start = f"MLPClassifier {hidden} ({kind}), batch {batch_size} / "
                both = (values[start + end] for end in ("a network of five trained together", "one network"))
                cells.append(" / ".join(f"{value:.1f}" for value in both))
            lines.append(f"| {' | '.join(cells)} |")
    return lines


def main() -> None:
    global HERE, PAGE, IMAGES
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["ratios", "options", "growth", "plots", "tables", "memory", "times"])
    parser.add_argument("--seconds", type=float, default=20.0, help="per shape (ratios) or loss (growth)")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--clock", choices=list(CLOCKS), default="wall", help="cpu: with 1 thread, on a busy machine")
    parser.add_argument("--name", help="of the loss (memory and times, which growth calls)")
    parser.add_argument("--shapes", nargs="+", default=[], help="of the batches, as 8192x32; for ratios all")
    parser.add_argument("--folder", type=Path, help="of the CSV files, speed.md and the pictures, for a trial")
    arguments = parser.parse_args()
    if arguments.folder:
        HERE, PAGE, IMAGES = arguments.folder, arguments.folder / "speed.md", arguments.folder
    torch.set_num_threads(arguments.threads)
    shapes = [tuple(int(part) for part in shape.split("x")) for shape in arguments.shapes]
    if arguments.what == "memory":
        measure_memory(arguments.name, shapes)
    elif arguments.what == "times":
        measure_times(arguments.name, shapes, arguments.seconds, arguments.clock)
    elif arguments.what == "plots":
        plots()
    elif arguments.what == "tables":
        tables()
    elif arguments.what == "options":
        options(arguments.seconds, arguments.clock)
    elif arguments.what == "growth":
        growth(arguments.seconds, arguments.clock)
    else:
        ratios(arguments.seconds, arguments.clock, shapes or SHAPES)


if __name__ == "__main__":
    main()
