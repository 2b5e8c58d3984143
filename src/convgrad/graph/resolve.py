"""The problem of one op. Its shape is that of the shape input, else the shape attribute, else the output's dims."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from convgrad import engines
from convgrad.arrays.overlap import overlaps_itself
from convgrad.errors import ConvgradError
from convgrad.functional.call import problem_of_row
from convgrad.graph.kinds import KINDS, similar
from convgrad.graph.model import FLOAT_DTYPES, INTEGER_DTYPES, RELU, LogicalTensor, Op, Shape, operator_of
from convgrad.spec.check import Attributes, as_integers, check_names, is_placeholder
from convgrad.spec.geometry import Axis, Conv, forward_extent, transposed_extent
from convgrad.spec.layouts import shape_words
from convgrad.spec.operators import VERSION, Operator
from convgrad.spec.problem import Problem
from convgrad.words import LONGEST, printable

SHAPE_MEANINGS = ("weights_shape", "dst_shape")


@dataclass(frozen=True)
class Resolved:
    """An op as a call: its attributes with resolved shape and pads, the checked attributes, and the problem."""

    attributes: Mapping[str, object]
    checked: Attributes
    problem: Problem

    def within(self, op: Op) -> Problem:
        """Return the problem with the algorithm that the ``max_error`` of the op, or else of the context, allows."""
        return engines.within(self.problem, op.max_error)

    def output(self, described: LogicalTensor) -> LogicalTensor:
        """Return the checked description of the output, with the extents and type of the problem."""
        return described.known(self.problem.output_shape, self.problem.output_format.name) or described


def unsupported(op: Op, row: Operator | None) -> str | None:
    """Return the reason why an op cannot run, which names the op or tensor, or None if it can run."""
    if row is None:
        return f"{op.kind} is not an operator of the convolution family"
    for tensor in (*op.inputs, *op.outputs):
        if tensor.layout_type == "opaque":
            return f"{op.kind} on tensor {tensor.label}, whose layout is opaque, is not supported"
    for port, tensor in zip(row.operands, op.inputs, strict=False):
        if not port.is_shape and tensor.dtype not in ("undef", *FLOAT_DTYPES):
            return (
                f"{op.kind} of {tensor.dtype} (tensor {tensor.label}) is not supported; {', '.join(FLOAT_DTYPES)} are"
            )
    return None


def check_kind(op: Op) -> None:
    """Raise GraphError if oneDNN Graph has no op of this kind."""
    if operator_of(op) is None and op.kind.removesuffix(VERSION) not in KINDS:
        kind = printable(op.kind) or "an empty kind"
        other = similar(op.kind[:LONGEST]) or ". For an op of another library, use the kind Wildcard"
        raise op.refuse(f"the kind must be one of oneDNN Graph; got {kind}{other}")


def check_ports(op: Op, row: Operator) -> None:
    """Raise GraphError if the operator does not have these inputs, outputs or attributes."""
    if len(op.inputs) not in row.operand_counts or len(op.outputs) != 1:
        takes = ", ".join(port.name if port.required else f"[{port.name}]" for port in row.operands)
        got = f"{len(op.inputs)} inputs and {len(op.outputs)} outputs"
        raise op.refuse(f"{op.kind} takes {takes} and makes {row.output.name}; got {got}")
    for port, tensor in zip(row.operands, op.inputs, strict=False):
        if port.is_shape and tensor.dtype not in ("undef", *INTEGER_DTYPES):
            raise op.refuse(f"{port.name} must be a 1-D tensor of s32; got {tensor}")
    try:
        check_names(row, op.attributes)
    except ConvgradError as error:
        raise op.refuse(str(error)) from error


Posed = dict[object, tuple[Attributes, Problem]]


def resolve(
    op: Op, row: Operator, tensors: Mapping[int, LogicalTensor], shapes: Mapping[int, Shape], posed: Posed | None = None
) -> Resolved | None:
    """Return an op with its problem, or None if an extent, the type or the values of a shape input are unknown.

    ``shapes`` are the values of shape inputs, by tensor id. ``posed`` caches problems for equal calls. Raises
    GraphError if the operator refuses the call, or if the result contradicts the description of the output.
    """
    inputs = [tensors[tensor.id] for tensor in op.inputs]
    output = tensors[op.outputs[0].id]
    floats = [*_arrays(row, inputs), output]
    _check_types(op, floats)
    operands: list[Shape] = []
    for port, tensor in zip(row.operands, inputs, strict=False):
        known = shapes.get(tensor.id, output.shape) if port.is_shape else tensor.shape
        if known is None:
            return None
        operands.append(known)
    fmt = next((tensor.format for tensor in floats[:-1] if tensor.format), None)
    if fmt is None:
        return None
    attributes = _attributes(op, row, output, len(operands[0]) - 2)
    cropped = _cropped(attributes)
    attributes_given = {**attributes, **cropped}
    posed = {} if posed is None else posed
    alike = (row, fmt, *operands, repr(attributes_given))  # as text, because True == 1, but only 1 is valid
    try:
        if alike not in posed:
            posed[alike] = problem_of_row(row, tuple(operands), attributes_given, fmt)
    except ConvgradError as error:
        raise op.refuse(str(error)) from error
    checked, problem = posed[alike]
    if cropped:
        _check_cropped(op, row, problem, attributes)
    if output.known(problem.output_shape, fmt.name) is None:
        result = f"{fmt} {shape_words(problem.output_shape)}"
        raise op.refuse(f"its inputs and attributes make {row.output.name} {result}; the graph has {output}")
    _check_strides(op, problem.output_shape, output)
    return Resolved(attributes_given, checked, problem)


def rectified(op: Op, tensors: Mapping[int, LogicalTensor]) -> LogicalTensor:
    """Return a ReLU's output with the extents and type of its input, or raise GraphError if its description differs."""
    src, dst = tensors[op.inputs[0].id], tensors[op.outputs[0].id]
    _check_types(op, (src, dst))
    if src.shape is None or src.format is None:
        return dst
    known = dst.known(src.shape, src.dtype)
    if known is None:
        result = f"{src.format} {shape_words(src.shape)}"
        raise op.refuse(f"its input makes {RELU.output.name} {result}; the graph has {dst}")
    _check_strides(op, src.shape, dst)
    return known


