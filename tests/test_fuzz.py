"""Arguments of every kind: a result or a ConvgradError, nothing else; and the functions, run and the table agree."""

from __future__ import annotations

import inspect
import tracemalloc
import warnings
from collections import Counter
from collections.abc import Callable
from math import prod
from typing import Any

import hypothesis.strategies as st
import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

import convgrad
from convgrad import ConvgradError, InvalidAttributeError, infer_shapes, run
from convgrad.functional.call import prepare
from convgrad.spec.operators import OPERATORS, Operator, find
from convgrad.spec.rules import RULES
from helpers import FUNCTIONS, assert_same_bits, operands_of, random_case, within

LARGEST = 10**6  # elements of an output that is worth computing here
SECONDS = 3.0  # of processor time, that of idle BLAS threads included: far more than any of these calls takes

searching = settings(
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)

tiers = pytest.mark.parametrize("examples", [700, pytest.param(10_000, marks=pytest.mark.long)])

OPTIONS = {"dtype": None, "out": None, "accumulate": False, "threads": None}

ROW_IDS = [f"{op.name}-{op.operands[1].name}" if len(op.operands) > 1 else op.name for op in OPERATORS]
rows = pytest.mark.parametrize("op", OPERATORS, ids=ROW_IDS)
functions = pytest.mark.parametrize("name", FUNCTIONS)


def row(name: str) -> Operator:
    return find(name)


# -- the functions and the table ---------------------------------------------------------------------------------------


def test_every_current_operator_and_every_public_function_is_tied_to_the_table() -> None:
    assert {op.name for op in OPERATORS if not op.name.endswith("-1")} <= set(FUNCTIONS)
    others = {"explain", "infer_shapes", "run", "threads"}
    public = {name for name in convgrad.__all__ if inspect.isfunction(getattr(convgrad, name))}
    assert {f.__name__ for f in FUNCTIONS.values()} == public - others


def attributes_of(op: Operator) -> dict[str, Any]:
    """Return the keyword attributes of an operator's function with their defaults, by the table."""
    operands = {port.name for port in op.operands}
    result: dict[str, Any] = {}
    for attribute in op.attributes:
        if attribute.name in operands:
            continue  # a shape: the third operand
        default = attribute.default
        if attribute.per_axis:
            default = {"strides": 1, "dilations": 1, "pads_begin": 0, "pads_end": 0}.get(attribute.means)
        result[attribute.name] = default
    return result


@functions
def test_a_signature_is_its_row(name: str) -> None:
    op, parameters = row(name), inspect.signature(FUNCTIONS[name]).parameters
    positional = [p for p in parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD]
    keywords = {p.name: p.default for p in parameters.values() if p.kind is p.KEYWORD_ONLY}
    assert len(positional) + len(keywords) == len(parameters)
    assert [p.name for p in positional] == [port.name for port in op.operands]
    for parameter, port in zip(positional, op.operands, strict=True):
        assert parameter.default is (inspect.Parameter.empty if port.required else None)
    assert keywords == attributes_of(op) | OPTIONS
    assert keywords["data_format"] == "NXC"
    weights_format = op.attribute("weights_format")
    if weights_format:
        assert keywords[weights_format.name] == weights_format.choices[0]
        assert keywords["auto_pad"] == "none"
        assert keywords["groups"] == 1
    order = [n for n in keywords if n != "output_padding"]
    assert order == [*(n for n in attributes_of(op) if n != "output_padding"), *OPTIONS]
    assert "output_padding" not in keywords or list(keywords)[-1] == "output_padding"


@functions
def test_functions_of_one_meaning_have_one_signature(name: str) -> None:
    """The same keywords in the same order, whatever the generation calls them."""
    op = row(name)
    current = next(r for r in OPERATORS if (r.solves_for, r.transposed) == (op.solves_for, op.transposed))
    means = {a.name: a.means for a in op.attributes}

    def shape(function: Callable[..., Any]) -> list[tuple[Any, ...]]:
        parameters = inspect.signature(function).parameters.values()
        return [(p.kind, p.default, p.annotation) for p in parameters]

    assert shape(FUNCTIONS[name]) == shape(FUNCTIONS[current.name])
    keywords = [p for p in inspect.signature(FUNCTIONS[name]).parameters if p in means]
    ours = [p for p in inspect.signature(FUNCTIONS[current.name]).parameters if current.attribute(p)]
    assert [means[k] for k in keywords if k not in {port.name for port in op.operands}] == [
        k for k in ours if k not in {port.name for port in current.operands}
    ]


