"""One call, one SHA-256: of every operator, whatever of the axes of a table is chosen.

A row is a call. An axis is a choice that must not matter: threads, instruction set, memory format, strides, the cut of
the batch, the pool, and the entry. ``WAYS`` has choices of all axes in which any two choices of two axes meet.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import combinations, pairwise, product
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import convgrad
from convgrad.engines import openmp, settings
from convgrad.formats import FORMATS
from convgrad.notation import calls, read
from convgrad.spec.layouts import axis_order
from convgrad.spec.operators import OPERATORS, find
from tests.support.engine_helpers import HOST, digest, lying
from tests.support.helpers import FUNCTIONS
from tests.support.pairs import Way, covering, few_of, pairs_of
from tests.support.roles import every_second_backwards
from tests.support.tiers import tiers

Array = NDArray[Any]
BATCH = 5  # leaves of one image each, because an image has more than 128 positions
GEOMETRIES = {
    "dense": "ic40oc33ih13oh13kh3ph1", "strided": "ic24oc24ih24oh12kh4sh2ph1", "groups": "g6ic24oc18ih13oh13kh3ph1",
    "depthwise": "g20ic20oc20ih13oh13kh3ph1", "few results": "ic40oc3ih13oh13kh3ph1",
    "few channels": "ic3oc40ih26oh13kh7sh2ph3", "a row": "ic8oc16iw300ow300kw5pw2",
}  # fmt: skip
DIRECTIONS = ("FWD_B", "BWD_D", "BWD_WB", "deconv FWD_B", "deconv BWD_D", "deconv BWD_W")
ADDED = "BiasAdd"  # no problem line has this operator; its operands are those of a layer's results
TYPES = ("f32", "bf16", "f16")
OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {}, "activation": {"activation": "relu"}, "accuracy": {"max_error": 64},
    "rounded": {"activation": "relu", "dtype": "bf16"},
}  # fmt: skip
TILED = "ic64oc40ih13oh13kh3ph1"  # what Winograd computes with this accuracy
SUMMED = ("weights", "bias")

pytestmark = [
    pytest.mark.skipif(not HOST, reason="no generated kernels run here"),
    pytest.mark.usefixtures("eight_cores"),
]


def there(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


@dataclass(frozen=True)
class Row:
    """A call: the words of a problem line without its layouts."""

    direction: str
    fmt: str
    words: str
    option: str = "plain"


def rows() -> list[Row]:
    """Return each direction with each geometry, types in turn, and the forward pass with each option."""
    found = [
        Row(direction, TYPES[number % 3], words)
        for number, (words, direction) in enumerate(product(GEOMETRIES.values(), DIRECTIONS))
    ]
    found += [Row(direction, "f32", TILED, option) for option in OPTIONS for direction in DIRECTIONS[:4:3]]
    options = ("activation", "plain", "activation")
    return found + [Row(ADDED, fmt, TILED, option) for fmt, option in zip(TYPES, options, strict=True)]


def axes() -> dict[str, tuple[Any, ...]]:
    """Return the choices of each axis on this machine."""
    libraries = [name for name in ("torch", "jax", "dask") if there(name)]
    return {
        "threads": (1, 2, 3, 8),
        "isa": tuple(HOST),
        "layouts": ("NXC:XIO", "NCX:OIX", "NXC:OIX", "NCX:XIO"),
        "strides": ("dense", "odd"),
        "cut": ("whole", "images", "uneven"),
        "pool": (settings.OWN, settings.OPENMP)[: 1 + there("torch")],
        "entry": ("function", "run", "compiled", "out", *libraries),
    }


# In this order, ways that follow each other share kernels.
WAYS = sorted(covering(axes()), key=lambda way: (way["isa"], way["layouts"], way["strides"]))
ROWS = rows()
Case = tuple[Row, int]  # and the number of its way


def met_by(case: Case) -> set[tuple[Any, ...]]:
    """Return what a test covers: pairs of choices, and choices with its operator, its geometry and its type."""
    row, number = case
    way = WAYS[number]
    return pairs_of(way) | {(word, *choice) for word in (row.direction, row.words, row.fmt) for choice in way.items()}


TABLE = list(product(ROWS, range(len(WAYS))))
CHOSEN = few_of(TABLE, met_by, shared_by=lambda case: case[0])
QUICK = [case for case in TABLE if case in CHOSEN]  # in an order in which cases that follow each other share a row
LONG = [case for case in TABLE if case not in CHOSEN]


@dataclass(frozen=True)
class Call:
    """An operator's call on canonical values: None for a shape."""

    operator: str
    shapes: tuple[tuple[int, ...], ...]
    attributes: dict[str, Any]
    values: tuple[Array | None, ...]


