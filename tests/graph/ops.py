"""Tensors, ops and graphs built in Python for tests, and arrays for them."""

from __future__ import annotations

from typing import Any

import numpy as np

import convgrad
from convgrad.graph import Graph, LogicalTensor, Op
from tests.support.roles import F32, Array

ONE: dict[str, Any] = {"strides": [1], "dilations": [1]}
PADDED = ONE | {"pads_begin": [1], "pads_end": [1]}
HALVED = PADDED | {"strides": [2]}


def lt(number: int, *dims: int | None, dtype: str = "f32", **more: Any) -> LogicalTensor:
    """Return a tensor; without dims its rank is unknown."""
    return LogicalTensor(number, dtype, dims or None, **more)


def undef(number: int, *dims: int | None) -> LogicalTensor:
    return lt(number, *dims, dtype="undef")


def graph_of(*ops: Op, **more: Any) -> Graph:
    graph = Graph(ops, **more)
    graph.finalize()
    return graph


def integers(*shape: int, dtype: Any = F32, seed: int = 0) -> Array:
    return np.random.default_rng(seed).integers(-2, 3, shape).astype(dtype)


SRC, WEIGHTS, DST = lt(0, 2, 6, 3, name="src"), lt(1, 3, 3, 4, name="weights"), lt(2, 2, 6, 4, name="dst")
FORWARD = Op(7, "Convolution", (SRC, WEIGHTS), (DST,), PADDED, "layer")
GRADIENT = Op(0, "ConvolutionBackwardWeights", (lt(0, 2, 6, 3), lt(1, 2, 6, 4)), (lt(2),), PADDED)
SHAPE = lt(9, 3, dtype="s32")
X, W, B = integers(2, 6, 3), integers(3, 3, 4, seed=1), integers(4, seed=2)
Y = convgrad.convolution(X, W, pads_begin=1, pads_end=1)


def chain(*pairs: tuple[int, int]) -> list[Op]:
    return [Op(n, "BiasAdd", (lt(a, 2, 4), lt(99, 4)), (lt(b, 2, 4),)) for n, (a, b) in enumerate(pairs)]
