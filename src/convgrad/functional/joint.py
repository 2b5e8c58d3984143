"""The computation of a layer's gradients in one call: operands are checked once for all requested gradients."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import chain, combinations
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from convgrad import arrays, engines
from convgrad.arrays.libraries import on_its_threads
from convgrad.engines.settings import count
from convgrad.errors import ConvgradError
from convgrad.functional.call import REMEMBERED, Plain, check_options, described_call, handed_over, key_of, pose, room
from convgrad.spec.check import as_items
from convgrad.spec.derivatives import COTANGENT, derivative
from convgrad.spec.operators import LARGEST_RANK, Operator, Port, Tensor, find, solving_for
from convgrad.spec.problem import Problem, check_output_format, intern, posed
from convgrad.spec.rules import refuse
from convgrad.words import shown

Array = NDArray[Any]


class Gradients(NamedTuple):
    """The gradients of a layer by src, weights and bias.

    Args:
        src: The gradient by src, of the shape of src; None if it was not requested. Default: None.
        weights: The gradient by weights, of the shape of weights; None if it was not requested. Default: None.
        bias: The gradient by bias, of shape (O,); None if it was not requested. Default: None.
    """

    src: Any = None
    weights: Any = None
    bias: Any = None


class Asked(NamedTuple):
    """A requested gradient: its index in Gradients, its problem, and the operands that it reads.

    ``given`` are the indices of these operands in OPERANDS. ``read`` has only the operands that no earlier gradient
    reads, each with its permutation to canonical axes.
    """

    place: int
    problem: Problem
    given: tuple[int, ...]
    read: tuple[tuple[int, tuple[int, ...]], ...]


Names = Collection[str]
OfEach = Mapping[str, object] | Sequence[Any]

NAMES = Gradients._fields
KNOWN = frozenset(NAMES)
IN_ORDER = tuple(chain.from_iterable(combinations(NAMES, size) for size in (3, 2, 1, 0)))  # legal ``needs``
OUTS = tuple(f"the out of {name}" for name in NAMES)
NONE: tuple[Any, ...] = (None, None, None)
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
    *,
    needs: Names,
    dtype: object,
    out: OfEach | None,
    accumulate: bool | Names,
    threads: int | None,
    max_error: float | None,
) -> Gradients:
    """Return the requested gradients of a layer, computed from its src, diff_dst and weights."""
    outs = NONE if out is None else _of_each(function, "out", out)
    added = NOTHING if accumulate is False else _added(function, accumulate, outs)
    check_options(function, out, False, threads)
    wanted = needs if type(needs) is tuple and needs in IN_ORDER else _names(function, "needs", needs)
    dtypes = (
        NONE if dtype is None else _of_each(function, "dtype", dtype) if isinstance(dtype, Mapping) else (dtype,) * 3
    )
    taken, asked = _prepared(function, operands, attributes, (wanted, dtypes, added))
    rooms = NONE if out is None else _rooms(asked, taken, outs)
    threads = count(threads)
    views, results, first = list(NONE), list(NONE), operands[isinstance(taken[0], SHAPES)]
    foreign = type(first) is not np.ndarray
    for place, asked_for, given, read in asked:
        problem = engines.within(asked_for, max_error)
        for number, order in read:
            views[number] = arrays.native(taken[number], problem.operand_format).transpose(order)
        result = rooms[place]
        if result is None:
            result = room(problem, None, NO_ARRAYS, foreign)
        view = result.transpose(problem.output_order)
        on_its_threads(first, engines.execute, problem, [views[number] for number in given], view, threads)
        results[place] = handed_over(result, first, outs[place])
    return Gradients(*results)


def _rooms(asked: tuple[Asked, ...], taken: Sequence[Any], outs: Sequence[object]) -> list[Array | None]:
    """Return the checked arrays of ``out``, which overlap neither each other nor an array that is read."""
    others = {OPERANDS[number]: taken[number] for one in asked for number, _ in one.read}
    rooms: list[Array | None] = [None] * len(NAMES)
    for place, problem, *_ in asked:
        if outs[place] is not None:
            rooms[place] = others[OUTS[place]] = room(problem, outs[place], others).view(np.ndarray)
    return rooms


# -- the requested gradients -------------------------------------------------------------------------------------------


def _names(function: str, what: str, given: Names) -> tuple[str, ...]:
    """Check names of gradients, and return them in the order of Gradients."""
    held = as_items(given, LARGEST_RANK)
    if held is None:  # O3
        hint = f". Use ({shown(given)},)" if isinstance(given, str) and given in NAMES else ""
        refuse("O3", function, f"{what} must be a tuple of names of {', '.join(NAMES)}; got {shown(given)}{hint}")
    for name in held:
        if not isinstance(name, str) or name not in NAMES:  # O3
            refuse("O3", function, f"{what} must hold names of {', '.join(NAMES)}; got {shown(name)}")
    return tuple([name for name in NAMES if name in held])


def _of_each(function: str, what: str, given: OfEach) -> tuple[object, ...]:
    """Return an option's value for each gradient, from a mapping or a tuple. Gradients without a value get None."""
    if isinstance(given, dict | Mapping):  # dict first, because its check is faster
        if not given.keys() <= KNOWN:
            _names(function, what, given)
        return given.get("src"), given.get("weights"), given.get("bias")
    if not isinstance(given, tuple | list) or len(given) != len(NAMES):  # O3
        sentence = f"a mapping from names of {', '.join(NAMES)}, or a tuple of {len(NAMES)}"
        refuse("O3", function, f"{what} must be {sentence}; got {type(given).__name__}")
    return tuple(given)


