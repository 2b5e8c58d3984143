"""The way of every call: operands through the door, attributes and shapes checked, the problem executed."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from convgrad import arrays, engines
from convgrad.errors import ConvgradError
from convgrad.formats import F32, Format
from convgrad.spec.check import Attributes, as_integer, check_attributes
from convgrad.spec.layouts import axis_order
from convgrad.spec.operators import Operator, find, rows
from convgrad.spec.problem import Problem, problem_of
from convgrad.spec.rules import refuse
from convgrad.spec.shapes import Shape, check_extents, spatial_axes, with_full_shape

Array = NDArray[Any]

REMEMBERED = 1024  # calls whose checks are not made again


@dataclass(frozen=True)
class Prepared:
    """A checked call: operator, attributes, problem; its operands as canonical views, the caller's arrays by name."""

    op: Operator
    attributes: Attributes
    problem: Problem
    operands: tuple[Array, ...]
    taken: Mapping[str, Array]

    def canonical_output(self, out: Array) -> Array:
        """Return the canonical view of an output in the caller's layout."""
        return out.transpose(self.problem.output_order)

    def memory_bytes(self, out: Array) -> int:
        """Return what ``execute`` takes beside its arrays."""
        return engines.memory_bytes(self.problem, self.operands, self.canonical_output(out))

    def execute(self, out: object = None, threads: int | None = None) -> Array:
        """Compute the result into ``out``, or a new array, and return it."""
        problem = self.problem
        if out is None:
            result = np.empty(problem.output_shape, problem.output_format.dtype)
        else:
            shape, fmt = problem.output_shape, problem.output_format
            result = arrays.check_out(out, shape, fmt, self.taken, problem.operator)
        engines.execute(problem, self.operands, self.canonical_output(result.view(np.ndarray)), threads)
        return result


def prepare(
    operator: str,
    operands: tuple[object, ...],
    attributes: Mapping[str, Any],
    dtype: object = None,
    accumulate: bool = False,
    lenient: bool = False,
) -> Prepared:
    """Check a call and return its problem with canonical operands.

    The functions are ``lenient``: one int stands for all axes, while output shapes are full. ``run`` is strict about
    lists, but ConvolutionBackpropData-1 takes an output_shape of spatial extents alone there.
    """
    op = find(operator, shape_second=len(operands) > 1 and arrays.is_shape(operands[1]))
    operands = _counted(op, operands)
    taken: dict[str, Array] = {}
    named = []
    shapes: list[tuple[int, ...]] = []
    for port, value in zip(op.operands, operands, strict=False):
        if port.is_shape:
            shapes.append(arrays.take_shape(value, op.name, port.name))
            continue
        taken[port.name], fmt = arrays.take(value, op.name, port.name)
        named.append((port.name, fmt))
        shapes.append(taken[port.name].shape)
    common = arrays.check_common(named, op.name)
    to = arrays.output_format(dtype, common, op.name)
    plain, settled = _plain(attributes), (common, to, accumulate, lenient)
    if plain is not None:
        with suppress(ConvgradError):  # refused again below, in the caller's own words
            return bind(op, *_remembered(op, tuple(shapes), plain, *settled), taken)
    return bind(op, *_check(op, tuple(shapes), attributes, *settled), taken)


Plain = tuple[tuple[str, Any], ...]


def _plain(attributes: Mapping[str, Any]) -> Plain | None:
    """Return attributes that are hashable and no more than equal: ints, strings, None and sequences of ints; else None.

    True == 1, and hashes alike, but is refused where 1 is taken.
    """
    plain = []
    for name, value in attributes.items():
        kind = type(value)
        if kind is list or kind is tuple:
            plain.append((name, tuple(value)))
            if not all(type(item) is int for item in value):
                return None
        elif kind is int or kind is str or value is None:
            plain.append((name, value))
        else:
            return None
    return tuple(plain)


@lru_cache(maxsize=REMEMBERED)
def _remembered(
    op: Operator, shapes: tuple[Shape, ...], plain: Plain, common: Format, to: Format, accumulate: bool, lenient: bool
) -> tuple[Attributes, Problem]:
    return _check(op, shapes, dict(plain), common, to, accumulate, lenient)