def legal(op: Operator, seed: int = 0) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return operands and attributes of a legal f32 call of a row."""
    rng = np.random.default_rng([seed, OPERATORS.index(op)])
    case = random_case(rng, op)
    while case.format.name != "f32" or case.dtype:
        case = random_case(rng, op)
    return operands_of(case, "integers", seed), case.attributes


@functions
def test_a_function_hands_on_every_keyword(name: str) -> None:
    """A bad value of each is refused by that name."""
    op, function = row(name), FUNCTIONS[name]
    operands, attributes = legal(op)
    by_name = {port.name: value for port, value in zip(op.operands, operands, strict=False)}
    by_name |= {a: v for a, v in attributes.items() if a in inspect.signature(function).parameters}
    assert_same_bits(function(**by_name), run(name, *operands, **attributes), name)
    for attribute in attributes_of(op):
        with pytest.raises(InvalidAttributeError, match=rf"^{name}: {attribute} must be .*\[A2\]$"):
            function(**by_name | {attribute: 1.5})
    for option, value, rule in [
        ("dtype", "int8", "T4"),
        ("out", [], "T5"),
        ("accumulate", 1, "D5"),
        ("threads", 0, "D6"),
    ]:
        with pytest.raises(RULES[rule].error, match=rf"^{name}: {option} must be .*\[{rule}\]$"):
            function(**by_name | {option: value})


@rows
def test_every_row_is_reached_through_run(op: Operator) -> None:
    """By its operands in its order, with its attributes: an error names the very operand."""
    for seed in range(5):
        operands, attributes = legal(op, seed)
        ports = [port for port, _ in zip(op.operands, operands, strict=False)]
        result = run(op.name, *operands, **attributes)
        if not any(port.is_shape and port.required for port in op.operands):
            shapes = (v if port.is_shape else v.shape for port, v in zip(ports, operands, strict=True))
            assert infer_shapes(op.name, *shapes, **attributes) == result.shape
        for place, port in enumerate(ports):
            wrong = replaced(operands, {place: [[1.5]] if port.is_shape else np.zeros((1, 1), np.int8)})
            rule = "T3" if port.is_shape else "T1"
            if port.is_shape and port.required:
                continue  # what is no shape there is an operand of the other row
            with pytest.raises(ConvgradError, match=rf"^{op.name}: {port.name} must be .* \[{rule}\]$"):
                run(op.name, *wrong, **attributes)


@rows
def test_an_older_row_gives_what_the_current_one_gives(op: Operator) -> None:
    current = next(r for r in OPERATORS if (r.solves_for, r.transposed) == (op.solves_for, op.transposed))
    operands, attributes = legal(op, 1)
    given = {port.tensor: value for port, value in zip(op.operands, operands, strict=False)}
    means = {a.name: a.means for a in op.attributes}
    ordered = [given.get(port.tensor) for port in current.operands]
    renamed = {means[a]: v for a, v in attributes.items()}
    assert_same_bits(run(current.name, *ordered, **renamed), run(op.name, *operands, **attributes), op.name)


@settings(searching, max_examples=200)
@given(seed=st.integers(0, 2**32 - 1), name=st.sampled_from(sorted(FUNCTIONS)))
def test_functions_and_run_agree(seed: int, name: str) -> None:
    """Whatever the shapes and attributes: equal values on all axes may be one int, defaults may be left out."""
    op = row(name)
    case = random_case(np.random.default_rng(seed), op)
    operands = operands_of(case, "normal", seed)
    shapes = {port.name for port in op.operands}
    keywords = {a: v for a, v in case.attributes.items() if a not in shapes}
    third = [v for a, v in case.attributes.items() if a in shapes]
    for attribute, default in attributes_of(op).items():
        value = keywords.get(attribute)
        if isinstance(value, list) and len(set(value)) == 1 and seed % 3:
            keywords[attribute] = value[0]
        if value is not None and keywords[attribute] == default and seed % 2:
            del keywords[attribute]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        expected = run(name, *operands, dtype=case.dtype, **case.attributes)
        got = FUNCTIONS[name](*operands, *third, dtype=case.dtype, **keywords)
    assert_same_bits(got, expected, case)
    assert got.shape == expected.shape


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
    st.fixed_dictionaries({}, optional={"accumulate": VALUES, "threads": VALUES}),
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


def replaced(operands: tuple[Any, ...], changes: dict[int, Any]) -> tuple[Any, ...]:
    """Put other operands in; one behind the last is appended."""
    result = list(operands)
    for place, value in changes.items():
        if place < len(result):
            result[place] = value
        elif place == len(result):
            result.append(value)
    return tuple(result)


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
    assert seen["result"] > 50
    assert len(seen) > len(RULES) // 2, seen


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
    assert seen["result"] > 50
    assert len(seen) > len(RULES) // 3, seen


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
    assert seen["result"] > 50
    assert len(seen) > len(RULES) // 3, seen


# (operator, shapes): no extent of these may be taken
NEGATIVE: list[tuple[str, tuple[tuple[int, ...], ...]]] = [
    ("Convolution", ((-2, 5, 1), (3, 1, 1))),
    ("Convolution", ((2, -5, 1), (3, 1, 1))),
    ("Convolution", ((2, 5, -1), (3, -1, 1))),
    ("Convolution", ((2, 5, 1), (3, 1, -1))),
    ("Convolution", ((2, 5, 1), (-3, 1, 1))),
    ("ConvolutionBackwardWeights", ((-2, 5, 1), (-2, 3, 1), (3, 1, 1))),
    ("ConvolutionBackwardData", ((-2, 5, 1), (3, 1, 1), (2, 7, 1))),
    ("ConvTranspose", ((-2, 5, 1), (3, 1, 1))),
    ("BiasAdd", ((2, -5, 3), (3,))),
    ("BiasAddBackward", ((2, -5, 3),)),
    ("BiasAddBackward", ((2, 5, -3),)),
]


@pytest.mark.parametrize(("name", "shapes"), NEGATIVE, ids=[f"{n}-{s}" for n, s in NEGATIVE])
def test_infer_shapes_refuses_negative_extents(name: str, shapes: tuple[tuple[int, ...], ...]) -> None:
    attributes = {} if name.startswith("Bias") else {"strides": [1], "dilations": [1]}
    with pytest.raises(RULES["G9"].error, match=r"non-negative.*\[G9\]$"):
        infer_shapes(name, *shapes, **attributes)


@pytest.mark.parametrize("dtype", ["(2,", {"names": ["a"]}, {"a": 1}, [], 5, Opaque(), "f4,f4", lambda: 0])
def test_any_dtype_is_an_answer_or_a_refusal(dtype: Any) -> None:
    with pytest.raises(RULES["T4"].error, match=r"dtype must be one of f32, bf16, f16, f64; got .*\[T4\]$"):
        convgrad.bias_add(np.ones((1, 1), np.float32), np.ones(1, np.float32), dtype=dtype)


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
    tracemalloc.start()
    try:
        result = run(name, *operands, **(ones | attributes))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert result.shape == expected
    assert not result.any()
    assert peak < 10**6


def test_infer_shapes_takes_the_older_order_where_only_that_fits() -> None:
    name, attributes = "ConvolutionBackpropFilters-1", {"strides": [1], "dilations": [1]}
    assert convgrad.infer_shapes(name, (2, 5, 4), (2, 3, 6), (3, 4, 6), **attributes) == (3, 4, 6)
    assert convgrad.infer_shapes(name, (2, 5, 4), (3, 4, 6), (2, 3, 6), **attributes) == (3, 4, 6)
    with pytest.raises(convgrad.InvalidShapeError, match="input_forward and output_delta must have one batch"):
        convgrad.infer_shapes(name, (2, 5, 4), (1, 3, 6), (3, 4, 6), **attributes)
