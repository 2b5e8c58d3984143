"""Arguments of every kind: a result or a ConvgradError, nothing else; and the functions, run and the table agree."""

from __future__ import annotations

import inspect
import warnings
from collections import Counter
from collections.abc import Callable
from math import prod
from typing import Any

import hypothesis.strategies as st
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings

import convgrad
from convgrad import ConvgradError, infer_shapes, run
from convgrad.functional.call import prepare
from convgrad.spec.operators import OPERATORS, Operator
from convgrad.spec.rules import RULES
from tests.support.helpers import FUNCTIONS, assert_same_bits, operands_of, peak_bytes, random_case, within
from tests.support.table_rows import ROW_IDS, attributes_of, replaced, row, searching

LARGEST = 10**6  # elements of an output that is worth computing here
SECONDS = 3.0  # of processor time, that of idle BLAS threads included: far more than any of these calls takes

tiers = pytest.mark.parametrize("examples", [400, pytest.param(10_000, marks=pytest.mark.long)])

ELSEWHERE = {
    "O3",
    "T6",
    "D7",
    "D8",
}  # rules of joint and compiled calls, of tensors; P, S and B are of pieces, samples, steps
OF_RUN = [rule for rule in RULES if rule not in ELSEWHERE and rule[0] not in "PSB"]


# -- arguments of every kind -------------------------------------------------------------------------------------------


class Opaque:
    """An object that nothing can read."""

    def __repr__(self) -> str:
        return "Opaque()"


HUGE = [2**31 - 1, 2**31, 2**32 + 1, 2**53 + 1, 2**62, 2**63 - 1, 2**63, 2**64, 10**30, -(2**63), -(2**64)]
INTEGERS = st.one_of(st.integers(-2, 5), st.sampled_from(HUGE))
SCALARS = st.one_of(
    INTEGERS,
    st.booleans(),
    st.none(),
    st.floats(allow_nan=True),
    st.sampled_from([np.int8(1), np.uint64(2**64 - 1), np.float32(1), np.True_, np.array(2), 1j, b"1", Opaque(), int]),
)
STRINGS = st.one_of(
    st.sampled_from(
        ["none", "SAME_UPPER", "same_lower", "Valid", "explicit", "NCX", "NXC", "XIO", "OIX", "IOX", "XOI"]
    ),
    st.sampled_from(["nhwc", "OIHW", "HWIO", "", "f32", "bf16", "f64", "int8", "(2,", "x,y"]),
    st.text(max_size=5),
)
LISTS = st.one_of(
    st.lists(INTEGERS, max_size=4),
    st.lists(SCALARS, max_size=3),
    st.lists(st.integers(0, 6), min_size=1, max_size=5).map(tuple),
    st.lists(st.integers(0, 6), max_size=5).map(np.array),
    st.lists(st.lists(st.integers(0, 3), max_size=2), max_size=3),
    st.sampled_from([range(2), {}, {1: 2}, {2, 3}, "12", b"12", bytearray(b"ab"), np.ones((2, 2), int), np.zeros(0)]),
)
VALUES = st.one_of(SCALARS, STRINGS, LISTS)

DTYPES = [np.float32, np.float64, np.float16, ml_dtypes.bfloat16, ">f4", np.int32, np.int64, bool, complex, object]
DTYPES += [ml_dtypes.float8_e4m3fn, "S3", "U2", "M8[s]", "f4,i4", np.longdouble]
ARRAYS = st.builds(
    np.zeros,
    st.lists(st.integers(0, 4), max_size=6).map(tuple),
    st.one_of(st.just(np.float32), st.sampled_from(DTYPES)),
)
OPERANDS = st.one_of(
    ARRAYS,
    VALUES,
    st.sampled_from([np.ma.zeros((1, 2, 1)), [[[1.0]]], [[1.0], [2.0, 3.0]], float("nan"), Exception, print]),
)
OUTS = st.one_of(ARRAYS, VALUES)

ROWS = st.sampled_from(ROW_IDS)
SEEDS = st.integers(0, 2**32 - 1)
NAMES = ["strides", "pads_begin", "pads_end", "dilations", "auto_pad", "groups", "data_format", "weights_format"]
NAMES += ["filter_format", "output_padding", "weights_shape", "filter_shape", "dst_shape", "output_shape", "colour"]
# Attributes set to anything, one number of an attribute or shape set to any other, operands replaced, the options.
ATTRIBUTES = st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=2)
EDITS = st.lists(st.tuples(st.sampled_from(NAMES), st.integers(0, 3), INTEGERS), max_size=2)
SHAPE_EDITS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 5), INTEGERS), max_size=2)
REPLACED = st.dictionaries(st.integers(0, 3), OPERANDS, max_size=1)
CHOSEN = st.one_of(
    st.just({}),
    st.fixed_dictionaries({"dtype": VALUES}),
    st.fixed_dictionaries({"out": OUTS}, optional={"accumulate": st.booleans()}),
    st.fixed_dictionaries({}, optional={"accumulate": VALUES, "threads": VALUES, "max_error": VALUES}),
)