def calls_of(row: Row, layouts: str) -> list[Call]:
    """Return the calls of a row in some layouts, with the same values in all layouts."""
    if row.direction == ADDED:
        return [added(row, layouts)]
    prefix, _, direction = row.direction.rpartition(" ")
    data, weights = layouts.split(":")
    if prefix:
        layouts = f"{data}:{ {'XIO': 'XOI', 'OIX': 'IOX'}[weights] }"
    found = []
    for call in calls(read(f"{prefix} {direction} {row.fmt} {layouts} mb{BATCH}{row.words}".strip())):
        rng, values = np.random.default_rng(len(row.words)), list[Array | None]()
        for port, shape in zip(find(call.operator).operands, call.shapes, strict=False):
            order = axis_order(layout_of(port.tensor, call.attributes), len(shape))
            canonical = rng.standard_normal([shape[axis] for axis in order]).astype(call.format.dtype)
            values.append(None if port.is_shape else canonical)
        attributes = {name: value for name, value in call.attributes.items() if value is not None}
        found.append(Call(call.operator, call.shapes, attributes | OPTIONS[row.option], tuple(values)))
    return found


def added(row: Row, layouts: str) -> Call:
    """Return a call that adds a bias, with the same values in all layouts."""
    data, dtype = layouts.partition(":")[0], FORMATS[row.fmt].dtype
    rng, canonical = np.random.default_rng(len(row.words)), (BATCH, 40, 13, 13)
    src, bias = (rng.standard_normal(shape).astype(dtype) for shape in (canonical, canonical[1:2]))
    shape = tuple(canonical[axis] for axis in np.argsort(axis_order(data, len(canonical))))
    return Call(ADDED, (shape, bias.shape), {"data_format": data} | OPTIONS[row.option], (src, bias))


def layout_of(tensor: str, attributes: Mapping[str, Any]) -> str:
    return str(attributes["weights_format" if tensor == "weights" else "data_format"]) if tensor != "bias" else "NCX"


def operands_of(call: Call, strides: str) -> list[Any]:
    """Return a call's operands in its layouts, and shapes as tuples."""
    found: list[Any] = []
    for port, values, shape in zip(find(call.operator).operands, call.values, call.shapes, strict=False):
        if values is None:
            found.append(shape)
        elif values.ndim == 1:
            found.append(values)
        else:
            layout = layout_of(port.tensor, call.attributes)
            array = lying(values, layout).transpose(np.argsort(axis_order(layout, values.ndim)))
            found.append(every_second_backwards(array) if strides == "odd" else array)
    return found


# -- entries -----------------------------------------------------------------------------------------------------------


def as_tensor(value: Any) -> Any:
    import torch  # noqa: PLC0415 - where it is installed

    if isinstance(value, tuple):
        return value
    array = np.ascontiguousarray(value)  # PyTorch has no negative strides
    return (
        torch.from_numpy(array)
        if array.dtype.isbuiltin == 1
        else torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    )


def from_tensor(tensor: Any) -> Array:
    import torch  # noqa: PLC0415 - where it is installed

    whole: Array = tensor.float().numpy() if tensor.dtype is torch.bfloat16 else tensor.numpy()  # exact
    return whole


def into_strided(call: Call, operands: Sequence[Any]) -> Array:
    """Return an array with strides of its own to which a function has written the result."""
    plain = np.asarray(convgrad.run(call.operator, *operands, **call.attributes))
    out: Array = every_second_backwards(np.full_like(plain, np.nan))
    assert FUNCTIONS[call.operator](*operands, **call.attributes, out=out) is out
    return np.asarray(out)


def entered(entry: str, call: Call, operands: Sequence[Any]) -> Array:
    """Return the result of a call by one of the entries."""
    operator, attributes = call.operator, call.attributes
    if entry in ("function", "out"):
        function = FUNCTIONS[operator]
        return into_strided(call, operands) if entry == "out" else np.asarray(function(*operands, **attributes))
    if entry == "compiled":
        arrays = [operand for operand in operands if not isinstance(operand, tuple)]
        return np.asarray(convgrad.compile(operator, *operands, **attributes)(*arrays))
    if entry == "torch":
        return from_tensor(convgrad.run(operator, *map(as_tensor, operands), **attributes))
    if entry == "jax" or (entry == "dask" and "max_error" not in attributes):
        module, given = importlib.import_module(f"convgrad.{entry}"), list(operands)
        if entry == "dask":
            import dask.array as da  # noqa: PLC0415 - where it is installed

            given[0] = da.from_array(operands[0], chunks=(2, *[-1] * (operands[0].ndim - 1)))
        both = (partial(module.run, operator), getattr(module, FUNCTIONS[operator].__name__))
        result, other = (np.asarray(function(*given, **attributes)) for function in both)
        assert digest(result) == digest(other)
        return result
    return np.asarray(convgrad.run(operator, *operands, **attributes))


