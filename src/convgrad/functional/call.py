"""The steps of every call: convert the operands, check attributes and shapes, and compute the result."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, Unpack

import numpy as np

from convgrad import arrays, engines
from convgrad.array_types import Array
from convgrad.arrays import libraries
from convgrad.engines import settings
from convgrad.errors import ConvgradError
from convgrad.formats import F32, LISTED, Format
from convgrad.functional import on_gpu
from convgrad.functional.keywords import CallOptions
from convgrad.functional.types import Array as AnyArray
from convgrad.spec.activation import activated
from convgrad.spec.check import Attributes, as_integer, check_attributes
from convgrad.spec.operators import LARGEST_RANK, Operator, find, rows
from convgrad.spec.problem import Problem, problem_of
from convgrad.spec.rules import refuse
from convgrad.spec.shapes import Shape, check_extents, spatial_axes, with_full_shape
from convgrad.words import shown

REMEMBERED = 1024  # number of calls whose checks are cached


class ResultTarget(NamedTuple):
    """The number format of a result, and whether the result is added to the old values of its array."""

    format: Format
    accumulate: bool = False


class Prepared(NamedTuple):
    """A checked call. ``taken`` maps names to the caller's arrays. ``operands`` are views of them in NCX and OIX."""

    op: Operator
    attributes: Attributes
    problem: Problem
    operands: tuple[Array, ...]
    taken: Mapping[str, Array]

    def canonical_output(self, out: Array) -> Array:
        """Return the canonical view (NCX or OIX) of an output array in the caller's memory format."""
        return out.transpose(self.problem.output_order)

    def within(self, max_error: float | None) -> Prepared:
        """Return the call with the algorithm for ``max_error``, or for the context's max_error if None."""
        return self._of(engines.within(self.problem, max_error))

    def activated(self, activation: str | None) -> Prepared:
        """Return the call with an activation of its results, or with none if None. Raise by rule D13."""
        return self._of(activated(self.problem, activation))

    def _of(self, problem: Problem) -> Prepared:
        return self if problem is self.problem else self._replace(problem=problem)

    def memory_bytes(self, out: Array) -> int:
        """Return the bytes of memory that ``execute`` needs in addition to operands and output."""
        return engines.memory_bytes(self.problem, self.operands, self.canonical_output(out))

    def execute(self, out: object = None, threads: int | None = None, aligned: bool = False) -> Array:
        """Compute the result into ``out`` or a new array, and return that array. ``aligned`` is as in ``room``."""
        result = room(self.problem, out, self.taken, aligned)
        engines.execute(self.problem, self.operands, self.canonical_output(result.view(np.ndarray)), threads)
        return result


def room(problem: Problem, out: object, taken: Mapping[str, Array], aligned: bool = False) -> Array:
    """Return the array that a result is written to: the checked ``out``, or a new array.

    If ``aligned``, a new array of any size begins at the start of a cache line, so that no library has to copy it.
    """
    shape, fmt = problem.output_shape, problem.output_format
    if out is not None:
        return arrays.check_out(out, shape, fmt, taken, problem.operator)
    return arrays.aligned(shape, fmt.dtype) if aligned else arrays.empty(shape, fmt.dtype)


def prepare(
    operator: str,
    operands: tuple[object, ...],
    attributes: Mapping[str, object],
    dtype: object = None,
    accumulate: bool = False,
    lenient: bool = False,
) -> Prepared:
    """Check a call and return it with its problem and canonical operands.

    If ``lenient``, an attribute may be one int for all axes, strides and dilations default to 1, and an output shape
    must be full. Otherwise, as in ``run``, attributes must be lists, and ConvolutionBackpropData-1 also accepts an
    output_shape with only the spatial extents.
    """
    array_operands: list[Array] = []
    key = key_of(operands, attributes, array_operands)
    if key is not None:
        try:
            op, checked, problem = _remembered(operator, *key, dtype, accumulate, lenient)
        except (ConvgradError, TypeError):
            pass  # checked below without the cache: an error must quote the caller's values, or a dtype has no hash
        else:
            return bind(op, checked, problem, dict(zip(op.array_names, array_operands, strict=False)))
    return bind(*_checked(operator, operands, attributes, dtype, accumulate, lenient))


def _checked(
    operator: str,
    operands: tuple[object, ...],
    attributes: Mapping[str, object],
    dtype: object,
    accumulate: bool,
    lenient: bool,
) -> tuple[Operator, Attributes, Problem, dict[str, Array]]:
    """Check a call, and return its operator, attributes, problem, and arrays by name."""
    op = find(operator, shape_second=len(operands) > 1 and arrays.is_shape(operands[1]))
    operands = _counted(op, operands)
    taken: dict[str, Array] = {}
    named = []
    shapes: list[Shape] = []
    for port, value in zip(op.operands, operands, strict=False):
        if port.is_shape:
            shapes.append(arrays.take_shape(value, op.name, port.name))
            continue
        if isinstance(value, float):  # T1
            refuse("T1", op.name, f"{port.name} must be an array of {LISTED}; got the number {shown(value)}")
        taken[port.name], fmt = arrays.take(value, op.name, port.name)
        named.append((port.name, fmt))
        shapes.append(taken[port.name].shape)
    values = {port.name: value for port, value in zip(op.operands, operands, strict=False)}
    common = arrays.check_common(named, values, op.name)
    to = arrays.output_format(dtype, common, op.name)
    return op, *pose(op, tuple(shapes), attributes, common, ResultTarget(to, bool(accumulate)), lenient), taken


