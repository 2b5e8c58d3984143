"""Measure the plain call on maps of files beside the call in pieces and reading the files alone.

python benchmarks/mapped.py -o mapped.csv

Cold, the system was told to forget the files before each sample; warm, they lie in its memory. A host below this system
may have kept what it forgot. A figure is the median of the rounds, in which all are measured after one another.
``disk_ratio`` are the bytes that came from the disk, by the operands' bytes.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from rows import write_rows

import convgrad.scale
from convgrad import notation
from convgrad.host import cpu_model
from convgrad.spec.geometry import Conv
from convgrad.spec.layouts import from_canonical

LAYERS = (
    "BWD_W f32 NXC mb1024ic64ih56oc64oh56kh1ph0nresnet50:2a_reduce",
    "BWD_W f32 NXC mb1024ic64ih56oc64oh56kh3ph1nresnet50:2_3x3",
    "BWD_W f32 NCX mb1024ic64ih56oc64oh56kh3ph1nresnet50:2_3x3",
)
ROUNDS, STEP_BYTES = 5, 1 << 22


def forgotten(paths: list[Path]) -> None:
    """Let the system forget files."""
    for path in paths:
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def read(paths: list[Path]) -> None:
    """Read files from their beginnings to their ends."""
    room = bytearray(STEP_BYTES)
    for path in paths:
        with path.open("rb", buffering=0) as file:
            while file.readinto(room):
                pass


def from_disk() -> int:
    """Return the bytes that this process has had from disks."""
    (line,) = (line for line in Path("/proc/self/io").read_text().splitlines() if line.startswith("read_bytes"))
    return int(line.split()[1])


def measured(text: str, threads: int, rounds: int, folder: Path, memory: str) -> list[dict[str, Any]]:
    """Return the rows of a layer."""
    (call,) = notation.calls(notation.read(text))
    problem = notation.problem(text)
    conv = problem.geometry
    assert isinstance(conv, Conv)
    paths = [folder / "src.npy", folder / "diff_dst.npy"]
    rng, lies = np.random.default_rng(0), problem.layouts[0]
    for path, shape in zip(paths, (conv.src_shape, conv.dst_shape), strict=True):
        array = np.lib.format.open_memmap(path, "w+", np.float32, from_canonical(shape, lies))
        for image in array:
            image[...] = rng.standard_normal(image.shape, np.float32)
        array.flush()
        del array, image  # files that are mapped are not forgotten
    attributes: dict[str, Any] = {"weights_shape": problem.output_shape} | dict(call.attributes)

    def maps() -> list[Any]:
        return [np.load(path, mmap_mode="r") for path in paths]

    hows: dict[str, Callable[[], Any]] = {
        "reading alone": lambda: read(paths),
        "plain call": lambda: convgrad.run(call.operator, *maps(), threads=threads, **attributes),
        "in pieces": lambda: convgrad.scale.run(call.operator, *maps(), memory=memory, threads=threads, **attributes),
    }
    assert hows["plain call"]().tobytes() == hows["in pieces"]().tobytes()
    size, found = sum(path.stat().st_size for path in paths), []
    for cold in (True, False):
        times: dict[str, list[tuple[float, float]]] = {how: [] for how in hows}
        for _ in range(rounds):
            for how, do in hows.items():
                if cold:
                    forgotten(paths)
                begin, before = time.perf_counter(), from_disk()
                do()
                times[how].append((time.perf_counter() - begin, (from_disk() - before) / size))
        for how, samples in times.items():
            seconds, disk = (median(each) for each in zip(*samples, strict=True))
            found.append({
                "layer": text.rsplit(maxsplit=1)[-1], "data_format": lies, "GB": f"{size / 1e9:.3g}",
                "threads": threads, "memory": memory if how == "in pieces" else "", "files": "cold" if cold else "warm",
                "how": how, "seconds": f"{seconds:.3f}", "disk_ratio": f"{disk:.2f}", "processor": cpu_model(),
            })  # fmt: skip
            print(" ".join(str(value) for name, value in found[-1].items() if name != "processor"), flush=True)
    return found


def main() -> None:
    """Print the figures; write them as CSV where asked."""
    parser = argparse.ArgumentParser(description="Measure the plain call on maps of files.")
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--lines", nargs="*", default=LAYERS)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--memory", default="200MB")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    options = parser.parse_args()
    found = []
    for text in options.lines:
        with tempfile.TemporaryDirectory(dir=".") as folder:
            found += measured(text, options.threads, options.rounds, Path(folder), options.memory)
    if options.output:
        write_rows(options.output, found)


if __name__ == "__main__":
    main()