def _check(
    op: Operator,
    shapes: tuple[Shape, ...],
    attributes: Mapping[str, Any],
    common: Format,
    to: Format,
    accumulate: bool,
    lenient: bool,
) -> tuple[Attributes, Problem]:
    """Return the checked attributes of a call and the problem they pose."""
    axes = spatial_axes(op, shapes[0])
    checked = check_attributes(op, _spread(op, attributes, axes) if lenient else attributes, axes)
    full, checked = (shapes, checked) if lenient else with_full_shape(op, shapes, checked)
    return checked, problem_of(op, full, checked, common, to, accumulate)


def bind(op: Operator, attributes: Attributes, problem: Problem, taken: Mapping[str, Array]) -> Prepared:
    """Return the prepared call of a problem on arrays of its shapes and type, by operand name."""
    views = (
        arrays.native(a, problem.operand_format).transpose(axis_order(layout, a.ndim))
        for a, layout in zip(taken.values(), problem.layouts, strict=False)
    )
    return Prepared(op, attributes, problem, tuple(views), taken)


def call(
    operator: str,
    operands: tuple[object, ...],
    attributes: Mapping[str, Any],
    *,
    dtype: object,
    out: object,
    accumulate: bool,
    threads: int | None,
    lenient: bool = True,
) -> Array:
    """Run one call from the caller's operands to the caller's output."""
    check_options(operator, out, accumulate, threads)
    prepared = prepare(operator, operands, attributes, dtype, accumulate, lenient)
    if prepared.problem.note:
        warnings.warn(prepared.problem.note, UserWarning, stacklevel=3)
    return prepared.execute(out, threads)


def problem_from_shapes(
    operator: str,
    shapes: tuple[object, ...],
    attributes: Mapping[str, Any],
    operand_format: Format = F32,
    dtype: object = None,
) -> tuple[Operator, Problem]:
    """Return the row and the problem of a call on operands of these shapes.

    Shapes alone do not tell the two orders of ConvolutionBackpropFilters-1 apart: its document's is meant, or else the
    older one if only that fits.
    """
    errors: list[ConvgradError] = []
    for op in rows(operator):
        try:
            return op, problem_of_row(op, _counted(op, shapes), attributes, operand_format, dtype)[1]
        except ConvgradError as error:
            errors.append(error)
    raise errors[0]


def problem_of_row(
    op: Operator,
    shapes: tuple[object, ...],
    attributes: Mapping[str, Any],
    operand_format: Format,
    dtype: object = None,
) -> tuple[Attributes, Problem]:
    """Return the checked attributes and the problem of a strict call of one row on operands of these shapes."""
    extents = [arrays.take_shape(s, op.name, port.name) for port, s in zip(op.operands, shapes, strict=False)]
    for port, shape in zip(op.operands, extents, strict=False):
        if not port.is_shape:
            check_extents(op, port.name, shape)
    to = arrays.output_format(dtype, operand_format, op.name)
    return _check(op, tuple(extents), attributes, operand_format, to, accumulate=False, lenient=False)


def _counted(op: Operator, operands: tuple[object, ...]) -> tuple[object, ...]:
    """Return the operands without trailing ones that are None, if their number is one the operator takes."""
    while operands and operands[-1] is None:
        operands = operands[:-1]
    if len(operands) not in op.operand_counts:  # O2
        names = ", ".join(p.name if p.required else f"[{p.name}]" for p in op.operands)
        refuse("O2", op.name, f"it takes the operands {names}; got {len(operands)}")
    return operands


def _spread(op: Operator, attributes: Mapping[str, Any], axes: int) -> dict[str, Any]:
    """Let one int stand for all axes, and None for the default of 1 where an attribute is required."""
    per_axis = {a.name: a for a in op.attributes if a.per_axis}

    def spread(name: str, value: object) -> object:
        if value is None and name in per_axis and per_axis[name].required:
            value = 1
        return (value,) * axes if name in per_axis and as_integer(value) is not None else value

    return {name: spread(name, value) for name, value in attributes.items()}


def check_options(operator: str, out: object, accumulate: object, threads: object) -> None:
    """Check the options every function has, by rules D5 and D6."""
    if not isinstance(accumulate, bool | np.bool_):  # D5
        refuse("D5", operator, f"accumulate must be a bool; got {accumulate!r}")
    if accumulate and out is None:  # D5
        refuse("D5", operator, "accumulate=True must come with out, the array to add into; got no out")
    number = as_integer(threads)
    if threads is not None and (number is None or number < 1):  # D6
        refuse("D6", operator, f"threads must be a positive integer; got {threads!r}")
