"""Partitions of a graph: single ops, or fused ops. A partition is compiled for known extents and called with arrays."""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from convgrad import arrays, engines
from convgrad.array_types import Array
from convgrad.arrays.libraries import like
from convgrad.errors import ConvgradError
from convgrad.formats import FORMATS, Format, strided
from convgrad.functional.call import Prepared, bind
from convgrad.graph.fuse import Chain, FusedOps, activation_of, called, has_fused_bias, keeps_bits
from convgrad.graph.given import GivenInputs, Tensors, by_id, given_to
from convgrad.graph.limits import DEFAULT_LIMITS
from convgrad.graph.model import RELU, LogicalTensor, Op, Shape, dense_strides, operator_of
from convgrad.graph.resolve import Resolved, check_ports, rectified, resolve, unsupported
from convgrad.spec.activation import relu
from convgrad.spec.operators import S64_MAX, Operator
from convgrad.spec.problem import Problem, intern


@dataclass(frozen=True)
class Execution:
    """A finished call.

    Args:
        op: The op that describes the call.
        ops: The ops that the call computed, more than one if they were fused.
        prepared: The checked call.
        result: The result, an array of NumPy.
        time_ms: The time of the call in milliseconds.
        compile_ms: The time to plan the call and compile its kernels, in milliseconds.
    """

    op: Op
    ops: Chain
    prepared: Prepared
    result: Array
    time_ms: float
    compile_ms: float


@dataclass(frozen=True)
class CompiledPartition:
    """A partition with known extents that you can call many times.

    :meth:`Partition.compile` makes it.

    Args:
        op: The op that describes the call.
        ops: The ops that the call computes, more than one if they are fused.
        row: The op's row of the operator table.
        tensors: The tensors of the partition by id.
        resolved: The problem; None for a ReLU, or if only the values of a shape input determine the problem.
        others: All tensors of the graph by id.
    """

    op: Op
    ops: Chain
    row: Operator
    tensors: Mapping[int, LogicalTensor]
    resolved: Resolved | None
    others: Mapping[int, LogicalTensor]

    def query_logical_tensor(self, tensor_id: int) -> LogicalTensor:
        """Return a tensor's description, with the extents and type that compiling determined.

        Args:
            tensor_id: The id of a tensor of the partition.
        """
        if tensor_id not in self.tensors:
            raise self.op.refuse(f"has no tensor {tensor_id}; it has {', '.join(map(str, self.tensors))}")
        return self.tensors[tensor_id]

    def __call__(self, tensors: Tensors) -> dict[int, Any]:
        """Return the output by tensor id, computed from inputs by tensor id or name.

        The output is an array of the first input's library.

        Args:
            tensors: The inputs, by tensor id or name. Arrays of other tensors of the graph are ignored; arrays of
                tensors that the partition makes are refused.
        """
        values = by_id({**self.others, **self.tensors}.values(), tensors)
        for output in (tensor for op in self.ops for tensor in op.outputs):
            if output.id in values:
                raise self.op.refuse(f"it makes tensor {output.label}, which cannot be given")
        if self.row is RELU:
            result = rectify(self.op, self.tensors, values)
        else:
            result = execute(FusedOps(self.ops, self.op, self.resolved), self.row, self.tensors, values).result
        return {self.op.outputs[0].id: like(values[self.op.inputs[0].id])(result)}


