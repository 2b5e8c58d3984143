"""Jobs for a cluster by name: operands in files, read lazily in chunks, and the hash of the plain call on all."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
from clusters import Slow
from numpy.typing import NDArray

import convgrad
from convgrad.functional.call import prepare
from convgrad.spec.problem import Problem

Array = NDArray[Any]


@dataclass(frozen=True)
class Job:
    """A call on made-up operands; batches are of ``shapes``, but for an operand of ``weights``, which has no batch."""

    operator: str
    shapes: tuple[tuple[int, ...], ...]
    attributes: Mapping[str, Any]
    weights: int | None = None
    dtype: str = "f4"

    @property
    def images(self) -> int:
        """The images of the batch."""
        return self.shapes[0][0]


def _same(**more: Any) -> dict[str, Any]:
    return {"strides": [1, 1], "dilations": [1, 1], "auto_pad": "same_upper"} | more


JOBS = {
    "weights": Job("ConvolutionBackwardWeights", ((67, 17, 17, 4), (67, 17, 17, 6)), _same(weights_shape=[3, 3, 4, 6])),
    "packs": Job("ConvolutionBackwardWeights", ((93, 7, 7, 4), (93, 7, 7, 6)), _same(weights_shape=[3, 3, 4, 6])),
    "bias": Job("BiasAddBackward", ((67, 17, 17, 6),), {}),
    "forward": Job("Convolution", ((67, 17, 17, 4), (3, 3, 4, 6)), _same(), weights=1),
    "data": Job("ConvolutionBackwardData", ((67, 17, 17, 6), (3, 3, 4, 6)), _same(), weights=1),
    "transposed": Job(
        "ConvTransposeBackwardWeights",
        ((67, 17, 17, 4), (67, 34, 34, 6)),
        {"strides": [2, 2], "dilations": [1, 1], "weights_shape": [2, 2, 6, 4]},
    ),
    "rows": Job("ConvolutionBackwardWeights", ((3, 96, 40, 4), (3, 96, 40, 6)), _same(weights_shape=[3, 3, 4, 6])),
}


def operands(job: Job) -> list[Array]:
    """Return the operands of a job."""
    rng = np.random.default_rng(len(job.operator))
    return [rng.standard_normal(shape, np.float32).astype(job.dtype) for shape in job.shapes]


def posed(job: Job) -> Problem:
    """Return the problem that a job is."""
    stand_ins = tuple(np.broadcast_to(np.zeros((), job.dtype), shape) for shape in job.shapes)
    return prepare(job.operator, stand_ins, job.attributes).problem


def hash_of(array: Array) -> str:
    """Return the SHA-256 of an array's bits, as 16 digits."""
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()[:16]


def expected(job: Job, given: Sequence[Array], **options: Any) -> str:
    """Return the hash of the plain call."""
    return hash_of(convgrad.run(job.operator, *given, **job.attributes, **options))


def saved(given: Sequence[Array], folder: Path) -> list[Path]:
    """Return files with the operands."""
    paths = [folder / f"operand_{at}.npy" for at in range(len(given))]
    for path, array in zip(paths, given, strict=True):
        np.save(path, array)
    return paths


def lazy(
    job: Job, paths: Sequence[Path], journal: Path, images: int, rows: int = 0, **slowness: Any
) -> list[da.Array | Array]:
    """Return the operands as Dask arrays in chunks of so many images and rows (0: all); weights as they are."""
    arrays: list[da.Array | Array] = []
    for at, path in enumerate(paths):
        if at == job.weights:
            arrays.append(np.load(path))
            continue
        source = Slow(path, journal, **slowness)
        chunks = (images, rows or source.shape[1], *source.shape[2:])
        meta = np.empty((0,) * source.ndim, source.dtype)  # or Dask reads one here
        arrays.append(da.from_array(source, chunks=chunks, name=False, asarray=True, meta=meta))
    return arrays