def _check_types(op: Op, floats: Sequence[LogicalTensor]) -> None:
    if len({tensor.dtype for tensor in floats} - {"undef"}) > 1:
        raise op.refuse(f"all tensors of {op.kind} must have one type; got {', '.join(map(str, floats))}")


def _check_strides(op: Op, shape: Shape, output: LogicalTensor) -> None:
    if output.strides and (shares := overlaps_itself(shape, output.strides, 1)) is not False:
        hard = "" if shares else ", which is too hard to decide"
        raise op.refuse(f"the output must not overlap itself; tensor {output} has strides {list(output.strides)}{hard}")


def _arrays(row: Operator, inputs: Sequence[LogicalTensor]) -> list[LogicalTensor]:
    return [tensor for port, tensor in zip(row.operands, inputs, strict=False) if not port.is_shape]


def _attributes(op: Op, row: Operator, output: LogicalTensor, axes: int) -> dict[str, object]:
    """Return the attributes without oneDNN's placeholders, and with the output's known dims for an absent shape.

    A shape attribute counts as absent if all its values are 0, however many there are.
    """
    attributes = dict(op.attributes)
    shape_input = any(port.is_shape for port in row.operands[: len(op.inputs)])
    for attribute in row.attributes:
        if is_placeholder(attribute, attributes.get(attribute.name), axes):
            del attributes[attribute.name]
    for attribute in filter(None, map(row.attribute, SHAPE_MEANINGS)):
        values = as_integers(attributes.get(attribute.name))
        if values is not None and not any(values):
            del attributes[attribute.name]
        if attribute.name not in attributes and not shape_input and output.shape is not None:
            attributes[attribute.name] = list(output.shape)
    return attributes


def _cropped(attributes: Mapping[str, object]) -> dict[str, object]:
    """Return ``pads_end`` of an old dump with zeros for negative pads; an empty dict if no pad is negative."""
    pads = as_integers(attributes.get("pads_end"))
    if pads is None or min(pads, default=0) >= 0:
        return {}
    return {"pads_end": [max(pad, 0) for pad in pads]}


def _check_cropped(op: Op, row: Operator, problem: Problem, attributes: Mapping[str, Any]) -> None:
    """Raise GraphError if a negative pads_end changes an extent of the output, compared with a pad of 0."""
    assert isinstance(problem.geometry, Conv)  # only convolutions have pads
    pads_end = attributes["pads_end"]
    for axis, pad_end in zip(problem.geometry.axes, pads_end, strict=True):
        if str(attributes.get("auto_pad", "none")).lower() in ("none", "notset", "explicit") and not _same_extent(
            row, axis, pad_end
        ):
            raise op.refuse(f"a negative pads_end must give the output the extent of a pad of 0; got {list(pads_end)}")


def _same_extent(row: Operator, axis: Axis, pad_end: int) -> bool:
    effective, pads = axis.effective_kernel, axis.pad_begin + pad_end
    if row.transposed and row.solves_for == "src":
        return transposed_extent(axis.dst, effective, axis.stride, pads) == axis.src
    return forward_extent(axis.src, effective, axis.stride, pads) == axis.dst