_SEQUENCES = (tuple, list)
Plain = tuple[Any, ...]  # a hashable description of operands or attributes


def key_of(
    operands: tuple[object, ...], attributes: Mapping[str, object], array_operands: list[Array]
) -> tuple[Plain, Plain] | None:
    """Return the key under which the result of a call's checks is cached, or None if it cannot be cached.

    A call can be cached if its attributes are ints, strings, None or sequences of ints. A shape operand must not be an
    array, because the checks read its values. A bool is not accepted as an int: True == 1, but only 1 is legal. The
    array operands are appended to ``array_operands`` as NumPy arrays.
    """
    described: list[object] = []
    for value in operands:
        array = value if type(value) is np.ndarray else None
        if array is None:
            extents = None if value is None else _ints(value)
            if value is None or extents is not None:
                described.append(extents)
                continue
            array = libraries.opened(value)
        if array is None or array.dtype.kind in "iu":
            return None
        described.append((array.dtype, array.shape))
        array_operands.append(array)
    plain: list[object] = [*attributes]
    for value in attributes.values():
        kind = type(value)
        if kind is int or kind is str or value is None:
            plain.append(value)
        elif (numbers := _ints(value)) is not None:
            plain.append(numbers)
        else:
            return None
    return tuple(described), tuple(plain)


def _ints(value: object) -> tuple[int, ...] | None:
    """Return a tuple or list of ints as a tuple; None for any other value, also for a list with a bool."""
    if type(value) is not tuple and not isinstance(value, _SEQUENCES):  # torch.Size is a subclass of tuple
        return None
    if len(value) > LARGEST_RANK:
        return None
    for item in value:
        if type(item) is not int:
            return None
    return tuple(value)


@lru_cache(maxsize=REMEMBERED)
def _remembered(
    operator: str, described: Plain, plain: Plain, dtype: object, accumulate: bool, lenient: bool
) -> tuple[Operator, Attributes, Problem]:
    """Check a call that is given by its cache key. The checks depend only on types, shapes and attributes."""
    return _checked(operator, *described_call(described, plain), dtype, accumulate, lenient)[:3]


