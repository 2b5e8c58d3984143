"""The shape of each tensor of a call's underlying convolution, from operands, shape operands and shape attributes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NoReturn

from convgrad.spec.check import Attributes
from convgrad.spec.layouts import from_canonical, to_canonical
from convgrad.spec.operators import LARGEST_RANK, S64_MAX, Operator, Tensor
from convgrad.spec.rules import refuse
from convgrad.words import shown

Shape = tuple[int, ...]

AXES_WORDS = {
    "NXC": "batch, spatial axes, channels",
    "NCX": "batch, channels, spatial axes",
    "XIO": "spatial axes, in_channels / groups, out_channels",
    "OIX": "out_channels, in_channels / groups, spatial axes",
    "XOI": "spatial axes, out_channels / groups, in_channels",
    "IOX": "in_channels, out_channels / groups, spatial axes",
}


@dataclass(frozen=True)
class CanonicalShapes:
    """The canonical shapes of the underlying convolution's tensors. ``names`` are their names as operands."""

    op: Operator
    attributes: Attributes
    shapes: Mapping[Tensor, Shape]
    names: Mapping[Tensor, str]
    layouts: Mapping[Tensor, str]

    def refuse(self, rule: str, sentence: str) -> NoReturn:
        """Raise the error of a rule for this operator."""
        refuse(rule, self.op.name, sentence)

    def as_given(self, tensor: Tensor) -> Shape:
        """Return a tensor's shape in the caller's layout."""
        return from_canonical(self.shapes[tensor], self.layouts[tensor])


def spatial_axes(op: Operator, shape: Shape) -> int:
    """Return the number of spatial axes from the shape of the first operand, or raise by rule G1."""
    minimum = 2 if op.attribute("strides") is None else 3
    if len(shape) < minimum:  # G1
        name, axes = op.operands[0].name, "batch and channels" if minimum == 2 else "batch, channels and spatial axes"
        got = f"got {name} of rank {len(shape)}"
        if len(shape) == 2:
            got += f". For one image of one channel, use {name}[None, ..., None] in NXC, {name}[None, None] in NCX"
        refuse("G1", op.name, f"{name} must have {axes}, a rank of at least {minimum}; {got}")
    if len(shape) > LARGEST_RANK:  # G1
        refuse("G1", op.name, f"NumPy arrays have a rank of at most {LARGEST_RANK}; got rank {len(shape)}")
    return len(shape) - 2


def check_extents(op: Operator, name: str, shape: Shape) -> None:
    """Check that the extents of a shape that does not come from an array are legal."""
    if min(shape, default=0) < 0:  # G9
        refuse("G9", op.name, f"the shape of {name} must hold non-negative extents; got {shown([*shape])}")
    if max(shape, default=0) > S64_MAX:  # G10
        refuse("G10", op.name, f"the shape of {name} must hold extents below 2^63; got {shown([*shape])}")


def with_full_shape(
    op: Operator, shapes: Sequence[Shape], attributes: Attributes
) -> tuple[tuple[Shape, ...], Attributes]:
    """Return shapes and attributes. An output_shape of spatial extents only is completed if the operator allows it."""
    rank = len(shapes[0])
    if not op.spatial_shape or len(shapes[1]) != rank:
        return tuple(shapes), attributes

    def full(values: Shape) -> Shape:
        if len(values) != rank - 2:
            return values
        in_channels = to_canonical(shapes[1], attributes.weights_format)[1] * attributes.groups
        return from_canonical((shapes[0][0], in_channels, *values), attributes.data_format)

    operands = (full(s) if p.is_shape else s for p, s in zip(op.operands, shapes, strict=False))
    shape = attributes.dst_shape
    return tuple(operands), attributes if shape is None else replace(attributes, dst_shape=full(shape))


def layouts_of(attributes: Attributes) -> dict[Tensor, str]:
    """Return the memory format of each tensor. A bias has one axis, so every format has the same meaning for it."""
    data, weights = attributes.data_format, attributes.weights_format
    return {"src": data, "dst": data, "weights": weights, "bias": "NCX"}


def shapes_by_tensor(op: Operator, shapes: Sequence[Shape], attributes: Attributes) -> CanonicalShapes:
    """Return a call's shape of each tensor. A shape operand takes precedence over the attribute of the same meaning."""
    layouts = layouts_of(attributes)
    known: dict[Tensor, Shape] = {}
    names: dict[Tensor, str] = {op.output.tensor: op.output.name}
    for port, shape in zip(op.operands, shapes, strict=False):
        names[port.tensor] = port.name
        if port.is_shape:
            known[port.tensor] = _shape_argument(op, port.name, shape, len(shapes[0]), layouts[port.tensor])
        else:
            known[port.tensor] = shape
    shape_attributes: tuple[tuple[Tensor, str, Shape | None], ...] = (
        ("weights", "weights_shape", attributes.weights_shape),
        ("src", "dst_shape", attributes.dst_shape),
    )
    for tensor, meaning, values in shape_attributes:
        attribute = op.attribute(meaning)
        if attribute and values is not None and tensor not in known:
            names[tensor] = attribute.name
            known[tensor] = _shape_argument(op, attribute.name, values, len(shapes[0]), layouts[tensor])
    if op.solves_for == "weights" and "weights" not in known:  # A7
        name = next(p.name for p in op.operands if p.is_shape)
        refuse(
            "A7",
            op.name,
            f"{name} must be given, as operand or attribute: shapes do not determine the kernel; got none",
        )
    _check_ranks(op, {names[tensor]: len(shape) for tensor, shape in known.items() if tensor != "bias"})
    canonical = {t: (s if t == "bias" else to_canonical(s, layouts[t])) for t, s in known.items()}
    return CanonicalShapes(op, attributes, canonical, names, layouts)


def _shape_argument(op: Operator, name: str, values: Shape, rank: int, layout: str) -> Shape:
    """Return a shape that is given as operand or attribute, after checks of its length and signs."""
    if len(values) != rank or min(values) < 0:  # G9
        needed = f"{rank} non-negative extents, the rank of {op.operands[0].name}"
        refuse("G9", op.name, f"{name} must hold {needed}; got {shown([*values])}; {layout} is ({AXES_WORDS[layout]})")
    if max(values) > S64_MAX:  # G10
        refuse("G10", op.name, f"{name} must hold extents below 2^63; got {shown([*values])}")
    return values


def _check_ranks(op: Operator, ranks: Mapping[str, int]) -> None:
    if len(set(ranks.values())) > 1:  # G1
        listed = ", ".join(f"{name} of rank {rank}" for name, rank in ranks.items())
        hint = "".join(
            f". For one image, use {name}[None]"
            for name, rank in ranks.items()
            if "weights" in ranks and name in op.array_names and rank == ranks["weights"] - 1
        )
        refuse("G1", op.name, f"all tensors must have the same rank (spatial axes + 2, at least 3); got {listed}{hint}")
