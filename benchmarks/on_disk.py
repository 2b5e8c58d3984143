"""Problems whose operands lie in files: which there are, how their files are made, and what of a file is cached."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Shape = tuple[int, ...]

POOL = 4_194_301  # a prime, so that no two images begin alike
CHANNELS, SIDE, PLANE, VOXEL = 64, 112, 128, 16
UNEVEN = {"src": 5, "diff_dst": 7}  # images of a chunk


@dataclass(frozen=True)
class OnDisk:
    """A call on files of f32: operands by name, of which those that ``files`` names are files, the others are small.

    ``out`` is the shape of a result that is a file, too, as it fits nowhere.
    """

    operator: str
    operands: Mapping[str, Shape]
    files: tuple[str, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    out: Shape | None = None

    @property
    def nbytes(self) -> int:
        """The bytes of the operands that are files."""
        return sum(4 * prod(self.operands[name]) for name in self.files)


def layer(axes: int) -> dict[str, Any]:
    """Return a layer's attributes, of which all extents of src and dst are equal."""
    return {"strides": [1] * axes, "dilations": [1] * axes, "auto_pad": "same_upper"}


def _images(size: int) -> dict[str, Shape]:
    """Return src and diff_dst of as many images as ``size`` bytes hold."""
    image = (SIDE, SIDE, CHANNELS)
    shape = (max(1, size // (8 * prod(image))), *image)
    return {"src": shape, "diff_dst": shape, "weights": (3, 3, CHANNELS, CHANNELS)}


def by_images(size: int) -> OnDisk:
    """Return the weight gradient of a layer of a large batch, whose operands take ``size`` bytes."""
    of = _images(size)
    two = {name: of[name] for name in ("src", "diff_dst")}
    return OnDisk("ConvolutionBackwardWeights", two, tuple(two), layer(2) | {"weights_shape": of["weights"]})


def by_rows(size: int) -> OnDisk:
    """Return the weight gradient of one volume, whose operands take ``size`` bytes."""
    plane = (PLANE, PLANE, VOXEL)
    shape = (1, max(3, size // (8 * prod(plane))), *plane)
    weights = (3, 3, 3, VOXEL, VOXEL)
    two = {"src": shape, "diff_dst": shape}
    return OnDisk("ConvolutionBackwardWeights", two, tuple(two), layer(3) | {"weights_shape": weights})


def forward(size: int) -> OnDisk:
    """Return the forward of the batch of ``by_images``, whose src and dst take ``size`` bytes."""
    of = _images(size)
    two = {name: of[name] for name in ("src", "weights")}
    return OnDisk("Convolution", two, ("src",), layer(2), of["diff_dst"])


def data_gradient(size: int) -> OnDisk:
    """Return the data gradient of that batch, whose diff_dst and diff_src take ``size`` bytes."""
    of = _images(size)
    two = {name: of[name] for name in ("diff_dst", "weights")}
    return OnDisk("ConvolutionBackwardData", two, ("diff_dst",), layer(2), of["src"])


PROBLEMS: dict[str, Callable[[int], OnDisk]] = {
    "weights, images": by_images,
    "weights, one volume": by_rows,
    "forward": forward,
    "data gradient": data_gradient,
}


def path_of(folder: Path, name: str, shape: Shape) -> Path:
    """Return where an operand lies: problems share the operands that they have in common."""
    return folder / f"{name}-{'x'.join(map(str, shape))}.npy"


def values(name: str, count: int) -> Array:
    """Return normal values for an operand; a file repeats them."""
    return np.random.default_rng(list(name.encode())).standard_normal(count, np.float32)


def make_files(problem: OnDisk, folder: Path) -> None:
    """Write the operands that are files, where they are not there."""
    for name in problem.files:
        shape = problem.operands[name]
        path, pool, left = path_of(folder, name, shape), values(name, POOL).data, prod(shape)
        if path.exists():
            continue
        with path.open("wb") as file:
            np.lib.format.write_array_header_1_0(file, {"descr": "<f4", "fortran_order": False, "shape": tuple(shape)})
            while left:
                file.write(pool[: min(left, POOL)])
                left -= min(left, POOL)
            file.flush()
            os.fsync(file.fileno())


def make_stores(problem: OnDisk, folder: Path) -> None:
    """Write the operands that are files as zarr stores, where they are not there; chunks end where no piece does."""
    import zarr  # noqa: PLC0415 - a guest

    for name, operand in opened(problem, folder).items():
        path = path_of(folder, name, operand.shape).with_suffix(".zarr")
        if name in problem.files and not path.exists():
            chunks = chunks_of(name, operand.shape)
            store = zarr.create_array(path, shape=operand.shape, chunks=chunks, dtype=operand.dtype)
            for at in range(0, operand.shape[0], chunks[0]):
                store[at : at + chunks[0]] = operand[at : at + chunks[0]]


def chunks_of(name: str, shape: Shape) -> Shape:
    """Return chunks of odd numbers of images, of src others than of diff_dst, in two halves of their rows.

    >>> chunks_of("src", (1280, 112, 112, 64)), chunks_of("diff_dst", (1280, 112, 112, 64))
    ((5, 57, 112, 64), (7, 57, 112, 64))
    """
    return (min(UNEVEN[name], shape[0]), shape[1] // 2 + 1, *shape[2:])


def opened(problem: OnDisk, folder: Path, stored: str = "npy") -> dict[str, Any]:
    """Return the operands: files as maps or zarr arrays, which are read as they are used, the small ones as arrays."""
    return {
        name: OPENED[stored](path_of(folder, name, shape).with_suffix(f".{stored}"))
        if name in problem.files
        else values(name, prod(shape)).reshape(shape)
        for name, shape in problem.operands.items()
    }


def _store(path: Path) -> Any:
    import zarr  # noqa: PLC0415

    return zarr.open_array(path, mode="r")


OPENED: dict[str, Callable[[Path], Any]] = {"npy": partial(np.load, mmap_mode="r"), "zarr": _store}


def let_go(path: Path) -> None:
    """Have the kernel forget the pages of a file; where this is a guest, its host may still have them."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def cached_bytes(path: Path) -> int:
    """Return how many bytes of a file the kernel has in memory, as ``fincore`` of util-linux tells."""
    command = ["fincore", "--bytes", "--noheadings", "--output", "RES", str(path)]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
