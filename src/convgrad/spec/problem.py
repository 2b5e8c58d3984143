"""A problem: one fully checked call as a value. Engines and ``exact_result`` know nothing else about a call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from math import prod

from convgrad.cached import cached_property
from convgrad.errors import InvalidShapeError
from convgrad.formats import F64, Format
from convgrad.spec.channels import check_batch, check_channels
from convgrad.spec.check import Attributes
from convgrad.spec.extents import AXES, ignored_output_padding
from convgrad.spec.geometry import Channels, Conv
from convgrad.spec.layouts import axis_order, from_canonical, to_canonical
from convgrad.spec.operators import S64_MAX, Operator, SolvesFor, Tensor
from convgrad.spec.readings import other_readings
from convgrad.spec.rules import hinted, refuse
from convgrad.spec.shapes import CanonicalShapes, Shape, layouts_of, shapes_by_tensor

REMEMBERED = 1024


@dataclass(frozen=True)
class Problem:
    """A fully checked call. ``operands`` are the given tensors in the operator's order, without shape operands.

    ``layouts`` are the memory formats of the operands and, last, of the output.
    """

    operator: str
    solves_for: SolvesFor
    geometry: Conv | Channels
    operands: tuple[Tensor, ...]
    output: Tensor
    layouts: tuple[str, ...]
    operand_format: Format
    output_format: Format
    accumulate: bool = False
    note: str | None = None
    algorithm: str = ""  # a name in spec/winograd/algorithms.py; "" is the direct sum
    activation: str = ""  # the activation of a forward's results, before their rounding: "relu" or ""

    def __hash__(self) -> int:
        """Return the hash, which is cached because every call needs it."""
        return self._hash

    def __getstate__(self) -> dict[str, object]:
        """Return the pickled state, without the cached hash: hashes of strings differ between processes."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @cached_property
    def _hash(self) -> int:
        return hash((self.operator, self.geometry, self.operands, self.layouts, self.operand_format.name))

    @cached_property
    def output_shape(self) -> Shape:
        """The output's shape in the caller's layout."""
        return from_canonical(canonical_shape(self.geometry, self.output), self.layouts[-1])

    @cached_property
    def operand_orders(self) -> tuple[tuple[int, ...], ...]:
        """For each operand, the permutation of its axes that gives their canonical order."""
        ranks = (1 if tensor == "bias" else len(canonical_shape(self.geometry, tensor)) for tensor in self.operands)
        return tuple(axis_order(layout, rank) for layout, rank in zip(self.layouts, ranks, strict=False))

    @cached_property
    def output_order(self) -> tuple[int, ...]:
        """The permutation of the output's axes that gives their canonical order."""
        return axis_order(self.layouts[-1], len(self.output_shape))


def canonical_shape(geometry: Conv | Channels, tensor: Tensor) -> Shape:
    """Return the canonical shape of a tensor. For a bias, the geometry must be Channels."""
    if isinstance(geometry, Channels):
        return (geometry.channels,) if tensor == "bias" else geometry.shape
    return {"src": geometry.src_shape, "dst": geometry.dst_shape, "weights": geometry.weights_shape}[tensor]


def canonical_shapes(problem: Problem) -> tuple[Shape, ...]:
    """Return the canonical shapes of a problem's operands and, last, of its output."""
    geometry, output = problem.geometry, canonical_shape(problem.geometry, problem.output)
    operands = (output[1:2] if tensor == "bias" else canonical_shape(geometry, tensor) for tensor in problem.operands)
    return (*operands, output)


def problem_of(
    op: Operator,
    shapes: Sequence[Shape],
    attributes: Attributes,
    operand_format: Format,
    output_format: Format,
    accumulate: bool = False,
) -> Problem:
    """Return the problem of a call, or raise by rules A7 to A9, T4 and G1 to G11.

    ``shapes`` has one entry per given operand, in the operator's layouts. The entry of a shape operand is its values.
    """
    check_output_format(op.name, operand_format, output_format)
    geometry, note = _geometry(op, shapes, attributes)
    operands = tuple(port.tensor for port, _ in zip(op.operands, shapes, strict=False) if not port.is_shape)
    layouts = layouts_of(attributes)
    return intern(
        Problem(
            op.name,
            op.solves_for,
            geometry,
            operands,
            op.output.tensor,
            tuple(layouts[tensor] for tensor in (*operands, op.output.tensor)),
            operand_format,
            output_format,
            accumulate,
            note,
        )
    )


