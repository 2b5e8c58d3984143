"""Tables and texts with measured figures on README and pages, made from the files in benchmarks/results.

``python -m tests.docs.figures`` writes them between comments that name them; a test compares the pages.
"""

from __future__ import annotations

import csv
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from statistics import geometric_mean

from tests.docs.class_chart import RUN
from tests.support.places import BENCHMARKS, DOCS, ROOT

RESULTS = BENCHMARKS / "results"
PAGES = (ROOT / "README.md", DOCS / "same_hash.md", DOCS / "performance.md", DOCS / "training_step.md")
MADE = re.compile(r"(<!-- made by tests/docs/figures.py: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
HASHES = ("one_hash.csv", "one_hash_xeon.csv", "one_hash_intel.csv", "one_hash_arm.csv")
TITLES = {  # by the name of a network in CSV files
    "resnet18": "ResNet-18", "resnet50": "ResNet-50", "vgg11": "VGG-11", "mobilenet_v2": "MobileNetV2",
    "mobilenet_v3": "MobileNetV3", "dcgan": "DCGAN", "unet": "U-Net", "wide_resnet": "Wide-ResNet-16-4",
    "efficientnet_b0": "EfficientNet-B0", "convnext_t": "ConvNeXt-T", "shufflenet_v2": "ShuffleNetV2",
    "diffusion": "diffusion U-Net with attention", "audio": "network of sound, 1-D",
    "vit": "vision transformer", "speech": "recognizer of speech",
}  # fmt: skip
WORDS = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    "thirteen", "fourteen",
)  # fmt: skip
PASSES = {"FWD_D": "forward pass", "BWD_D": "data gradient", "BWD_W": "weight gradient"}
Row = dict[str, str]


def rows_of(*names: str) -> list[Row]:
    return [row for name in names for row in csv.DictReader((RESULTS / name).read_text(encoding="utf-8").splitlines())]


def table(*rows: tuple[str, ...]) -> str:
    lines = ["| " + " | ".join(cells) + " |" for cells in rows]
    return "\n".join([lines[0], "|---" * len(rows[0]) + "|", *lines[1:]]) + "\n"


# -- fingerprints ------------------------------------------------------------------------------------------------------


def hashes(page: Path) -> str:
    """Return a table of the fingerprints of the training in same_hash.md, and a count of all fingerprints.

    README has one row per processor, that of its widest instruction set, so that a stranger understands it at once.
    """
    rows, brief = rows_of(*HASHES), page.name == "README.md"
    titles = {"processor": "processor"} if brief else {"processor": "processor", "aten": "`ATEN_CPU_CAPABILITY`"}
    lines: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        lines.setdefault(tuple(row[column] for column in titles), []).append(row)
    threads = ("1", "3") if brief else ("1", "2", "3")
    alone = (f"PyTorch, {number} thread{'s' * (number != '1')}" for number in threads)
    shown: list[tuple[str, ...]] = [(*titles.values(), *alone, "with `same_bits()`, any threads")]
    for key, each in lines.items():
        widest = [row for row in each if (row["aten"], row["format"]) == (each[0]["aten"], "contiguous")]
        plain = (f"`{row['plain'][:8]}`" for row in widest if row["threads"] in threads)
        (ours,) = {row["same_bits"] for row in each}
        shown.append((*key, *plain, f"`{ours[:8]}`"))
    differ = len({row["plain"] for row in rows})
    assert len({row["same_bits"] for row in rows}) == 1
    if brief:
        times = [ratio for ratio, _ in steps()]
        return table(*shown) + (
            f"\nIn {len(rows)} runs with these and other settings, PyTorch alone gave {differ} hashes, and\n"
            f"`same_bits()` gave one. On average, a training step takes {geometric_mean(times):.2f} times as long\n"
            f"as with PyTorch alone, and at most {max(times):.2f} times.\n"
        )
    versions = {row["torch"].split("+")[0]: row["processor"].partition(" (")[0] for row in rows}
    (version, _), (other, where) = versions.items()
    return table(*shown) + (
        f"\nThe tensors in this table are contiguous. In all {len(rows)} runs, including those in `channels_last`,\n"
        f"PyTorch alone gave {differ} hashes, and `same_bits()` gave one (PyTorch {version}, but {other} on {where}).\n"
    )