def cut(way: Way, call: Call, operands: Sequence[Any]) -> Array:
    """Return the result of a call whose batch is cut; parts of a sum are joined, and others follow each other."""
    op = find(call.operator)
    ends = {"whole": [0, BATCH], "images": [*range(BATCH + 1)], "uneven": [0, 3, BATCH]}[way["cut"]]
    if len(ends) == 2:
        return entered(way["entry"], call, operands)
    parts = list[Any]()
    for begin, end in pairwise(ends):
        some = []
        for port, operand in zip(op.operands, operands, strict=False):
            if port.is_shape:
                some.append(operand if port.tensor == "weights" else (end - begin, *operand[1:]))
            else:
                some.append(operand[begin:end] if port.tensor in ("src", "dst") else operand)
        if op.solves_for in SUMMED:
            given = map(as_tensor, some) if way["entry"] == "torch" else some
            parts.append(convgrad.partials(call.operator, *given, first=begin, **call.attributes))
        else:
            parts.append(entered(way["entry"], call, some))
    if op.solves_for not in SUMMED:
        return np.concatenate(parts)
    joined = convgrad.join(parts)
    return from_tensor(joined) if way["entry"] == "torch" else np.asarray(joined)


def hashes_of(row: Row, way: Way) -> list[str]:
    """Return the digests of a row's results, one for each of its operators, in canonical order and in f32."""
    found = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CONVGRAD_MAX_ISA", way["isa"])
        for call in calls_of(row, way["layouts"]):
            with convgrad.threads(way["threads"]):
                # the choice of Winograd depends on the batch
                whole = way if "max_error" not in call.attributes else {**way, "cut": "whole"}
                result = settings.on(way["pool"], cut, whole, call, operands_of(call, way["strides"]))
            output = find(call.operator).output.tensor
            if result.ndim > 1:
                result = result.transpose(axis_order(layout_of(output, call.attributes), result.ndim))
            assert np.isfinite(result.astype(np.float32)).all()
            found.append(digest(result.astype(np.float32)))
    return found


@cache
def expected_of(row: Row) -> list[str]:
    """Return the digests of a row's results in the default way, which tests of one row share."""
    return hashes_of(row, DEFAULT)


DEFAULT = {"threads": 1, "isa": HOST[0] if HOST else "", "layouts": "NXC:XIO", "strides": "dense", "cut": "whole",
           "pool": settings.OWN, "entry": "run"}  # fmt: skip


@tiers("row, number", QUICK, long=LONG)
def test_one_hash_of_calls(row: Row, number: int) -> None:
    way = WAYS[number]
    if way["pool"] == settings.OPENMP:
        importlib.import_module("torch")
        assert not openmp.why_not()
    assert hashes_of(row, way) == expected_of(row), (row, way)


def test_other_values_have_another_hash() -> None:
    """So that hashes can differ: by the last bit of one operand."""
    row = ROWS[0]
    (call,) = calls_of(row, "NXC:XIO")
    operands = operands_of(call, "dense")
    before = digest(entered("run", call, operands))
    operands[-1] = np.nextafter(operands[-1], np.float32(np.inf))
    assert digest(entered("run", call, operands)) != before


def test_table_has_all_operators() -> None:
    operators = {call.operator for row in ROWS for call in calls_of(row, "NXC:XIO")}
    assert operators == {op.name for op in OPERATORS if op.name in FUNCTIONS and "-" not in op.name}


def test_quick_cases_meet_all_choices() -> None:
    """Each operator, geometry and type meets each choice, and any two choices of two axes meet."""
    choices = {(name, choice) for name, some in axes().items() for choice in some}
    words = {word for row in ROWS for word in (row.direction, row.words, row.fmt)}
    met = set().union(*map(met_by, QUICK))
    assert met >= {(word, *choice) for word, choice in product(words, choices)}
    assert met >= {(one, other) for one, other in combinations(choices, 2) if one[0] < other[0]} & {
        pair for way in WAYS for pair in pairs_of(way)
    }
