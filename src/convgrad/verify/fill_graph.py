"""Tensors made up for a graph: what nobody else makes of what its ops read, laid out as the graph describes."""

from __future__ import annotations

from collections.abc import Container
from typing import Any

import numpy as np
from numpy.typing import NDArray

from convgrad.graph.graph import Graph
from convgrad.graph.infer import producers_of
from convgrad.graph.limits import DEFAULT_LIMITS
from convgrad.graph.model import FLOAT_DTYPES, Op, operator_of
from convgrad.graph.partition import allocate
from convgrad.spec.operators import Operator
from convgrad.verify.fill import Kind, fill

Array = NDArray[Any]


def fill_graph(
    graph: Graph, kind: Kind, seed: int, given: Container[int] = (), memory_bytes: int = DEFAULT_LIMITS.memory_bytes
) -> dict[int, Array]:
    """Return by id every tensor that an op of the family reads and neither another one makes nor ``given`` has.

    Each is made for the first op that reads it. Shape inputs get the output's known dims. Raises GraphError where a
    tensor's extents are unknown, or it would take more than ``memory_bytes``.
    """
    found, producers = graph.inference, producers_of(graph.ops)
    made: dict[int, Array] = {}
    for number, op in enumerate(found.order):
        row = operator_of(op)
        if row is None or op.id in found.reasons:
            continue
        wanted = [
            tensor.id
            for tensor in op.inputs
            if tensor.id not in given
            and tensor.id not in made
            and (tensor.id not in producers or producers[tensor.id].id in found.reasons)
        ]
        if wanted:
            of_op = _operands(graph, op, row, kind, seed + number, memory_bytes)
            made |= {tensor: of_op[tensor] for tensor in wanted}
    return made


def _operands(graph: Graph, op: Op, row: Operator, kind: Kind, seed: int, memory_bytes: int) -> dict[int, Array]:
    found = graph.inference
    if op.id not in found.resolved:
        inputs = [found.tensors[tensor.id] for tensor in op.inputs]
        unknown = next((t for t in inputs if t.shape is None or t.dtype not in FLOAT_DTYPES), inputs[0])
        raise op.refuse(f"tensors can be made up once all extents and types are known; give tensor {unknown}")
    problem = found.resolved[op.id].problem
    made: dict[int, Array] = {}
    arrays = []
    for port, tensor in zip(row.operands, (found.tensors[t.id] for t in op.inputs), strict=False):
        if port.is_shape:
            made[tensor.id] = np.array(problem.output_shape, np.int64)
        elif tensor.shape is not None:
            made[tensor.id] = allocate(op, tensor, tensor.shape, problem.operand_format, memory_bytes)
            arrays.append(made[tensor.id])
    shapes = [array.shape for array in arrays]
    for array, values in zip(arrays, fill(problem, shapes, kind, seed), strict=True):
        array[...] = values
    return made