def row_of(row_id: str) -> Operator:
    return OPERATORS[ROW_IDS.index(row_id)]


def set_element(values: Any, index: int, value: int) -> Any:
    """Return a list or tuple with one element set; anything else as it is."""
    if not isinstance(values, list | tuple) or not values:
        return values
    result = list(values)
    result[index % len(result)] = value
    return type(values)(result)


def changed(
    op: Operator, attributes: dict[str, Any], changes: dict[str, Any], edits: list[tuple[str, int, int]]
) -> dict[str, Any]:
    """Set attributes the operator has, by any generation's name, so that most calls get past the names."""
    names = {a.means: a.name for a in op.attributes} | {a.name: a.name for a in op.attributes}
    result = dict(attributes)
    for name, index, value in edits:
        if names.get(name) in result:
            result[names[name]] = set_element(result[names[name]], index, value)
    return result | {names.get(n, n): value for n, value in changes.items() if n in names or n == "colour"}


def small_enough(name: str, operands: tuple[Any, ...], attributes: dict[str, Any], dtype: Any) -> bool:
    """Tell whether a call, if it is legal, has a small result."""
    try:
        return prod(prepare(name, operands, attributes, dtype).problem.output_shape) <= LARGEST
    except ConvgradError:
        return True  # run refuses it too


def attempt(seen: Counter[str], what: str, call: Callable[[], Any]) -> Any:
    """Return a result, or None where it is refused in our words; anything else goes through."""
    refusal = None
    try:
        with within(SECONDS), warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".*output_padding.* is ignored", UserWarning)
            result = call()
    except ConvgradError as error:
        refusal = error
    if refusal is None:
        seen["result"] += 1
        return result
    rule = str(refusal).rsplit("[", 1)[-1].rstrip("]")
    assert rule in RULES, f"{what}: {refusal}"
    assert type(refusal) is RULES[rule].error, f"{what}: {refusal}"
    seen[rule] += 1
    return None


@tiers
def test_run_gives_a_result_or_a_convgrad_error(examples: int) -> None:
    seen: Counter[str] = Counter()

    @settings(searching, max_examples=examples)
    @given(ROWS, SEEDS, ATTRIBUTES, EDITS, REPLACED, CHOSEN)
    def check(row_id: str, seed: int, attributes: Any, edits: Any, changes: dict[int, Any], options: Any) -> None:
        op = row_of(row_id)
        case = random_case(np.random.default_rng(seed), op)
        operands = replaced(operands_of(case, "normal", seed), changes)
        given_attributes = changed(op, case.attributes, attributes, edits)
        with within(SECONDS):
            if not small_enough(op.name, operands, given_attributes, options.get("dtype")):
                seen["large"] += 1
                return
        result = attempt(seen, f"{case}", lambda: run(op.name, *operands, **options, **given_attributes))
        if result is not None:
            assert isinstance(result, np.ndarray)
            expected = prepare(op.name, operands, given_attributes, options.get("dtype")).problem
            assert result.shape == expected.output_shape
            assert result.dtype == expected.output_format.dtype

    check()
    assert seen["result"] > examples / 8
    assert len(seen) > len(OF_RUN) // 2, seen


@tiers
def test_functions_give_a_result_or_a_convgrad_error(examples: int) -> None:
    seen: Counter[str] = Counter()

    @settings(searching, max_examples=examples)
    @given(st.sampled_from(sorted(FUNCTIONS)), SEEDS, ATTRIBUTES, EDITS, REPLACED)
    def check(name: str, seed: int, attributes: Any, edits: Any, changes: dict[int, Any]) -> None:
        op = row(name)
        case = random_case(np.random.default_rng(seed), op)
        operands = replaced(operands_of(case, "normal", seed), changes)[: len(op.operands)]
        accepted = inspect.signature(FUNCTIONS[name]).parameters
        keywords = {a: v for a, v in changed(op, case.attributes, attributes, edits).items() if a in accepted}
        taken = [port.name for port, _ in zip(op.operands, operands, strict=False)]
        keywords = {a: v for a, v in keywords.items() if a not in taken}

        listed = {a: _per_axis(op, a, v, operands) for a, v in (attributes_of(op) | keywords).items()}
        with within(SECONDS):
            if not small_enough(name, operands, listed, None):
                return
        result = attempt(seen, f"{case}", lambda: FUNCTIONS[name](*operands, **keywords))
        assert result is None or isinstance(result, np.ndarray)

    check()
    assert seen["result"] > examples / 8
    assert len(seen) > len(OF_RUN) // 3, seen


def _per_axis(op: Operator, name: str, value: Any, operands: tuple[Any, ...]) -> Any:
    """Write one int as the list that run takes."""
    per_axis = any(a.name == name and a.per_axis for a in op.attributes)
    single = per_axis and isinstance(value, int | np.integer) and not isinstance(value, bool)
    return [value] * max(np.ndim(operands[0]) - 2, 0) if single and isinstance(operands[0], np.ndarray) else value