@dataclass(frozen=True)
class Partition:
    """An op of a graph, or fused ops that run together.

    Args:
        id: The number of the partition in its graph.
        ops: The ops, more than one if they are fused.
        tensors: The tensors of the graph by id, with all known extents.
        reason: The name of the unsupported feature, or None.
    """

    id: int
    ops: tuple[Op, ...]
    tensors: Mapping[int, LogicalTensor]
    reason: str | None

    @property
    def op(self) -> Op:
        """The op, or the op that computes the fused ops in one call, without their activation."""
        return called(self.ops)

    @property
    def row(self) -> Operator | None:
        """The op's row of the operator table, or ``RELU``; None for any other op."""
        return operator_of(self.op)

    @property
    def is_supported(self) -> bool:
        """Whether the partition can run."""
        return self.reason is None

    @property
    def inputs(self) -> tuple[LogicalTensor, ...]:
        """The input tensors, with all known extents."""
        return tuple(self.tensors[tensor.id] for tensor in self.op.inputs)

    @property
    def outputs(self) -> tuple[LogicalTensor, ...]:
        """The output tensors, with all known extents."""
        return tuple(self.tensors[tensor.id] for tensor in self.op.outputs)

    def compile(self, inputs: Sequence[LogicalTensor] = (), outputs: Sequence[LogicalTensor] = ()) -> CompiledPartition:
        """Return a compiled partition, which you can call. The arguments replace the graph's descriptions of tensors.

        The arguments or the graph must give the type and extents of every input except a shape input; outputs can be
        unknown.

        Args:
            inputs: Descriptions of input tensors. Default: ().
            outputs: Descriptions of output tensors. Default: ().

        Raises:
            GraphError: The type or an extent of an input is unknown, the partition is not supported, or its ops would
                not be fused in the type of the arguments.

        >>> import numpy as np
        >>> from convgrad.graph import Graph
        >>> graph = Graph([Op(0, "BiasAddBackward", (LogicalTensor(0, "f32"),), (LogicalTensor(1),))])
        >>> graph.finalize()
        >>> partition, = graph.partitions()
        >>> compiled = partition.compile([LogicalTensor(0, "f32", (2, 4, 3))])
        >>> print(compiled.query_logical_tensor(1))
        1: f32 3
        >>> compiled({0: np.ones((2, 4, 3), np.float32)})[1].tolist()
        [8.0, 8.0, 8.0]
        """
        row = self.row
        if self.reason is not None or row is None:
            raise self.op.refuse(f"this partition cannot be compiled: {self.reason}")
        tensors = {tensor.id: tensor for tensor in (*self.inputs, *self.outputs)}
        for tensor in (*inputs, *outputs):
            if tensor.id not in tensors:
                raise self.op.refuse(f"has no tensor {tensor.id}; it has {', '.join(map(str, tensors))}")
            tensors[tensor.id] = tensor
        described = replace(
            self.op,
            inputs=tuple(tensors[tensor.id] for tensor in self.op.inputs),
            outputs=tuple(tensors[tensor.id] for tensor in self.op.outputs),
        )
        reason = unsupported(described, row)
        if reason is not None:
            raise self.op.refuse(f"this partition cannot be compiled: {reason}")
        check_ports(described, row)
        for port, known in zip(row.operands, described.inputs, strict=False):
            if not port.is_shape and (known.shape is None or known.format is None):
                raise self.op.refuse(f"compiling needs inputs of known type and extents; got {known}")
        resolved, output = None, self.op.outputs[0].id
        if row is RELU:
            tensors[output] = rectified(self.op, tensors)
        elif (resolved := resolve(self.op, row, tensors, {})) is not None:
            tensors[output] = resolved.output(tensors[output])
            if not keeps_bits(self.ops, resolved.problem.output_format):
                fmt, names = resolved.problem.output_format, " and ".join(op.label for op in self.ops)
                raise self.op.refuse(f"one call of {names} would have other bits in {fmt}; finalize a graph of {fmt}")
        return CompiledPartition(self.op, self.ops, row, tensors, resolved, self.tensors)


def rectify(
    op: Op,
    tensors: Mapping[int, LogicalTensor],
    values: Mapping[int, object],
    memory_bytes: int = DEFAULT_LIMITS.memory_bytes,
) -> Array:
    """Return the output of a ReLU that is not fused, computed by NumPy."""
    inputs = _checked_inputs(op, RELU, tensors, values)
    (src,) = inputs.arrays.values()
    dst = rectified(op, {**tensors, **inputs.tensors})
    temporary = src.size * (src.itemsize + 1)
    out = allocate(op, dst, src.shape, FORMATS[dst.dtype], memory_bytes - temporary)
    with np.errstate(invalid="ignore"):
        out[...] = relu(src)
    return out


