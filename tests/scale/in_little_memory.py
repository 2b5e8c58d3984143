"""Calls in pieces on mapped files, in a process that may take no more than their plans say; run as a program.

``python -m tests.scale.in_little_memory FOLDER NAME...`` prints what cases computed, and whether there was room to
load an operand whole.
"""

from __future__ import annotations

import json
import resource
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from convgrad import scale
from convgrad.scale.prefetch import STACK_BYTES
from tests.scale.sources import Slices, least_memory
from tests.support.places import BENCHMARKS

sys.path.insert(0, str(BENCHMARKS))
from watched import held

Array = NDArray[Any]

MEMORY = 12_000_000
PIECES = 500
MANY = (250, 16, 20, 8)  # of which an image is two pieces


@dataclass(frozen=True)
class InFiles:
    """A call, the extents of its operands, the first so many of which are files; a result of these extents is one."""

    operator: str
    shapes: tuple[tuple[int, ...], ...]
    files: int
    attributes: Mapping[str, Any]
    out: tuple[int, ...] | None = None

    def paths(self, folder: Path) -> list[Path]:
        """Return where the operands that are files lie; problems share them."""
        return [folder / f"{'x'.join(map(str, shape))}-{at}.npy" for at, shape in enumerate(self.shapes[: self.files])]

    def operands(self, folder: Path, images: int | None = None) -> list[Array]:
        """Return maps of files, or of their first images, and small operands."""
        maps = [np.load(path, mmap_mode="r")[:images] for path in self.paths(folder)]
        return maps + [integers(shape) for shape in self.shapes[self.files :]]


def integers(shape: tuple[int, ...]) -> Array:
    """Return small integers, whose sums are exact."""
    size = int(np.prod(shape))
    return np.resize((np.arange(4093) * 7 % 11 - 5).astype(np.float32), size).reshape(shape)


def layer(axes: int) -> dict[str, Any]:
    """Return a layer's attributes."""
    return {"strides": [1] * axes, "dilations": [1] * axes, "auto_pad": "same_upper"}


IMAGES, VOLUME = (320, 28, 28, 16), (1, 1000, 16, 16, 16)
CASES = {
    "images": InFiles("ConvolutionBackwardWeights", (IMAGES, IMAGES), 2, {**layer(2), "weights_shape": [3, 3, 16, 16]}),
    "rows": InFiles(
        "ConvolutionBackwardWeights", (VOLUME, VOLUME), 2, {**layer(3), "weights_shape": [3, 3, 3, 16, 16]}
    ),
    "forward": InFiles("Convolution", (VOLUME, (3, 3, 3, 16, 16)), 1, layer(3), VOLUME),
}


def hashed(array: Array) -> str:
    """Return what tells arrays apart."""
    return sha256(np.ascontiguousarray(array).data).hexdigest()


def compute(case: InFiles, folder: Path, images: int | None = None, limited: bool = False) -> dict[str, Any]:
    """Compute a case in pieces, or that of its first images: ``limited``, in no more memory than the plan says."""
    call: dict[str, Any] = {"memory": MEMORY, **case.attributes}
    if case.out:
        shape = (case.out[0] if images is None else images, *case.out[1:])
        call["out"] = np.lib.format.open_memmap(folder / "out.npy", "w+", np.float32, shape)
    operands = case.operands(folder, images)
    planned, hard = scale.plan(case.operator, *operands, **call).peak_bytes, resource.RLIM_INFINITY
    room = held()["VmData"] + planned + STACK_BYTES
    resource.setrlimit(resource.RLIMIT_DATA, (room if limited else hard, hard))
    found = {
        "loads": loads(operands[0]),
        "planned": planned,
        "hash": hashed(scale.run(case.operator, *operands, **call)),
    }
    resource.setrlimit(resource.RLIMIT_DATA, (hard, hard))
    return found


def loads(operand: Array) -> bool:
    """Tell whether there is room for all of an operand."""
    try:
        np.array(operand)
    except MemoryError:
        return False
    return True


def grown() -> int:
    """Return by how many bytes of its own the process is larger after a call of many pieces than after another."""
    src = integers(MANY)
    seen: list[int] = []
    told: list[scale.Progress] = []
    memory = least_memory("BiasAddBackward", Slices(src))
    for _ in range(3):
        scale.run("BiasAddBackward", Slices(src), memory=memory, progress=told.append)
        assert told.pop().pieces >= PIECES
        told.clear()
        seen.append(held()["RssAnon"])
    return seen[2] - seen[1]


def main(folder: Path, names: Sequence[str]) -> None:
    cases = {name: CASES[name] for name in names}
    for case in cases.values():
        compute(case, folder, min(2, case.shapes[0][0]))  # kernels are compiled, threads are there
    found = {name: compute(case, folder, limited=True) for name, case in cases.items()}
    print(json.dumps({"grown": grown(), "cases": found}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