def described_call(described: Plain, plain: Plain) -> tuple[tuple[object, ...], dict[str, object]]:
    """Return operands and attributes for a key of ``key_of``. The arrays have arbitrary values and take no memory."""
    operands = tuple(
        arrays.stand_in(operand[1], operand[0]) if operand and isinstance(operand[0], np.dtype) else operand
        for operand in described
    )
    names, values = plain[: len(plain) // 2], plain[len(plain) // 2 :]
    return operands, dict(zip(names, values, strict=True))


def pose(
    op: Operator,
    shapes: tuple[Shape, ...],
    attributes: Mapping[str, object],
    common: Format,
    target: ResultTarget,
    lenient: bool,
) -> tuple[Attributes, Problem]:
    """Return the checked attributes and the problem of a call on operands of these shapes."""
    axes = spatial_axes(op, shapes[0])
    checked = check_attributes(op, _spread(op, attributes, axes) if lenient else attributes, axes)
    full, checked = (shapes, checked) if lenient else with_full_shape(op, shapes, checked)
    return checked, problem_of(op, full, checked, common, target.format, target.accumulate)


def bind(op: Operator, attributes: Attributes, problem: Problem, taken: Mapping[str, Array]) -> Prepared:
    """Return the prepared call of a problem on the arrays ``taken``, which have the problem's shapes and type."""
    return Prepared(op, attributes, problem, canonical(problem, taken), taken)


def canonical(problem: Problem, taken: Mapping[str, Array]) -> tuple[Array, ...]:
    """Return the canonical views (NCX, OIX) of operands, or of copies if the byte order is not native."""
    fmt, orders = problem.operand_format, problem.operand_orders
    return tuple([arrays.native(a, fmt).transpose(order) for a, order in zip(taken.values(), orders, strict=True)])


def solve(
    problem: Problem,
    operands: Sequence[Array],
    out: Array | None = None,
    threads: int | None = None,
    aligned: bool = False,
) -> Array:
    """Compute a problem from arrays in its shapes, type and memory formats, and return ``out`` or a new array."""
    taken: dict[str, Array] = dict(zip(problem.operands, operands, strict=True))
    result = room(problem, out, taken, aligned)
    engines.execute(problem, canonical(problem, taken), result.transpose(problem.output_order), threads)
    return result


def call(
    operator: str,
    operands: tuple[object, ...],
    attributes: Mapping[str, object],
    *,
    lenient: bool = True,
    **options: Unpack[CallOptions],
) -> AnyArray:
    """Check and compute a call. Return the result: ``out``, or a new array of the first operand's library."""
    out, accumulate, threads = options.get("out"), options.get("accumulate", False), options.get("threads")
    check_options(operator, out, accumulate, threads)
    first = operands[0] if operands else None
    foreign = type(first) is not np.ndarray
    gpu_call = on_gpu.gpu_operands(operator, operands) if foreign else None
    if gpu_call:
        operands = gpu_call.operands
    prepared = prepare(operator, operands, attributes, options.get("dtype"), accumulate, lenient)
    prepared = prepared.activated(options.get("activation")).within(options.get("max_error"))
    if prepared.problem.note:
        warnings.warn(prepared.problem.note, UserWarning, stacklevel=3)
    if gpu_call:
        gpu_call.execute(prepared.problem, prepared.operands, prepared.taken, out)
        libraries.written(out)
        return out
    return handed_over(libraries.on_its_threads(first, prepared.execute, out, threads, foreign), first, out)


def handed_over(result: Array, first: object, out: object) -> AnyArray:
    """Return a result to the caller: ``out`` itself, or an array of the first operand's library."""
    if out is None:
        return result if type(first) is np.ndarray else libraries.like(first)(result)
    if type(out) is not np.ndarray:
        libraries.written(out)
    return out


def problem_from_shapes(
    operator: str,
    shapes: tuple[object, ...],
    attributes: Mapping[str, object],
    operand_format: Format = F32,
    dtype: object = None,
    spell_out: bool = False,
) -> tuple[Operator, Problem]:
    """Return the operator's table row and the problem of a call on operands of these shapes.

    If ``spell_out``, an attribute may be one int for all axes, and strides and dilations default to 1.
    Shapes alone do not distinguish the two operand orders of ConvolutionBackpropFilters-1. The order of the
    operator's document is tried first, then the older order.
    """
    errors: list[ConvgradError] = []
    for op in rows(operator):
        try:
            return op, problem_of_row(op, _counted(op, shapes), attributes, operand_format, dtype, spell_out)[1]
        except ConvgradError as error:
            errors.append(error)
    raise errors[0]


def problem_of_row(
    op: Operator,
    shapes: tuple[object, ...],
    attributes: Mapping[str, object],
    operand_format: Format,
    dtype: object = None,
    spell_out: bool = False,
) -> tuple[Attributes, Problem]:
    """Return the checked attributes and the problem of a call of one operator row on operands of these shapes."""
    extents = [arrays.take_shape(s, op.name, port.name) for port, s in zip(op.operands, shapes, strict=False)]
    for port, shape in zip(op.operands, extents, strict=False):
        if not port.is_shape:
            check_extents(op, port.name, shape)
    to = arrays.output_format(dtype, operand_format, op.name)
    spelled = _spread(op, attributes, spatial_axes(op, extents[0])) if spell_out else attributes
    return pose(op, tuple(extents), spelled, operand_format, ResultTarget(to), lenient=False)


def _counted(op: Operator, operands: tuple[object, ...]) -> tuple[object, ...]:
    """Return the operands without trailing Nones. Raise an error if the operator takes another number of operands."""
    while operands and operands[-1] is None:
        operands = operands[:-1]
    if len(operands) not in op.operand_counts:  # O2
        names = ", ".join(p.name if p.required else f"[{p.name}]" for p in op.operands)
        hint = "" if operands else ", which are given by their places and not by name"
        refuse("O2", op.name, f"it takes the operands {names}; got {len(operands)}{hint}")
    return operands


def _spread(op: Operator, attributes: Mapping[str, object], axes: int) -> dict[str, object]:
    """Return the attributes with an int repeated for all axes. Required attributes that are missing become 1."""
    per_axis = {a.name: a for a in op.attributes if a.per_axis}
    required: dict[str, object] = {name: None for name, a in per_axis.items() if a.required}

    def spread(name: str, value: object) -> object:
        if value is None and name in required:
            value = 1
        return (value,) * axes if name in per_axis and as_integer(value) is not None else value

    return {name: spread(name, value) for name, value in (required | dict(attributes)).items()}


def spelled_out(operator: str, operands: tuple[object, ...], attributes: Mapping[str, object]) -> Mapping[str, object]:
    """Return attributes in the form that ``run`` accepts: an int for all axes becomes a tuple."""
    if not operands:
        return attributes
    op = find(operator, shape_second=len(operands) > 1 and arrays.is_shape(operands[1]))
    first, _ = arrays.take(operands[0], op.name, op.operands[0].name)
    return _spread(op, attributes, spatial_axes(op, first.shape))


def check_options(operator: str, out: object, accumulate: object, threads: object) -> None:
    """Check, by rules D5 and D6, the options ``out``, ``accumulate`` and ``threads``, which all functions have."""
    if not isinstance(accumulate, bool | np.bool_):  # D5
        refuse("D5", operator, f"accumulate must be a bool; got {shown(accumulate)}")
    if accumulate and out is None:  # D5
        refuse("D5", operator, "accumulate=True must come with out, the array to add into; got no out")
    if threads is not None:
        settings.checked(threads, operator)
