"""Generated tensors for a graph: the inputs that are neither given nor computed, in the graph's memory format."""

from __future__ import annotations

from collections.abc import Container

import numpy as np

from convgrad.array_types import Array
from convgrad.graph.graph import Graph
from convgrad.graph.limits import DEFAULT_LIMITS
from convgrad.graph.model import RELU, Op, operator_of
from convgrad.graph.partition import allocate, memory_of
from convgrad.verify.fill import Kind, fill


def fill_graph(
    graph: Graph, kind: Kind, seed: int, known: Container[int] = (), memory_bytes: int = DEFAULT_LIMITS.memory_bytes
) -> dict[int, Array]:
    """Return generated tensors by id, for all inputs of convolution ops that are neither ``known`` nor computed.

    Each tensor is generated for the first op that reads it, from ``seed`` and the op's id. For example, this op adds
    the integers of the tensor exactly. A shape input gets the shape of the op's output. An op whose extents are unknown
    gets no tensors. Raises GraphError if all tensors together would take more than ``memory_bytes``.
    """
    inference, computed = graph.inference, set(graph.computed)
    generated: dict[int, Array] = {}
    remaining_bytes = memory_bytes
    for op in inference.order:
        if operator_of(op) is RELU and any(op.inputs[0].id in tensors for tensors in (known, generated, computed)):
            computed.add(op.outputs[0].id)
        wanted = {t.id for t in op.inputs if not (t.id in known or t.id in generated or t.id in computed)}
        if operator_of(op) is not None and op.id in inference.resolved and wanted:
            operands = _operands(graph, op, kind, seed, remaining_bytes)
            new = {tensor: array for tensor, array in operands.items() if tensor in wanted}
            remaining_bytes -= sum(map(memory_of, new.values()))
            generated |= new
    return generated


def _operands(graph: Graph, op: Op, kind: Kind, seed: int, memory_bytes: int) -> dict[int, Array]:
    """Return the generated operands of an op whose extents are known."""
    row, problem = operator_of(op), graph.inference.resolved[op.id].problem
    assert row is not None, "an op with a problem has an operator"
    generated: dict[int, Array] = {}
    arrays: list[Array] = []
    for port, tensor in zip(row.operands, (graph.tensors[t.id] for t in op.inputs), strict=False):
        if port.is_shape:
            generated[tensor.id] = np.array(problem.output_shape, np.int64)
        elif tensor.shape is not None:
            remaining_bytes = memory_bytes - sum(map(memory_of, arrays))
            generated[tensor.id] = allocate(op, tensor, tensor.shape, problem.operand_format, remaining_bytes)
            arrays.append(generated[tensor.id])
    shapes = [array.shape for array in arrays]
    for array, values in zip(arrays, fill(problem, shapes, kind, (seed, op.id)), strict=True):
        array[...] = values
    return generated