def _added(function: str, accumulate: bool | Names, outs: Sequence[object]) -> tuple[str, ...]:
    """Return the names of the gradients to add into their ``out``: all with an ``out``, or those in ``accumulate``."""
    there = tuple(name for name, out in zip(NAMES, outs, strict=True) if out is not None)
    if not isinstance(accumulate, Collection) or isinstance(accumulate, str):
        check_options(function, there or None, accumulate, None)
        return there if accumulate else ()
    named = _names(function, "accumulate", accumulate)
    for name in named:
        if name not in there:  # D5
            refuse("D5", function, f"accumulate must come with out, the array to add into; got none for {name}")
    return named


# -- their problems ----------------------------------------------------------------------------------------------------


def _prepared(
    function: str, operands: tuple[object, ...], attributes: Mapping[str, object], wanted: Plain
) -> tuple[Sequence[Any], tuple[Asked, ...]]:
    """Return the operands, each an array or a shape, and the requested gradients."""
    given: list[Array] = []
    key = key_of(operands, attributes, given)
    if key is not None:
        try:
            known = _remembered(function, *key, wanted)
        except (ConvgradError, TypeError):
            pass  # checked below without the cache: an error must quote the caller's values, or a dtype has no hash
        else:
            opened = iter(given)
            return [one if isinstance(one, SHAPES) else next(opened) for one in operands], known
    taken = _all_taken(function, operands)
    return taken, _asked(function, taken, attributes, *wanted)


def _all_taken(function: str, operands: tuple[object, ...]) -> tuple[Array | tuple[int, ...], ...]:
    """Return the operands as checked arrays or shapes."""
    return tuple(_taken(function, name, value) for name, value in zip(OPERANDS, operands, strict=True))


@lru_cache(maxsize=REMEMBERED)
def _remembered(function: str, described: Plain, plain: Plain, wanted: Plain) -> tuple[Asked, ...]:
    operands, attributes = described_call(described, plain)
    return _asked(function, _all_taken(function, operands), attributes, *wanted)


def _taken(function: str, name: str, value: object) -> Array | tuple[int, ...]:
    """Return an operand as a checked array or, except for diff_dst, a shape."""
    if name != "diff_dst" and arrays.is_shape(value):
        return arrays.take_shape(value, function, name)
    return arrays.take(value, function, name)[0]


def _asked(
    function: str,
    taken: Sequence[Array | tuple[int, ...]],
    attributes: Mapping[str, object],
    wanted: tuple[str, ...],
    dtypes: tuple[object, ...],
    added: tuple[str, ...],
) -> tuple[Asked, ...]:
    """Return the requested gradients with their problems, which are derivatives of the layer's forward problem."""
    row = ROWS[function]
    named = [
        (n, arrays.take(one, function, n)[1])
        for n, one in zip(OPERANDS, taken, strict=True)
        if not isinstance(one, tuple)
    ]
    fmt = arrays.check_common(named, function)
    shapes = tuple(one if isinstance(one, tuple) else one.shape for one in taken)
    problem = pose(row, shapes, attributes, fmt, fmt, accumulate=False, lenient=True)[1]
    layouts: dict[Tensor, str] = dict(zip((*problem.operands, problem.output), problem.layouts, strict=True))
    forward = solving_for("src" if row.transposed else "dst", row.transposed)
    layer = posed(forward, problem.geometry, layouts, fmt, fmt, bias=True)
    asked, known = [], set[int]()
    for name in wanted:
        place = NAMES.index(name)
        found, to = derivative(layer, place), arrays.output_format(dtypes[place], fmt, function)
        check_output_format(function, fmt, to)
        given = tuple(MEANT[operand] for operand in found.operands)
        for number in given:
            if not isinstance(taken[number], np.ndarray):  # T1
                sentence = f"{OPERANDS[number]} must be an array, as the gradient of {name} is computed from it"
                refuse("T1", function, f"{sentence}; got the shape {taken[number]}")
        assert found.problem is not None, "every gradient of a layer has a problem"
        solved = intern(replace(found.problem, output_format=to, accumulate=name in added))
        read = [pair for pair in zip(given, solved.operand_orders, strict=True) if pair[0] not in known]
        known.update(given)
        asked.append(Asked(place, solved, given, tuple(read)))
    return tuple(asked)
