"""The computation of a layer's gradients in one call: operands are checked once for all requested gradients."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import chain, combinations
from types import MappingProxyType
from typing import NamedTuple, TypedDict, Unpack

import numpy as np

from convgrad import arrays, engines
from convgrad.array_types import Array
from convgrad.arrays.libraries import on_its_threads
from convgrad.engines.settings import count
from convgrad.errors import ConvgradError
from convgrad.formats import Format
from convgrad.functional.call import (
    REMEMBERED,
    Plain,
    ResultTarget,
    check_options,
    described_call,
    handed_over,
    key_of,
    pose,
    room,
)
from convgrad.functional.types import DType, MaybeArray
from convgrad.spec.check import as_items
from convgrad.spec.derivatives import COTANGENT, derivative
from convgrad.spec.operators import LARGEST_RANK, Operator, Port, Tensor, find, solving_for
from convgrad.spec.problem import Problem, check_output_format, intern, posed
from convgrad.spec.rules import refuse
from convgrad.words import shown

Taken = Array | tuple[int, ...]  # a checked operand: an array, or its shape
Operand = MaybeArray  # a checked operand, or a list of ints as its shape


class Gradients(NamedTuple):
    """The gradients of a layer by src, weights and bias.

    Args:
        src: The gradient by src, of the shape of src; None if it was not requested. Default: None.
        weights: The gradient by weights, of the shape of weights; None if it was not requested. Default: None.
        bias: The gradient by bias, of shape (O,); None if it was not requested. Default: None.
    """

    src: MaybeArray = None
    weights: MaybeArray = None
    bias: MaybeArray = None


class Asked(NamedTuple):
    """A requested gradient: its index in Gradients, its problem, and the operands that it reads.

    ``given`` are the indices of these operands in OPERANDS. ``read`` has only the operands that no earlier gradient
    reads, each with its permutation to canonical axes.
    """

    place: int
    problem: Problem
    operands: tuple[int, ...]
    read: tuple[tuple[int, tuple[int, ...]], ...]


Names = Collection[str]
OfEach = Mapping[str, object] | Sequence[object]


class JointOptions(TypedDict, total=False):
    """The options of a call that computes all gradients of a layer."""

    needs: Names
    dtype: DType | Mapping[str, DType] | None
    out: OfEach | None
    accumulate: bool | Names
    threads: int | None
    max_error: float | None


NAMES = Gradients._fields
KNOWN = frozenset(NAMES)
IN_ORDER = tuple(chain.from_iterable(combinations(NAMES, size) for size in (3, 2, 1, 0)))  # legal ``needs``
OUTS = tuple(f"the out of {name}" for name in NAMES)
NONE: tuple[object, ...] = (None, None, None)
ABSENT: tuple[MaybeArray, ...] = (None, None, None)
NOTHING: tuple[str, ...] = ()
NO_ARRAYS = MappingProxyType[str, Array]({})
SHAPES = (tuple, list)
OPERANDS = ("src", "diff_dst", "weights")
MEANT: Mapping[int | str, int] = {0: 0, COTANGENT: 1, 1: 2}  # from the operand of a derivative to its index in OPERANDS


def _row(name: str, of: str) -> Operator:
    """Return the operator row for a function's checks: that of the weight gradient, with a shape for weights."""
    op = find(of)
    ports = (*op.operands[:2], Port("weights", "weights", is_shape=True))
    attributes = tuple(a for a in op.attributes if a.means != "weights_shape")
    return replace(op, name=name, operands=ports, attributes=attributes)


ROWS = {
    "convolution_backward": _row("convolution_backward", "ConvolutionBackwardWeights"),
    "conv_transpose_backward": _row("conv_transpose_backward", "ConvTransposeBackwardWeights"),
}


