"""Measure what it costs to compute from files in pieces: beside reading them alone, and the plain call on their maps.

python benchmarks/scale.py -o scale.csv --gigabytes 4

Operands lie in files of a temporary folder, by default under the present one. A round takes one sample of each, so that
a slow second hurts all alike: of reading, of the plain call on the maps, of pieces in each memory. With --cold each
sample begins with the files out of the system's cache, where it can be asked for that. A figure is the median of the
rounds; all results are held to be of the same bits.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from rows import asked, write_rows

import convgrad
from convgrad import scale
from convgrad.host import cpu_model

STEP_BYTES = 32 << 20
MEMORY = ("1GB", "256MB", "64MB", "32MB")
# name: operator, positions, channels of the operands, attributes
LAYERS: dict[str, tuple[str, tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "3x3 256": ("ConvolutionBackwardWeights", (14, 14), (256, 256),
                {"weights_shape": (3, 3, 256, 256), "auto_pad": "same_upper"}),
    "1x1 64": ("ConvolutionBackwardWeights", (56, 56), (64, 64), {"weights_shape": (1, 1, 64, 64)}),
    "3x3 depthwise 128": ("ConvolutionBackwardWeights", (56, 56), (128, 128),
                          {"weights_shape": (3, 3, 1, 128), "groups": 128, "auto_pad": "same_upper"}),
    "bias 64": ("BiasAddBackward", (56, 56), (64,), {}),
    "volume 16": ("ConvolutionBackwardWeights", (128, 128, 128), (16, 16),
                  {"weights_shape": (3, 3, 3, 16, 16), "auto_pad": "same_upper"}),
}  # fmt: skip


def mapped(path: Path, shape: tuple[int, ...]) -> Any:
    """Return a map of a file of made-up numbers."""
    made = np.lib.format.open_memmap(path, "w+", np.float32, shape)
    flat = made.reshape(-1)
    some = np.random.default_rng(0).standard_normal(STEP_BYTES // 4, np.float32)
    for begin in range(0, flat.size, some.size):
        flat[begin : begin + some.size] = some[: flat.size - begin]
    made.flush()
    del made, flat
    return np.load(path, mmap_mode="r")


def out_of_cache(paths: Sequence[Path]) -> None:
    """Have the system forget what it holds of files."""
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def read_alone(paths: Sequence[Path]) -> None:
    room = np.empty(STEP_BYTES, np.uint8)
    for path in paths:
        with path.open("rb", buffering=0) as file:
            while file.readinto(room):
                pass


def ratio(some: Sequence[float], others: Sequence[float]) -> float:
    """Return the median of the rounds' ratios."""
    return median(a / b for a, b in zip(some, others, strict=True))


def measured(name: str, folder: Path, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Return the rows of a layer."""
    operator, positions, channels, attributes = LAYERS[name]
    images = max(1, int(options.gigabytes * 1e9 / (4 * np.prod(positions) * sum(channels))))
    paths = [folder / f"{n}.npy" for n in range(len(channels))]
    given = [mapped(path, (images, *positions, c)) for path, c in zip(paths, channels, strict=True)]
    waited: dict[str, list[float]] = {memory: [] for memory in options.memory}

    def plain() -> Any:
        spread = {"strides": [1] * len(positions), "dilations": [1] * len(positions)} if attributes else {}
        return convgrad.run(operator, *given, threads=options.threads, **spread | attributes)

    def in_pieces(memory: str) -> Any:
        told: list[scale.Progress] = []
        made = scale.run(operator, *given, memory=memory, threads=options.threads, progress=told.append, **attributes)
        waited[memory].append(told[-1].waiting_s)
        return made

    calls: dict[str, Callable[[], Any]] = {"reading alone": lambda: read_alone(paths), "plain, on maps": plain}
    calls |= {memory: lambda memory=memory: in_pieces(memory) for memory in options.memory}  # type: ignore[misc]
    seconds: dict[str, list[float]] = {call: [] for call in calls}
    bits = set()
    for _ in range(options.rounds):
        for call, work in calls.items():
            if options.cold:
                out_of_cache(paths)
            begin = time.perf_counter()
            made = work()
            seconds[call].append(time.perf_counter() - begin)
            bits |= set() if made is None else {made.tobytes()}
    assert len(bits) == 1, name
    rows = []
    for call in calls:
        rows.append({
            "layer": name, "images": images, "gigabytes": f"{sum(a.nbytes for a in given) / 1e9:.3g}",
            "cold": options.cold, "threads": options.threads, "what": call, "piece": "", "pieces": "", "peak_mb": "",
            "seconds": f"{median(seconds[call]):.4g}", "waited_s": "",
            "of_reading": f"{ratio(seconds[call], seconds['reading alone']):.3f}",
            "of_plain": f"{ratio(seconds[call], seconds['plain, on maps']):.3f}", "processor": cpu_model(),
        })  # fmt: skip
        if call in waited:
            plan = scale.plan(operator, *given, memory=call, threads=options.threads, **attributes)
            rows[-1] |= {"piece": str(plan.cut), "pieces": plan.pieces, "peak_mb": f"{plan.peak_bytes / 1e6:.3g}"}
            rows[-1]["waited_s"] = f"{median(waited[call]):.3g}"
        print(" ".join(str(value) for key, value in rows[-1].items() if key != "processor"), flush=True)
    return rows


def main() -> None:
    """Print the figures; write them as CSV where asked."""
    parser = argparse.ArgumentParser(description="Measure what it costs to compute from files in pieces.")
    parser.add_argument("--gigabytes", type=float, default=2.0)
    parser.add_argument("--memory", nargs="*", default=MEMORY)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--layers", nargs="*", default=[*LAYERS])
    parser.add_argument("--folder", type=Path, default=Path())
    parser.add_argument("--cold", action="store_true", help="files begin out of the system's cache")
    options = asked(parser)
    print(cpu_model())
    rows: list[dict[str, Any]] = []
    for name in options.layers:
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            rows += measured(name, Path(folder), options)
    if options.output:
        write_rows(options.output, rows)


if __name__ == "__main__":
    main()
