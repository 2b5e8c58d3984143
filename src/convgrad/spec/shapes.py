"""The shapes of a call, sorted by tensor of the underlying convolution: operands, shape operands, shape attributes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

from convgrad.spec.check import Attributes
from convgrad.spec.layouts import from_canonical, to_canonical
from convgrad.spec.operators import Operator, Tensor
from convgrad.spec.rules import refuse

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Call:
    """Canonical shapes by tensor of the underlying convolution; ``names`` are what the caller calls them."""

    op: Operator
    attributes: Attributes
    shapes: Mapping[Tensor, Shape]
    names: Mapping[Tensor, str]
    layouts: Mapping[Tensor, str]

    def refuse(self, rule: str, sentence: str) -> NoReturn:
        """Raise the error of a rule in this operator's name."""
        refuse(rule, self.op.name, sentence)

    def as_given(self, tensor: Tensor) -> Shape:
        """Return a shape as the caller wrote it."""
        return from_canonical(self.shapes[tensor], self.layouts[tensor])


def gather(op: Operator, shapes: Sequence[Shape], attributes: Attributes) -> Call:
    """Sort operands and shape attributes by tensor. A shape operand beats the attribute of the same meaning."""
    data, weights = attributes.data_format, attributes.weights_format
    layouts: dict[Tensor, str] = {"src": data, "dst": data, "weights": weights, "bias": "NCX"}
    data_rank = len(shapes[0])
    known: dict[Tensor, Shape] = {}
    names: dict[Tensor, str] = {op.output.tensor: op.output.name}
    for port, shape in zip(op.operands, shapes, strict=False):
        names[port.tensor] = port.name
        if port.is_shape:
            shape = _completed_shape(op, tuple(shape), shapes, attributes, data_rank)  # noqa: PLW2901
            _check_shape_argument(op, port.name, shape, data_rank)
        known[port.tensor] = shape
    shape_attributes: tuple[tuple[Tensor, str, Shape | None], ...] = (
        ("weights", "weights_shape", attributes.weights_shape),
        ("src", "dst_shape", attributes.dst_shape),
    )
    for tensor, meaning, values in shape_attributes:
        attribute = op.attribute(meaning)
        if attribute and values is not None and tensor not in known:
            names[tensor] = attribute.name
            known[tensor] = _completed_shape(op, values, shapes, attributes, data_rank)
            _check_shape_argument(op, attribute.name, known[tensor], data_rank)
    if op.solves_for == "weights" and "weights" not in known:  # A7
        name = next(p.name for p in op.operands if p.is_shape)
        refuse(
            "A7",
            op.name,
            f"{name} must be given, as operand or attribute: shapes do not determine the kernel; got none",
        )
    canonical = {t: (s if t == "bias" else to_canonical(s, layouts[t])) for t, s in known.items()}
    return Call(op, attributes, canonical, names, layouts)


def _completed_shape(op: Operator, values: Shape, shapes: Sequence[Shape], attributes: Attributes, rank: int) -> Shape:
    """Fill N and channels into an output_shape of spatial extents alone, which ConvolutionBackpropData-1 also takes."""
    if op.name != "ConvolutionBackpropData-1" or len(values) != rank - 2 or len(shapes[1]) != rank:
        return values
    in_channels = to_canonical(shapes[1], attributes.weights_format)[1] * attributes.groups
    return from_canonical((shapes[0][0], in_channels, *values), attributes.data_format)


def _check_shape_argument(op: Operator, name: str, values: Shape, rank: int) -> None:
    if len(values) != rank or any(v < 0 for v in values):  # G9
        sentence = (
            f"{name} must hold {rank} non-negative extents, the rank of {op.operands[0].name}; got {list(values)}"
        )
        refuse("G9", op.name, sentence)