def networks(page: Path) -> str:
    """Return in how many settings each network has one fingerprint, and how many one has with PyTorch alone."""
    found: dict[tuple[str, str], list[Row]] = {}
    for row in rows_of("step_bits.csv"):
        found.setdefault((row["network"], row["optimizer"]), []).append(row)
    assert all(len({row["fingerprint"] for row in each}) == 1 for each in found.values())
    (settings,) = {len(each) for each in found.values()}
    plain = rows_of("step_bits_plain.csv")
    assert len(plain) == settings
    processors = sorted({row["processor"].partition(" (")[0] for row in plain + rows_of("step_bits.csv")})
    count = len({network for network, _ in found})
    alone = len({row["fingerprint"] for row in plain})
    return (
        f"We trained {count} networks, among them a ResNet-50, a vision transformer with fused attention, and a\n"
        f"recognizer of speech with LSTM and CTC loss, for five steps in {settings} settings of threads, instruction\n"
        f"sets and memory formats on an {' or '.join(processors)}.\n"
        f"Each network has the same fingerprint in all settings. With PyTorch alone, a Wide-ResNet has {alone}.\n"
    )


# -- times and memory --------------------------------------------------------------------------------------------------


def steps(file: str = "step_times.csv") -> list[tuple[float, str]]:
    """Return each network's time of a training step with same_bits, as a multiple of PyTorch's, and its name."""
    return [(float(row["to_torch"]), TITLES[row["network"]]) for row in rows_of(file)]


def layers() -> list[tuple[float, str]]:
    """Return the time of each layer in the largest run, as a multiple of PyTorch's, and its name."""
    return [(1 / float(row["torch_ratio"]), f"{row['suite']} {PASSES[row['direction']]}") for row in rows_of(RUN)]


def memory() -> list[tuple[float, str]]:
    return [
        (float(row["same_bits_mib"]) / float(row["torch_mib"]), TITLES[row["network"]])
        for row in rows_of("step_memory.csv")
    ]


COSTS: Mapping[str, Callable[[], list[tuple[float, str]]]] = {
    "time of a training step": steps,
    "time of a single convolution or gradient": layers,
    "peak memory of training": memory,
}


def costs(page: Path) -> str:
    """Return a table of times and memory as multiples of PyTorch's, and the share of single layers that lose time."""
    shown = [("relative to PyTorch", "mean", "worst case")]
    for title, measured in COSTS.items():
        found = measured()
        worst, name = max(found)
        mean = geometric_mean(ratio for ratio, _ in found)
        shown.append((title, f"{mean:.2f}", f"{worst:.2f} ({name})"))
    both: dict[str, list[Row]] = {}
    for row in rows_of("step_times.csv"):
        both.setdefault(row["network"], []).append(row)
    ours, alone = (
        [min(float(row[column]) for row in each) for each in both.values()] for column in ("same_bits_ms", "torch_ms")
    )
    step = geometric_mean(ours) / geometric_mean(alone)
    ratios = [ratio for ratio, _ in layers()]
    slower = sum(ratio > 1 for ratio in ratios) / len(ratios)
    return (
        f"{table(*shown)}\nBoth libraries have the same memory format here. If each has its faster one, the mean of\n"
        f"a step is {step:.2f}. Of {len(ratios):,} single calls, {slower:.0%} take longer than PyTorch's.\n"
    ).replace("%", " %")


def step_times(page: Path) -> str:
    """Return a table of the times of training steps with same_bits, as multiples of PyTorch's."""
    rows: dict[str, dict[str, str]] = {}
    for row in rows_of("step_times.csv"):
        rows.setdefault(row["network"], {})[row["format"]] = f"{float(row['to_torch']):.2f}"
    shown = [("network", "contiguous", "channels last")]
    for name, each in rows.items():
        last = "" if name == "audio" else each["channels_last"]  # a network of one axis has one format
        shown.append((TITLES[name], each["contiguous"], last))
    return table(*shown)


