"""What is remembered of a call changes nothing: the same errors, the same bits, whatever the arrays, however called."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import convgrad
from convgrad import ConvgradError, engines
from convgrad.engines.addresses import _asked_of_numpy, address_of
from convgrad.engines.llvm import engine, execute
from convgrad.engines.settings import count
from convgrad.functional import call
from convgrad.host import environment
from tests.support.roles import BF16, DTYPES, F32, LAYOUTS, Array, Role, read_only, roles, same

SHAPE = (1, 8, 8, 8)
TWO = {"strides": [1, 1], "dilations": [1, 1], "pads_begin": [1, 1], "pads_end": [1, 1]}
OPERATORS = {
    "Convolution": ((SHAPE, (3, 3, 8, 8)), {}),
    "ConvolutionBackwardData": ((SHAPE, (3, 3, 8, 8)), {}),
    "ConvolutionBackwardWeights": ((SHAPE, SHAPE), {"weights_shape": [3, 3, 8, 8]}),
    "ConvTranspose": ((SHAPE, (3, 3, 8, 8)), {}),
    "ConvTransposeBackwardData": ((SHAPE, (3, 3, 8, 8)), {}),
    "ConvTransposeBackwardWeights": ((SHAPE, SHAPE), {"weights_shape": [3, 3, 8, 8]}),
    "BiasAdd": ((SHAPE, (8,)), None),
    "BiasAddBackward": ((SHAPE,), None),
}
operators = pytest.mark.parametrize("operator", OPERATORS)


def layer(operator: str, dtype: Any = F32, seed: int = 0) -> tuple[list[Array], dict[str, Any]]:
    """Return operands of integers, exact in every type, and strict attributes."""
    shapes, more = OPERATORS[operator]
    rng = np.random.default_rng(seed)
    return [rng.integers(-2, 3, s).astype(dtype) for s in shapes], {} if more is None else TWO | more


def elsewhere(array: Array) -> dict[str, Array]:
    """Return arrays of the same values that lie in other ways."""
    ways = {way: LAYOUTS[way](array) for way in ("every_second", "negative", "fortran", "read_only", "unaligned")}
    foreign, subclass = array.astype(array.dtype.newbyteorder()), array.copy().view(np.memmap)
    return {"as it was": array, "foreign": foreign, "subclass": subclass} | ways


@pytest.mark.every(5)
@operators
@pytest.mark.parametrize("dtype", [F32, BF16, np.float64], ids=["f32", "bf16", "f64"])
def test_arrays_that_lie_otherwise(operator: str, dtype: Any) -> None:
    """Calls of one kind, one after the other, and one compiled call: each way operands may lie, each way out may."""
    operands, attributes = layer(operator, dtype)
    expected = convgrad.run(operator, *operands, **attributes)
    compiled = convgrad.compile(operator, *operands, **attributes)
    spread = np.zeros((*expected.shape[:-1], 2 * expected.shape[-1]), dtype)[..., ::2]
    for at, operand in enumerate(operands):
        for name, other in elsewhere(operand).items():
            given = [*operands[:at], other, *operands[at + 1 :]]
            for out in (None, np.empty_like(expected), spread, np.empty_like(expected).view(np.memmap)):
                for way in (compiled, lambda *arrays, out: convgrad.run(operator, *arrays, out=out, **attributes)):
                    result = way(*given, out=out)
                    assert same(np.ascontiguousarray(result), expected), (name, at)
                    assert out is None or result is out


@operators
def test_a_compiled_call_is_the_call(operator: str) -> None:
    """On other values, with another output type, on any threads, of lists; and added to what is there."""
    operands, attributes = layer(operator)
    others, _ = layer(operator, seed=1)
    for options in ({}, {"dtype": "bf16"}, {"threads": 1}, {"threads": 3}, {"dtype": np.float16, "threads": 2}):
        compiled = convgrad.compile(operator, *operands, **options, **attributes)
        expected = convgrad.run(operator, *others, **options, **attributes)
        assert same(compiled(*others), expected)
        with convgrad.threads(2):
            assert same(compiled(*others), expected)
    adding = convgrad.compile(operator, *operands, accumulate=True, **attributes)
    out = np.ones_like(convgrad.run(operator, *others, **attributes))
    assert same(adding(*others, out=out), convgrad.run(operator, *others, **attributes) + 1)
    with pytest.raises(convgrad.InvalidAttributeError, match=r"accumulate=True must come with out.*\[D5\]"):
        adding(*others)


def refused(way: Callable[[], object]) -> tuple[type[Exception], str]:
    with pytest.raises(ConvgradError) as caught:
        way()
    return type(caught.value), str(caught.value)


@operators
def test_what_is_refused_first_is_refused_again(operator: str) -> None:
    """After calls that are right, and compiled: the error is the one of a process that remembers nothing."""
    operands, attributes = layer(operator)
    expected = convgrad.run(operator, *operands, **attributes)
    compiled = convgrad.compile(operator, *operands, **attributes)
    shared = operands[0].reshape(-1)[: expected.size]
    lapped = np.lib.stride_tricks.as_strided(np.zeros(expected.size, F32), expected.shape, (0,) * expected.ndim)
    wrong: dict[str, Any] = {
        "D2": np.zeros((*expected.shape, 1), F32),
        "D3": read_only(expected.copy()),
        "D4": lapped,
        "T5": expected.astype(np.float64),
    }
    if shared.size == expected.size:
        wrong["D4 "] = shared.reshape(expected.shape)
    for rule, out in wrong.items():
        before = out.copy()
        first = refused(lambda out=out: convgrad.run(operator, *operands, out=out, **attributes))
        call._remembered.cache_clear()
        assert refused(lambda out=out: convgrad.run(operator, *operands, out=out, **attributes)) == first
        assert refused(lambda out=out: compiled(*operands, out=out)) == first
        assert f"[{rule.strip()}]" in first[1]
        assert same(out, before)


# (attribute, values that mean one thing, values that are refused though they are equal and hash alike)
ALIKE: list[tuple[str, list[Any], list[Any]]] = [
    ("strides", [1, [1, 1], (1, 1), np.int64(1), np.array([1, 1]), [np.int8(1), 1]], [True, 1.0, [True, 1], (1.0, 1)]),
    ("pads_end", [1, [1, 1], (1, 1), np.uint8(1), np.ones(2, int)], [True, 1.0, (1, True), np.True_]),
    ("groups", [1, np.int64(1), None], [True, 1.0, [1]]),
    ("auto_pad", ["none", "NOTSET", np.str_("none"), None], [b"none", 0, ("none",)]),
]


@pytest.mark.parametrize(("attribute", "alike", "unlike"), ALIKE, ids=[row[0] for row in ALIKE])
def test_equal_attributes_of_another_type(attribute: str, alike: list[Any], unlike: list[Any]) -> None:
    operands, _ = layer("Convolution")
    given = {"pads_begin": 1, "pads_end": 1}
    expected = convgrad.convolution(*operands, **given)
    for value in alike:
        assert same(convgrad.convolution(*operands, **given | {attribute: value}), expected), value
        for other in unlike:
            error, words = refused(lambda other=other: convgrad.convolution(*operands, **given | {attribute: other}))
            assert error is convgrad.InvalidAttributeError
            assert words.startswith(f"Convolution: {attribute} must be")
            assert f"got {other!r}" in words


@roles
def test_types_are_told_apart(role: Role) -> None:
    """Of one shape: each type gives its own result, mixed ones are refused each time."""
    for _ in range(2):
        for dtype in DTYPES.values():
            assert role(*role.operands(dtype)).dtype == dtype
        first, *rest = role.operands(F32)
        if any(isinstance(one, np.ndarray) for one in rest):
            assert "[T2]" in refused(lambda first=first, rest=rest: role(first.astype(np.float16), *rest))[1]


def test_threads_and_instruction_sets_are_those_of_the_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CONVGRAD_NUM_THREADS", raising=False)
    operands, attributes = layer("Convolution")
    expected = convgrad.run("Convolution", *operands, **attributes)
    for name, value in (("CONVGRAD_NUM_THREADS", "two"), ("CONVGRAD_MAX_ISA", "sse")):
        monkeypatch.setenv(name, value)
        assert f"got '{value}'" in refused(lambda: convgrad.run("Convolution", *operands, **attributes))[1]
        monkeypatch.delenv(name)
        assert same(convgrad.run("Convolution", *operands, **attributes), expected)
    for number in (1, 2, 7):
        with convgrad.threads(number):
            assert count(None) == number
            assert same(convgrad.run("Convolution", *operands, **attributes), expected)


@pytest.mark.parametrize("value", ["3", "", "ünï", "a b"])
def test_the_environment_is_read_as_it_is_set(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name = "CONVGRAD_OF_A_TEST"
    assert environment(name.encode()) == ""
    monkeypatch.setenv(name, value)
    assert environment(name.encode()) == value == os.environ[name]
    monkeypatch.delenv(name)
    assert environment(name.encode()) == ""


def test_an_address_is_where_ctypes_says() -> None:
    for dtype in (F32, BF16, ">f4", np.uint8):
        array = np.zeros((4, 3), dtype)
        for one in (array, array.T, array[::-1], array[1:, ::2], array[:0], array[:1, 1:2], read_only(array)):
            assert address_of(one) == _asked_of_numpy(one) == one.__array_interface__["data"][0]


def test_a_shape_that_is_an_array_is_read_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever lies in the memory that stands for arrays when checks are remembered: here a shape that is legal."""
    monkeypatch.setattr(call.np, "empty", lambda shape, dtype: np.full(shape, 2, dtype))
    src, diff_dst = np.ones((1, 5, 2), F32), np.ones((1, 2, 2), F32)
    for shape in ((2, 2, 2), (3, 2, 2)):
        operands = (src, diff_dst, np.array(shape, np.int32))
        prepared = call.prepare("ConvolutionBackwardWeights", operands, {"strides": [2], "dilations": [1]})
        assert prepared.problem.output_shape == shape