@tiers
def test_infer_shapes_gives_a_shape_or_a_convgrad_error(examples: int) -> None:
    """A shape is a tuple of non-negative Python ints; of huge extents too, as nothing is allocated."""
    seen: Counter[str] = Counter()

    @settings(searching, max_examples=examples)
    @given(ROWS, SEEDS, ATTRIBUTES, EDITS, st.dictionaries(st.integers(0, 3), VALUES, max_size=1), SHAPE_EDITS)
    def check(row_id: str, seed: int, attributes: Any, edits: Any, changes: dict[int, Any], extents: Any) -> None:
        op = row_of(row_id)
        case = random_case(np.random.default_rng(seed), op)
        shapes = list(replaced(case.shapes, changes))
        for place, axis, value in extents:
            shapes[place:] = [set_element(s, axis, value) for s in shapes[place : place + 1]] + shapes[place + 1 :]
        given_attributes = changed(op, case.attributes, attributes, edits)
        got = attempt(seen, f"{case}", lambda: infer_shapes(op.name, *shapes, **given_attributes))
        if got is not None:
            assert isinstance(got, tuple)
            assert all(type(n) is int and n >= 0 for n in got), (op.name, shapes, given_attributes)
            assert prod(max(n, 1) for n in got) < 2**63

    check()
    assert seen["result"] > examples / 8
    assert len(seen) > len(OF_RUN) // 3, seen


@pytest.mark.parametrize("rank", [8, 32, 64])
@pytest.mark.parametrize("name", ["Convolution", "ConvolutionBackwardData", "ConvolutionBackwardWeights"])
def test_any_rank_numpy_has(name: str, rank: int) -> None:
    shape, ones = (1,) * rank, [1] * (rank - 2)
    third = [shape] if name.endswith("Weights") else []
    array = np.full(shape, 3, np.float32)
    assert_same_bits(run(name, array, array, *third, strides=ones, dilations=ones), array * 3, name)


FAR = 10**11

# Results and operands without an element, however far they extend.
EMPTY: list[tuple[str, tuple[tuple[int, ...], ...], dict[str, Any], tuple[int, ...]]] = [
    ("Convolution", ((0, 5, 1), (1, 1, 1)), {"pads_end": [FAR]}, (0, FAR + 5, 1)),
    ("ConvolutionBackwardData", ((0, 2, 1), (1, 1, 1)), {"strides": [FAR], "output_padding": [0]}, (0, FAR + 1, 1)),
    ("ConvolutionBackwardWeights", ((0, FAR, 1), (0, FAR, 1)), {"weights_shape": (1, 1, 1)}, (1, 1, 1)),
    ("ConvTranspose", ((0, 2, 1), (1, 1, 1)), {"strides": [FAR]}, (0, FAR + 1, 1)),
    ("ConvTransposeBackwardData", ((0, 5, 1), (1, 1, 1)), {"pads_end": [FAR]}, (0, FAR + 5, 1)),
    ("ConvTransposeBackwardWeights", ((0, FAR, 1), (0, FAR, 1)), {"weights_shape": (1, 1, 1)}, (1, 1, 1)),
    ("BiasAdd", ((0, FAR, 1), (1,)), {}, (0, FAR, 1)),
    ("BiasAddBackward", ((0, FAR, 1),), {}, (1,)),
]


@pytest.mark.parametrize(("name", "shapes", "attributes", "expected"), EMPTY, ids=[case[0] for case in EMPTY])
def test_empty_tensors_of_far_extents_cost_nothing(
    name: str, shapes: tuple[tuple[int, ...], ...], attributes: dict[str, Any], expected: tuple[int, ...]
) -> None:
    operands = [np.zeros(shape, np.float32) for shape in shapes]
    ones = {} if name.startswith("Bias") else {"strides": [1], "dilations": [1]}
    results: list[np.ndarray] = []
    assert peak_bytes(lambda: results.append(run(name, *operands, **(ones | attributes)))) < 10**6
    assert results[0].shape == expected
    assert not results[0].any()


def test_infer_shapes_takes_the_older_order_where_only_that_fits() -> None:
    name, attributes = "ConvolutionBackpropFilters-1", {"strides": [1], "dilations": [1]}
    assert convgrad.infer_shapes(name, (2, 5, 4), (2, 3, 6), (3, 4, 6), **attributes) == (3, 4, 6)
    assert convgrad.infer_shapes(name, (2, 5, 4), (3, 4, 6), (2, 3, 6), **attributes) == (3, 4, 6)
    with pytest.raises(convgrad.InvalidShapeError, match="input_forward and output_delta must have one batch"):
        convgrad.infer_shapes(name, (2, 5, 4), (1, 3, 6), (3, 4, 6), **attributes)