def range_of_steps(page: Path) -> str:
    """Return the range of the times of training steps with same_bits, and of the memory."""
    of_xeon = steps("step_times_xeon.csv")
    times, sizes, others = ([ratio for ratio, _ in found] for found in (steps(), memory(), of_xeon))
    names, names_of_xeon = ({name for _, name in found} for found in (steps(), of_xeon))
    assert names_of_xeon < names
    all_of_them, some = WORDS[len(names)], WORDS[len(names_of_xeon)]
    mean, mean_of_xeon = geometric_mean(times), geometric_mean(others)
    return (
        f"Many training steps become faster, because convgrad's convolutions, norms and activations are faster than\n"
        f"PyTorch's. However, other steps become slower: in these {all_of_them} networks, a step takes\n"
        f"{min(times):.2f} to {max(times):.2f} times as long as with PyTorch alone on a Zen 4 processor (mean\n"
        f"{mean:.2f}), and {min(others):.2f} to {max(others):.2f} times on an Intel Xeon ({some} of them,\n"
        f"mean {mean_of_xeon:.2f}). The peak memory of a process is {min(sizes):.2f} to {max(sizes):.2f} times\n"
        f"PyTorch's.\n"
    )


def slow_operators(page: Path) -> str:
    """Return the operators that same_bits slows down most, by their mean times as multiples of PyTorch's."""
    times: dict[str, list[float]] = {}
    for row in rows_of("step_operators.csv"):
        times.setdefault(row["operator"], []).append(1 / float(row["ratio"]))
    slowest = sorted(times, key=lambda name: -geometric_mean(times[name]))[:4]
    lines = [(name, f"{geometric_mean(times[name]):.1f}", f"{max(times[name]):.1f}") for name in slowest]
    recurrent = [time for name in ("LSTM and gradients", "GRU and gradients") for time in times[name]]
    sentence = f"LSTM and GRU layers of 100 steps take {min(recurrent):.1f} to {max(recurrent):.1f} times as long.\n"
    small, updates = (
        next(row for row in rows_of("step_operators.csv") if row["operator"] == name and row["threads"] == "2")
        for name in ("step of an MLP", "AdamW of 160 parameters")
    )
    ours, theirs = ([f"{float(row[column]):.1f} ms" for row in (small, updates)] for column in ("ours_ms", "torch_ms"))
    sentence += (
        f"With two threads, a step of an MLP with three layers and a batch of 64 takes {ours[0]},\n"
        f"and {theirs[0]} with PyTorch alone. A step of AdamW with 160 parameters of 4,096 numbers takes\n"
        f"{ours[1]}, and {theirs[1]} with PyTorch alone.\n"
    )
    return f"{table(('operator', 'mean', 'worst case'), *lines)}\n{sentence}"


def chart(page: Path) -> str:
    """Return the picture of training steps, with its figures in words."""
    rows = [row for row in rows_of("torch_steps.csv") if row["format"] == "contiguous"]
    ranges = []
    for column in ("convgrad_ratio", "max_error_64_ratio"):
        low, high = (which(rows, key=lambda row: float(row[column])) for which in (min, max))
        ends = (f"{float(row[column]):.2f} ({TITLES[row['network']]})" for row in (low, high))
        ranges.append(" to ".join(ends))
    words = (
        f"Bars for {WORDS[len(rows)]} networks: the speed of a training step compared with PyTorch, {ranges[0]} "
        f"by default and {ranges[1]} with max_error=64."
    )
    where = (DOCS / "pictures" / "steps.svg").relative_to(page.parent)
    return f"![{words}]({where})\n"


TEXTS: Mapping[str, Callable[[Path], str]] = {
    each.__name__: each for each in (hashes, networks, costs, step_times, range_of_steps, slow_operators, chart)
}


def names(page: Path) -> Iterator[str]:
    """Return the names of the texts on a page."""
    return (found[2] for found in MADE.finditer(page.read_text(encoding="utf-8")))


def made(page: Path) -> str:
    """Return a page with its tables and texts made again."""
    text = page.read_text(encoding="utf-8")
    return MADE.sub(lambda found: f"{found[1]}\n{TEXTS[found[2]](page)}\n{found[3]}", text)


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(made(page), encoding="utf-8")
        print(f"wrote {', '.join(names(page))} of {page.relative_to(ROOT)}", file=sys.stderr)