def backward(
    function: str,
    operands: tuple[object, ...],
    attributes: Mapping[str, object],
    **options: Unpack[JointOptions],
) -> Gradients:
    """Return the requested gradients of a layer, computed from its src, diff_dst and weights."""
    needs, dtype, out = options["needs"], options["dtype"], options["out"]
    accumulate, threads = options["accumulate"], options["threads"]
    outs = NONE if out is None else _of_each(function, "out", out)
    added = NOTHING if accumulate is False else _added(function, accumulate, outs)
    check_options(function, out, False, threads)
    wanted = needs if type(needs) is tuple and needs in IN_ORDER else _names(function, "needs", needs)
    dtypes = (
        NONE if dtype is None else _of_each(function, "dtype", dtype) if isinstance(dtype, Mapping) else (dtype,) * 3
    )
    taken, asked = _prepared(function, operands, attributes, (wanted, dtypes, added))
    rooms: Sequence[Array | None] = ABSENT if out is None else _rooms(asked, taken, outs)
    threads = count(threads)
    views, results = [*ABSENT], [*ABSENT]
    first = operands[isinstance(taken[0], SHAPES)]
    foreign = type(first) is not np.ndarray
    for place, asked_for, numbers, read in asked:
        problem = engines.within(asked_for, options["max_error"])
        for number, order in read:
            views[number] = arrays.native(taken[number], problem.operand_format).transpose(order)
        result = rooms[place]
        if result is None:
            result = room(problem, None, NO_ARRAYS, foreign)
        view = result.transpose(problem.output_order)
        on_its_threads(first, engines.execute, problem, [views[number] for number in numbers], view, threads)
        results[place] = handed_over(result, first, outs[place])
    return Gradients(*results)


def _rooms(asked: tuple[Asked, ...], taken: Sequence[Operand], outs: Sequence[object]) -> list[Array | None]:
    """Return the checked arrays of ``out``, which overlap neither each other nor an array that is read."""
    operands = {OPERANDS[number]: taken[number] for gradient in asked for number, _ in gradient.read}
    rooms: list[Array | None] = [None] * len(NAMES)
    earlier: dict[str, Array] = {}
    for place, problem, *_ in asked:
        if outs[place] is not None:
            rooms[place] = own = room(problem, outs[place], operands).view(np.ndarray)
            sentence = f"{OUTS[place]} must not overlap that of another gradient"
            arrays.check_apart(own, earlier, problem.operator, sentence)
            earlier[OUTS[place]] = own
    return rooms


# -- the requested gradients -------------------------------------------------------------------------------------------


def _names(function: str, option: str, names: Names) -> tuple[str, ...]:
    """Check names of gradients, and return them in the order of Gradients."""
    held = as_items(names, LARGEST_RANK)
    if held is None:  # O3
        hint = f". Use ({shown(names)},)" if isinstance(names, str) and names in NAMES else ""
        refuse("O3", function, f"{option} must be a tuple of names of {', '.join(NAMES)}; got {shown(names)}{hint}")
    for name in held:
        if not isinstance(name, str) or name not in NAMES:  # O3
            refuse("O3", function, f"{option} must hold names of {', '.join(NAMES)}; got {shown(name)}")
    return tuple([name for name in NAMES if name in held])


def _of_each(function: str, option: str, values: OfEach) -> tuple[object, ...]:
    """Return an option's value for each gradient, from a mapping or a tuple. Gradients without a value get None."""
    if isinstance(values, dict | Mapping):  # dict first, because its check is faster
        if not values.keys() <= KNOWN:
            _names(function, option, values)
        return values.get("src"), values.get("weights"), values.get("bias")
    if not isinstance(values, tuple | list) or len(values) != len(NAMES):  # O3
        sentence = f"a mapping from names of {', '.join(NAMES)}, or a tuple of {len(NAMES)}"
        refuse("O3", function, f"{option} must be {sentence}; got {type(values).__name__}")
    return tuple(values)


def _added(function: str, accumulate: bool | Names, outs: Sequence[object]) -> tuple[str, ...]:
    """Return the names of the gradients to add into their ``out``: all with an ``out``, or those in ``accumulate``."""
    names_with_out = tuple(name for name, out in zip(NAMES, outs, strict=True) if out is not None)
    if not isinstance(accumulate, Collection | bool | np.bool_) or isinstance(accumulate, str):  # D5
        hint = f". Use ({accumulate!r},)" if isinstance(accumulate, str) and accumulate in NAMES else ""
        sentence = f"accumulate must be a bool or a tuple of names of {', '.join(NAMES)}"
        refuse("D5", function, f"{sentence}; got {shown(accumulate)}{hint}")
    if not isinstance(accumulate, Collection):
        check_options(function, names_with_out or None, accumulate, None)
        return names_with_out if accumulate else ()
    named = _names(function, "accumulate", accumulate)
    for name in named:
        if name not in names_with_out:  # D5
            refuse("D5", function, f"accumulate must come with out, the array to add into; got none for {name}")
    return named