def _checked_inputs(
    op: Op, row: Operator, tensors: Mapping[int, LogicalTensor], values: Mapping[int, object]
) -> GivenInputs:
    missing = [tensors[tensor.id].label for tensor in op.inputs if tensor.id not in values]
    if missing:
        raise op.refuse(f"each input must be given as an array; there is none for tensor {missing[0]}")
    return given_to(op, row, tensors, values)


def _within(problem: Problem, step: FusedOps) -> Problem:
    """Return the problem with the algorithm that it has without the fused bias, so that fusion does not change bits."""
    alone = replace(problem, operands=problem.operands[:-1]) if has_fused_bias(step.ops) else problem
    return intern(replace(problem, algorithm=engines.within(alone, step.op.max_error).algorithm))


def execute(
    step: FusedOps,
    row: Operator,
    tensors: Mapping[int, LogicalTensor],
    values: Mapping[int, object],
    memory_bytes: int = DEFAULT_LIMITS.memory_bytes,
) -> Execution:
    """Run the call of a step on inputs by tensor id. The output has the strides of its tensor's description.

    If ``step.resolved`` is None, or a shape input is given, the arrays determine the problem.
    """
    op, resolved = step.op, step.resolved
    inputs = _checked_inputs(op, row, tensors, values)
    if resolved is None or inputs.shapes:
        resolved = resolve(op, row, {**tensors, **inputs.tensors}, inputs.shapes)
    if resolved is None:
        raise op.refuse("its inputs must determine every extent and type")
    names = (port.name for port in row.operands)
    taken = {n: inputs.arrays[t.id] for n, t in zip(names, op.inputs, strict=False) if t.id in inputs.arrays}
    problem = _within(resolved.problem, step)
    prepared = bind(row, resolved.checked, problem, taken).activated(activation_of(step.ops))
    out = allocate(op, tensors[op.outputs[0].id], problem.output_shape, problem.output_format, memory_bytes)
    started = time.perf_counter()
    wanted, left = prepared.memory_bytes(out), memory_bytes - memory_of(out)
    if wanted > left:
        raise op.refuse(f"computing it must fit the memory_bytes that are left, {left}; it takes {wanted}")
    if problem.note:
        warnings.warn(f"{op.label}: {problem.note}", UserWarning, stacklevel=4)
    ready = time.perf_counter()
    try:
        prepared.execute(out)
    except ConvgradError as error:
        raise op.refuse(str(error)) from error
    return Execution(op, step.ops, prepared, out, 1e3 * (time.perf_counter() - ready), 1e3 * (ready - started))


def memory_of(array: Array) -> int:
    """Return the bytes from an array's first element to its last, including gaps. No stride may be negative."""
    spans = ((extent - 1) * stride for extent, stride in zip(array.shape, array.strides, strict=True))
    return array.itemsize + sum(spans) if array.size else 0


def allocate(
    op: Op, tensor: LogicalTensor, shape: Shape, fmt: Format, memory_bytes: int = DEFAULT_LIMITS.memory_bytes
) -> Array:
    """Return an uninitialised array with the strides of a tensor, or row-major if the tensor has none."""
    elements, size = tensor.span(shape), fmt.itemsize
    if elements * size > memory_bytes:
        sentence = f"tensors must fit the memory_bytes that are left, {memory_bytes}; got {tensor}"
        raise op.refuse(f"{sentence}, {elements * size} bytes with its strides")
    in_bytes = [stride * size for stride in tensor.strides or dense_strides(shape)]
    in_bytes = [step if step <= S64_MAX else 0 for step in in_bytes]  # such a step is never used
    return strided(arrays.aligned((elements,), fmt.dtype), shape, in_bytes, writeable=True)