def test_what_is_remembered_is_bounded() -> None:
    src = np.zeros((1, call.REMEMBERED + 40, 1), F32)
    call._remembered.cache_clear()
    for extent in range(3, call.REMEMBERED + 40):
        call.prepare("Convolution", (src[:, :extent], np.zeros((3, 1, 1), F32)), {"strides": [1], "dilations": [1]})
    assert call._remembered.cache_info().currsize == call._remembered.cache_info().maxsize == call.REMEMBERED


def test_one_compiled_call_on_many_threads() -> None:
    operands, attributes = layer("ConvolutionBackwardWeights")
    compiled = convgrad.compile("ConvolutionBackwardWeights", *operands, **attributes)
    expected, wrong = compiled(*operands), []

    def caller() -> None:
        wrong.extend(not same(compiled(*operands), expected) for _ in range(300))

    callers = [threading.Thread(target=caller) for _ in range(4)]
    for one in callers:
        one.start()
    for one in callers:
        one.join()
    assert wrong == [False] * 1200


@pytest.mark.parametrize("operator", ["Convolution", "ConvolutionBackwardData", "ConvolutionBackwardWeights"])
def test_what_is_compiled_for_threads_goes_alone_where_it_gets_no_help(
    operator: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the plan for one thread, which must know how the arrays lie: channels last, they are not canonical."""
    rng = np.random.default_rng(0)
    src, dst, weights = (rng.standard_normal(s, F32) for s in ((4, 20, 24, 24), (4, 20, 24, 40), (3, 3, 24, 40)))
    given = {"Convolution": (src, weights), "ConvolutionBackwardData": (dst, weights)}
    operands = given.get(operator, (src, dst))
    attributes = TWO | ({} if operator in given else {"weights_shape": weights.shape})
    compiled = convgrad.compile(operator, *operands, threads=2, **attributes)
    asked: list[object] = []
    monkeypatch.setattr(engine, "helped", lambda *call: asked.append(call))
    out = np.full(compiled.problem.output_shape, np.nan, F32)
    assert same(compiled(*operands, out=out), convgrad.run(operator, *operands, threads=1, **attributes))
    assert asked, "the plan must be for several threads"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:os.fork:RuntimeWarning")  # JAX warns where loaded
def test_a_child_calls_what_its_parent_compiled() -> None:
    operands, attributes = layer("Convolution")
    compiled = convgrad.compile("Convolution", *operands, threads=2, **attributes)
    expected = compiled(*operands)
    child = os.fork()
    if child == 0:
        os._exit(
            not (
                same(compiled(*operands), expected)
                and same(convgrad.run("Convolution", *operands, **attributes), expected)
            )
        )
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_compiled_call_keeps_its_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever limits the instruction sets by then; on memory of other strides too."""
    operands, attributes = layer("Convolution", F32)
    compiled = convgrad.compile("Convolution", *operands, threads=1, **attributes)
    expected = compiled(*operands)
    monkeypatch.setenv("CONVGRAD_MAX_ISA", "numpy")
    assert same(compiled(*operands), expected)
    assert same(compiled(np.asfortranarray(operands[0]), *operands[1:]), expected)


@pytest.mark.parametrize("name", ["bf16", "f64"])
def test_a_call_by_addresses_is_the_call(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of both engines, and of memory that lies in any way; what the engine forgets meanwhile is made again."""
    operands, attributes = layer("Convolution", DTYPES[name])
    ready = call.prepare("Convolution", tuple(operands), attributes)
    expected = ready.execute()
    for cap in ("", "numpy"):
        monkeypatch.setenv("CONVGRAD_MAX_ISA", cap)
        for operands in ([elsewhere(a)[way] for a in operands] for way in ("as it was", "every_second", "negative")):
            ready, out = call.prepare("Convolution", tuple(operands), attributes), np.full_like(expected, np.nan)
            views = (*ready.operands, ready.canonical_output(out))
            by_address = engines.ready(ready.problem, tuple(view.strides for view in views), 1)
            for _ in range(2):
                out[...] = np.nan
                *begins, end = map(address_of, views)
                by_address.at(begins, end, None)
                assert same(out, expected)
                execute._kept.clear()


def test_tables_are_kept_by_the_engine_and_by_what_is_compiled_alone() -> None:
    operands, attributes = layer("Convolution")

    def forgotten() -> list[weakref.ref[Any]]:
        known = [weakref.ref(one) for one in execute._kept.values()]
        execute._kept.clear()
        return known

    forgotten()
    convgrad.run("Convolution", *operands, threads=1, **attributes)
    (tables,) = forgotten()
    assert tables() is None
    compiled = convgrad.compile("Convolution", *operands, threads=1, **attributes)
    (tables,) = forgotten()
    assert tables() is not None
    del compiled
