"""Compute a weight gradient of files in a megabyte, interrupted and resumed: the bits are those of one call on all.

python examples/larger_than_memory.py --images 48 --memory 1MB

Operands lie in files and are mapped, not loaded. Piece by piece they are read, by a thread of their own, and summed;
what is summed is kept in a small file from which an interrupted call goes on. Any other operator is asked for in the
same way, with ``out``, a map, where its result is larger than memory.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from convgrad import convolution_backward_weights, scale

Array = NDArray[np.float32]
IMAGE, WEIGHTS = (56, 56, 16), (3, 3, 16, 16)
LAYER: dict[str, Any] = {"weights_shape": WEIGHTS, "auto_pad": "same_upper"}


def written(path: Path, images: int, seed: int) -> Array:
    """Write images to a file, one at a time, and return a map of it."""
    file = np.lib.format.open_memmap(path, "w+", np.float32, (images, *IMAGE))
    rng = np.random.default_rng(seed)
    for n in range(images):
        file[n] = rng.standard_normal(IMAGE, np.float32)
    file.flush()
    return np.load(path, mmap_mode="r")


def interrupts_after(share: float) -> Callable[[scale.Progress], None]:
    """Return who is told of progress, and loses patience."""

    def progress(now: scale.Progress) -> None:
        if now.done >= share * now.pieces:
            print(now)
            raise KeyboardInterrupt

    return progress


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Compute a gradient of files in little memory.")
    parser.add_argument("--images", type=int, default=48)
    parser.add_argument("--memory", default="1MB", help="what the call's arrays may take")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        src, diff_dst = (
            written(Path(folder, f"{name}.npy"), options.images, seed) for seed, name in enumerate(("src", "diff_dst"))
        )
        print(f"operands: {(src.nbytes + diff_dst.nbytes) / 1e6:.1f} MB in files, {options.memory} of memory")
        call: dict[str, Any] = {"memory": options.memory, "checkpoint": Path(folder, "sums"), **LAYER}
        print(scale.plan("ConvolutionBackwardWeights", src, diff_dst, memory=options.memory, **LAYER))
        try:
            scale.run("ConvolutionBackwardWeights", src, diff_dst, progress=interrupts_after(0.5), **call)
        except KeyboardInterrupt as interrupt:
            print(f"interrupted; {' '.join(interrupt.__notes__)}")
        told: list[scale.Progress] = []
        gradient = scale.run("ConvolutionBackwardWeights", src, diff_dst, progress=told.append, **call)
        print(f"resumed: {told[-1].resumed} of {told[-1].pieces} pieces were not done again")
        whole = convolution_backward_weights(np.array(src), np.array(diff_dst), **LAYER)
    same = gradient.tobytes() == whole.tobytes()
    print("the bits of one call on all" if same else "other bits than one call on all")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