# -- their problems ----------------------------------------------------------------------------------------------------


def _prepared(
    function: str, operands: tuple[object, ...], attributes: Mapping[str, object], wanted: Plain
) -> tuple[Sequence[Operand], tuple[Asked, ...]]:
    """Return the operands, each an array or a shape, and the requested gradients."""
    array_operands: list[Array] = []
    key = key_of(operands, attributes, array_operands)
    if key is not None:
        try:
            known = _remembered(function, *key, wanted)
        except (ConvgradError, TypeError):
            pass  # checked below without the cache: an error must quote the caller's values, or a dtype has no hash
        else:
            opened = iter(array_operands)
            return [operand if isinstance(operand, SHAPES) else next(opened) for operand in operands], known
    taken = _all_taken(function, operands)
    return taken, _asked(function, taken, attributes, *wanted)


def _all_taken(function: str, operands: tuple[object, ...]) -> tuple[Taken, ...]:
    """Return the operands as shapes, or as checked arrays of one type."""
    values = dict(zip(OPERANDS, operands, strict=True))
    taken = {name: _taken(function, name, value) for name, value in values.items()}
    arrays.check_common(_formats(function, taken), values, function)
    return tuple(taken.values())


def _formats(function: str, taken: Mapping[str, Taken]) -> list[tuple[str, Format]]:
    """Return the names of the operands that are arrays, with their number formats."""
    return [
        (name, arrays.take(operand, function, name)[1])
        for name, operand in taken.items()
        if not isinstance(operand, tuple)
    ]


@lru_cache(maxsize=REMEMBERED)
def _remembered(function: str, described: Plain, plain: Plain, wanted: Plain) -> tuple[Asked, ...]:
    operands, attributes = described_call(described, plain)
    return _asked(function, _all_taken(function, operands), attributes, *wanted)


def _taken(function: str, name: str, value: object) -> Taken:
    """Return an operand as a checked array or, except for diff_dst, a shape."""
    if name != "diff_dst" and arrays.is_shape(value):
        return arrays.take_shape(value, function, name)
    return arrays.take(value, function, name)[0]


def _asked(
    function: str,
    taken: Sequence[Taken],
    attributes: Mapping[str, object],
    wanted: tuple[str, ...],
    dtypes: tuple[object, ...],
    added: tuple[str, ...],
) -> tuple[Asked, ...]:
    """Return the requested gradients with their problems, which are derivatives of the layer's forward problem."""
    row = ROWS[function]
    fmt = _formats(function, dict(zip(OPERANDS, taken, strict=True)))[0][1]
    shapes = tuple(operand if isinstance(operand, tuple) else operand.shape for operand in taken)
    problem = pose(row, shapes, attributes, fmt, ResultTarget(fmt), lenient=True)[1]
    layouts: dict[Tensor, str] = dict(zip((*problem.operands, problem.output), problem.layouts, strict=True))
    forward = solving_for("src" if row.transposed else "dst", row.transposed)
    layer = posed(forward, problem.geometry, layouts, fmt, fmt, bias=True)
    asked, known = [], set[int]()
    for name in wanted:
        place = NAMES.index(name)
        gradient, to = derivative(layer, place), arrays.output_format(dtypes[place], fmt, function)
        check_output_format(function, fmt, to)
        numbers = tuple(MEANT[operand] for operand in gradient.operands)
        for number in numbers:
            if not isinstance(taken[number], np.ndarray):  # T1
                sentence = f"{OPERANDS[number]} must be an array, as the gradient of {name} is computed from it"
                refuse("T1", function, f"{sentence}; got the shape {taken[number]}")
        assert gradient.problem is not None, "every gradient of a layer has a problem"
        solved = intern(replace(gradient.problem, output_format=to, accumulate=name in added))
        read = [pair for pair in zip(numbers, solved.operand_orders, strict=True) if pair[0] not in known]
        known.update(numbers)
        asked.append(Asked(place, solved, numbers, tuple(read)))
    return tuple(asked)