@lru_cache(maxsize=REMEMBERED)
def intern(problem: Problem) -> Problem:
    """Return one shared problem for all equal problems, because comparing two takes as long as a small kernel."""
    return problem


@lru_cache(maxsize=REMEMBERED)
def of_images(problem: Problem, images: int) -> Problem:
    """Return the same problem with another number of images.

    >>> from convgrad.notation import problem
    >>> of_images(problem("BWD_W f32 NXC mb64ic4ih8oc6oh8kh3ph1"), 3).geometry.batch
    3
    """
    return intern(replace(problem, geometry=replace(problem.geometry, batch=images)))


def check_output_format(operator: str, operand_format: Format, output_format: Format) -> None:
    """Check rule T4: f64 results need f64 operands."""
    if output_format is F64 and operand_format is not F64:  # T4
        needs = f"dtype f64 needs f64 operands, because {operand_format} operands are summed in f32"
        refuse("T4", operator, f"{needs}; got {operand_format} operands. Convert each to f64")


def posed(
    op: Operator,
    geometry: Conv | Channels,
    layouts: Mapping[Tensor, str],
    operand_format: Format,
    output_format: Format,
    bias: bool = False,
) -> Problem:
    """Return the problem of an operator on a checked geometry.

    ``layouts`` are the memory formats of src, dst and weights of the underlying convolution.
    """
    ports = [port for port in op.operands if not port.is_shape and (bias or port.required)]
    tensors = (*(port.tensor for port in ports), op.output.tensor)
    lie = tuple("NCX" if tensor == "bias" else layouts[tensor] for tensor in tensors)
    return intern(
        Problem(op.name, op.solves_for, geometry, tensors[:-1], tensors[-1], lie, operand_format, output_format)
    )


def _geometry(op: Operator, shapes: Sequence[Shape], attributes: Attributes) -> tuple[Conv | Channels, str | None]:
    try:
        return _as_given(op, shapes, attributes)
    except InvalidShapeError as error:
        raise hinted(error, other_readings(op, shapes, attributes, _as_given)) from None


def _as_given(op: Operator, shapes: Sequence[Shape], attributes: Attributes) -> tuple[Conv | Channels, str | None]:
    if op.solves_for in ("bias_add", "bias"):
        return _channels(op, shapes, attributes), None
    call = shapes_by_tensor(op, shapes, attributes)
    check_batch(call)
    check_channels(call)
    conv = _conv(call)
    return conv, ignored_output_padding(call, conv)


def _conv(call: CanonicalShapes) -> Conv:
    groups = call.attributes.groups
    out_channels, in_per_group = call.shapes["weights"][:2]
    batch = next(call.shapes[t][0] for t in ("src", "dst") if t in call.shapes)
    axes = AXES[call.op.solves_for, call.op.transposed](call)
    conv = Conv(batch, groups, in_per_group * groups, out_channels, axes)
    for shape in (conv.src_shape, conv.dst_shape, conv.weights_shape):
        _check_size(call.op, shape)
    return conv


def _channels(op: Operator, shapes: Sequence[Shape], attributes: Attributes) -> Channels:
    data = shapes[0]
    batch, channels, *extents = to_canonical(data, attributes.data_format)
    if op.solves_for == "bias_add" and shapes[1] != (channels,):  # G11
        sentence = f"bias must be 1-D with one value per channel of {op.operands[0].name}, {channels}; got {shapes[1]}"
        refuse("G11", op.name, sentence)
    _check_size(op, data)
    return Channels(batch, channels, tuple(extents))


def _check_size(op: Operator, shape: Shape) -> None:
    if prod(max(extent, 1) for extent in shape) * F64.itemsize > S64_MAX:  # G10
        refuse("G10", op.name, f"a tensor's size in bytes must fit 63 bits; got canonical shape {shape}")
