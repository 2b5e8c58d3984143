"""convgrad.jax: the bits of convgrad under every transformation of JAX, and derivatives of any order."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest

import convgrad
from convgrad.formats import F32, F64
from convgrad.functional import call
from convgrad.functional.call import prepare
from convgrad.spec.derivatives import COTANGENT, ZEROS, derivative
from convgrad.spec.operators import OPERATORS
from tests.support.engine_helpers import watched
from tests.support.helpers import assert_same_bits, operands_of, random_case

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402
from jax.test_util import check_grads  # noqa: E402

import convgrad.jax as cj  # noqa: E402
from convgrad.jax import frame, gate, handler, site  # noqa: E402
from convgrad.jax.call import array  # noqa: E402

KEYWORDS = {"strides": (2, 1), "pads_begin": (1, 0), "pads_end": (0, 1), "dilations": (1, 2), "groups": 2}
SRC, WEIGHTS, CHANNELS, DST = (2, 5, 6, 4), (3, 2, 2, 6), (6,), (2, 2, 5, 6)


def made(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)


def conv(src: Any, weights: Any, bias: Any = None) -> Any:
    return cj.convolution(src, weights, bias, **KEYWORDS)


def assert_same(got: Any, expected: np.ndarray, what: object = None) -> None:
    assert_same_bits(np.asarray(got), expected, what)


# -- bits ----------------------------------------------------------------------------------------------------------


SEEDS = [pytest.param(number, 1, True) for number in range(8)]
SEEDS += [
    pytest.param(number, seed, False, marks=pytest.mark.long)
    for number in range(len(OPERATORS))
    for seed in range(2, 22)
]


@pytest.mark.every(2)
@pytest.mark.parametrize(("number", "seed", "full"), SEEDS)
def test_programs_have_the_bits_of_run_and_so_have_their_gradients(number: int, seed: int, full: bool) -> None:
    """One program computes what run does, and each of its derivatives what the table says, bit for bit."""
    op, rng = OPERATORS[number], np.random.default_rng([number, seed])
    cases = iter(lambda: random_case(rng, op), None)
    case = next(case for case in cases if not full or all(0 not in shape for shape in case.shapes))
    given = operands_of(case, "normal", seed)
    arrays = [array for array in given if array.dtype.kind not in "iu"]

    def function(*arrays: Any) -> Any:
        values = iter(arrays)
        inputs = [array if array.dtype.kind in "iu" else next(values) for array in given]
        return cj.run(op.name, *inputs, dtype=case.dtype, **case.attributes)

    def with_gradients(cotangent: Any, *arrays: Any) -> Any:
        result, back = jax.vjp(function, *arrays)
        return result, back(cotangent)

    expected = convgrad.run(op.name, *given, dtype=case.dtype, **case.attributes)
    problem = prepare(op.name, given, case.attributes, case.dtype).problem
    cotangent = np.random.default_rng(seed).standard_normal(expected.shape).astype(expected.dtype)
    with jax.enable_x64(case.format.name == "f64"):
        result, gradients = jax.jit(with_gradients)(cotangent, *arrays)
    assert_same(result, expected, str(case))
    fmt, to = problem.operand_format, problem.output_format
    common = fmt if fmt is to else F64 if fmt is F64 else F32  # holds every number of both
    for operand, gradient in enumerate(gradients):
        by = derivative(problem, operand)
        if by.problem is None:
            assert_same(gradient, cotangent.astype(fmt.dtype), str(case))
            continue
        known = {COTANGENT: cotangent, ZEROS: np.zeros(arrays[operand].shape), **dict(enumerate(arrays))}
        taken = [known[name].astype(common.dtype) for name in by.operands]
        assert_same(gradient, call.solve(replace(by.problem, operand_format=common), taken), f"{case}, {operand}")


def test_threads_change_no_bit() -> None:
    src, weights = made(2, 20, 20, 32), made(3, 3, 32, 32)
    expected = convgrad.convolution(src, weights)
    for threads in (1, 2, 3):
        assert_same(jax.jit(lambda s, w, t=threads: cj.convolution(s, w, threads=t))(src, weights), expected, threads)


# -- derivatives ---------------------------------------------------------------------------------------------------

DIFFERENTIATED: dict[str, tuple[Callable[..., Any], Sequence[tuple[int, ...]]]] = {
    "convolution": (conv, (SRC, WEIGHTS, CHANNELS)),
    "convolution_backward_data": (lambda d, w: cj.convolution_backward_data(d, w, SRC, **KEYWORDS), (DST, WEIGHTS)),
    "convolution_backward_weights": (
        lambda s, d: cj.convolution_backward_weights(s, d, WEIGHTS, **KEYWORDS),
        (SRC, DST),
    ),
    "conv_transpose": (lambda s, w, b: cj.conv_transpose(s, w, b, **KEYWORDS), (DST, WEIGHTS, (4,))),
    "conv_transpose_backward_data": (lambda d, w: cj.conv_transpose_backward_data(d, w, **KEYWORDS), (SRC, WEIGHTS)),
    "conv_transpose_backward_weights": (
        lambda s, d: cj.conv_transpose_backward_weights(s, d, WEIGHTS, **KEYWORDS),
        ((2, 3, 5, 6), (2, 6, 6, 4)),
    ),
    "bias_add": (cj.bias_add, (DST, CHANNELS)),
    "bias_add_backward": (cj.bias_add_backward, (DST,)),
}
QUICK = ("convolution_backward_weights", 2)


@pytest.mark.parametrize(
    ("name", "order"),
    [pytest.param(*one, marks=[pytest.mark.long] * (one != QUICK)) for one in product(DIFFERENTIATED, (1, 2, 3))],
)
def test_differences_confirm_derivatives(name: str, order: int) -> None:
    function, shapes = DIFFERENTIATED[name]
    with jax.enable_x64(True):
        given = [np.asarray(made(*shape), np.float64) for shape in shapes]
        check_grads(function, given, order=order, modes=("fwd", "rev"))


@pytest.mark.every(3)
@pytest.mark.filterwarnings("ignore:Explicitly requested dtype")
@pytest.mark.parametrize("name", DIFFERENTIATED)
def test_f64_that_jax_no_longer_has_is_refused_or_exact(name: str) -> None:
    """JAX makes f32 of f64 where jax_enable_x64 is not set; the memory of f32 must not be read as f64."""
    function, shapes = DIFFERENTIATED[name]

    def gradients(narrow: bool, *given: Any) -> Any:
        result, back = jax.vjp(lambda *some: function(*some).astype(np.float32) if narrow else function(*some), *given)
        return back(result)

    for narrow in (False, True):
        with jax.enable_x64(True):
            given = [jnp.asarray(made(*shape), np.float64) for shape in shapes]
            expected = gradients(narrow, *given)
        try:
            got = gradients(narrow, *given)
        except convgrad.UnsupportedError as error:
            assert "f64 must be enabled in JAX. Use jax.config.update" in str(error)  # noqa: PT017
            continue
        for one, other in zip(got, expected, strict=True):
            assert np.allclose(one, other, rtol=1e-5 if narrow else 0, atol=1e-5 if narrow else 0)


def test_bias_alone_and_with_others_forward() -> None:
    """On integers, where nothing is rounded, the tangent is the sum of what each operand's tangent alone makes."""
    rng = np.random.default_rng(3)
    src, weights, bias = (rng.integers(-4, 5, shape).astype(np.float32) for shape in (SRC, WEIGHTS, CHANNELS))
    tangents = [rng.integers(-4, 5, shape).astype(np.float32) for shape in (SRC, WEIGHTS, CHANNELS)]
    terms = (
        convgrad.convolution(tangents[0], weights, **KEYWORDS),
        convgrad.convolution(src, tangents[1], **KEYWORDS),
        np.broadcast_to(tangents[2], DST),
    )
    for varied in ([2], [0, 2], [1, 2], [0, 1, 2]):

        def function(*some: Any, varied: Sequence[int] = varied) -> Any:
            each = iter(some)
            return conv(*[next(each) if n in varied else x for n, x in enumerate((src, weights, bias))])

        primals = [(src, weights, bias)[n] for n in varied]
        tangent = jax.jit(lambda *given, f=function: jax.jvp(f, *given)[1])(primals, [tangents[n] for n in varied])
        assert_same(tangent, sum((terms[n] for n in varied), np.zeros(DST, np.float32)), varied)


def test_types_of_gradients_follow_operands_where_the_result_has_its_own() -> None:
    """Of bf16 operands with an f32 result the gradient is summed in f32 of the f32 cotangent, and rounded once."""
    src, weights = (jnp.asarray(made(*shape), jnp.bfloat16) for shape in (SRC, WEIGHTS))
    cotangent = made(*DST)

    def gradients(src: Any, weights: Any, cotangent: Any) -> Any:
        result, back = jax.vjp(lambda s, w: cj.convolution(s, w, dtype="f32", **KEYWORDS), src, weights)
        assert result.dtype == jnp.float32
        return back(cotangent)

    wide = [np.asarray(x, np.float32) for x in (src, weights)]
    by_src = convgrad.convolution_backward_data(cotangent, wide[1], SRC, dtype="bf16", **KEYWORDS)
    by_weights = convgrad.convolution_backward_weights(wide[0], cotangent, WEIGHTS, dtype="bf16", **KEYWORDS)
    for got, expected in zip(jax.jit(gradients)(src, weights, cotangent), (by_src, by_weights), strict=True):
        assert_same(got, expected)


# -- transformations -----------------------------------------------------------------------------------------------

QUICK_AXES = ((0, None, None), (0, 0, None))
MAPPED = [
    pytest.param(axes, marks=[pytest.mark.long] * (axes not in QUICK_AXES))
    for axes in product((0, None), repeat=3)
    if 0 in axes
]


@pytest.mark.parametrize("axes", MAPPED)
def test_a_batch_has_the_bits_of_its_members(axes: tuple[int | None, ...]) -> None:
    given = [made(3, *s) if axis == 0 else made(*s) for s, axis in zip((SRC, WEIGHTS, CHANNELS), axes, strict=True)]
    program = jax.make_jaxpr(jax.vmap(conv, in_axes=axes))(*given)
    got = jax.vmap(conv, in_axes=axes)(*given)
    each = [[x[n] if axis == 0 else x for x, axis in zip(given, axes, strict=True)] for n in range(3)]
    assert_same(got, np.stack([convgrad.convolution(*one, **KEYWORDS) for one in each]), axes)
    assert ("scan" in str(program)) == (axes != (0, None, None)), "data alone are more images"


def test_gradients_of_each_image_within_a_checkpoint() -> None:
    src, weights, cotangents = made(3, *SRC), made(*WEIGHTS), made(3, *DST)

    def loss(weights: Any, src: Any, cotangent: Any) -> Any:
        return (jax.checkpoint(conv)(src, weights) * cotangent).sum()

    got = jax.jit(jax.vmap(jax.grad(loss), in_axes=(None, 0, 0)))(weights, src, cotangents)
    pairs = zip(src, cotangents, strict=True)
    assert_same(got, np.stack([convgrad.convolution_backward_weights(s, d, WEIGHTS, **KEYWORDS) for s, d in pairs]))


def test_a_gate_answers_where_a_handler_is_interrupted_and_once_it_is_shut(monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer is an error of XLA's making, an address; after that of the handler, whatever it is."""
    said: list[bytes] = []
    calls: list[int] = []

    def make(arguments: Any) -> int:
        said.append(arguments.contents.message)
        return 4096

    def handle(_: Any, slot: Any) -> None:
        calls.append(len(calls))
        if len(calls) == 1:
            raise KeyboardInterrupt
        slot[0] = None

    api = frame.Api()
    api.make_error = type(api.make_error)(make)
    handed = ctypes.pointer(frame.Frame(api=ctypes.pointer(api)))
    before = gate.gate(gate.Answers(handle))
    if before is None:
        pytest.skip("no code may run that is made at run time")
    monkeypatch.setattr(sys, "unraisablehook", lambda _: None)
    assert before.entry(ctypes.addressof(handed.contents)) == 4096
    assert before.entry(ctypes.addressof(handed.contents)) is None
    before.shut()
    assert before.entry(ctypes.addressof(handed.contents)) == 4096
    assert (len(said), len(calls), before.words[1]) == (2, 2, 0)


def test_without_jit_there_are_the_same_bits_and_gradients() -> None:
    src, weights = made(*SRC), made(*WEIGHTS)
    with jax.disable_jit():
        assert_same(conv(src, weights), convgrad.convolution(src, weights, **KEYWORDS))
        result, back = jax.vjp(conv, src, weights)
        expected = convgrad.convolution_backward_weights(src, np.asarray(result), WEIGHTS, **KEYWORDS)
        assert_same(back(result)[1], expected)


def test_an_array_of_numpy_is_handed_on_as_it_is() -> None:
    """JAX would compile a program that makes it its own, for each shape."""
    for dtype in (np.float32, jnp.bfloat16, np.float16):
        given = np.ones(3, dtype)
        assert array(given) is given
    for other in (np.ones(3), [1.0]):
        assert isinstance(array(other), jax.Array)
        assert array(other).dtype == np.float32


def test_an_operand_that_is_given_away_is_read_before_it_is_written() -> None:
    src, weights = made(2, 5, 6, 4), made(3, 3, 4, 4)
    twice = jax.jit(lambda s, w: cj.convolution(s, w, auto_pad="same_upper"), donate_argnums=0)
    given = jnp.array(src)
    assert_same(twice(given, weights), convgrad.convolution(src, weights, auto_pad="same_upper"))
    assert given.is_deleted()


@pytest.mark.parametrize("function", [cj.bias_add_backward, lambda x: cj.lax.conv_general_dilated(x, x, [1], "SAME")])
def test_what_is_no_array_of_numbers_is_refused(function: Callable[..., Any]) -> None:
    """A range is not expanded."""
    keys = jax.random.split(jax.random.key(0), 8).reshape(2, 2, 2)
    for value, words in ((keys, r"key<\w+>, whose elements are keys"), (range(10**12), r"range\(0, 1000000000000\)")):
        with pytest.raises(convgrad.InvalidDataTypeError, match=f"must be an array of numbers; got {words}$"):
            function(value)
    with pytest.raises(convgrad.InvalidDataTypeError, match="whose elements are keys"):
        jax.eval_shape(function, keys)


def test_shapes_are_refused_while_a_function_is_traced() -> None:
    with pytest.raises(convgrad.InvalidShapeError, match=r"src channels must be weights channels x groups.*\[G4\]"):
        jax.eval_shape(conv, made(*SRC), made(3, 2, 1, 6))
    with pytest.raises(convgrad.InvalidDataTypeError, match=r"src must be an array of f32.*int32"):
        jax.eval_shape(conv, jnp.ones(SRC, jnp.int32), made(*WEIGHTS))
    with pytest.raises(convgrad.InvalidDataTypeError, match=r"weights_shape must be known while .* is traced.*\[T3\]"):
        jax.eval_shape(cj.convolution_backward_weights, made(*SRC), made(*DST), jnp.array(WEIGHTS))
    for strides in 1, (1, 2):
        with pytest.raises(convgrad.InvalidAttributeError, match=r"strides must be known while .*static_argnames=.*A2"):
            jax.eval_shape(lambda s, w, t: cj.convolution(s, w, strides=t), made(*SRC), made(*WEIGHTS), strides)
    (batch,) = jax.export.symbolic_shape("batch")
    with pytest.raises(
        convgrad.InvalidDataTypeError, match=r"src must have a shape of integers.*\(batch, 5, 6, 4\) \[T3\]"
    ):
        jax.eval_shape(conv, jax.ShapeDtypeStruct((batch, *SRC[1:]), np.float32), made(*WEIGHTS))
    with pytest.raises(convgrad.InvalidDataTypeError, match=r"dtype must be one of.*\[T4\]"):
        jax.eval_shape(lambda s, w: cj.convolution(s, w, dtype=object()), made(*SRC), made(*WEIGHTS))
    with pytest.raises(convgrad.InvalidAttributeError, match="D6"):
        jax.eval_shape(lambda s, w: cj.convolution(s, w, threads=0), made(*SRC), made(*WEIGHTS))


def test_other_platforms_are_refused_by_name() -> None:
    traced = jax.jit(conv).trace(made(*SRC), made(*WEIGHTS))
    with pytest.raises(convgrad.UnsupportedError, match=r"on the CPU; got a program for cuda.*\[D1\]"):
        traced.lower(lowering_platforms=("cuda",))


# -- the handler ---------------------------------------------------------------------------------------------------


def test_a_text_says_the_whole_problem() -> None:
    rng = np.random.default_rng(5)
    for _ in range(200):
        case = random_case(rng)
        problem = prepare(case.op.name, operands_of(case, "integers", 0), case.attributes, case.dtype).problem
        read, threads = site.read(site.written(problem, 3).encode())
        names = ("solves_for", "geometry", "operands", "output", "layouts", "operand_format", "output_format")
        assert [getattr(read, name) for name in names] == [getattr(problem, name) for name in names], case
        assert threads == 3


def test_operands_and_results_are_read_and_written_where_xla_has_them(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = watched(monkeypatch)
    for dtype in (jnp.float32, jnp.bfloat16, jnp.float16, jnp.float8_e4m3fn, jnp.float8_e5m2):
        src, weights = (jnp.asarray(made(*shape), dtype) for shape in (SRC, WEIGHTS))
        result = jax.jit(conv)(src, weights)
        result.block_until_ready()
        assert seen.pop()[1] == [array.unsafe_buffer_pointer() for array in (src, weights, result)]


def test_what_goes_wrong_inside_is_raised_in_its_words(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise MemoryError("no room")

    monkeypatch.setattr(site, "ready", full)
    with pytest.raises(Exception, match="MemoryError: no room"):
        jax.jit(conv)(made(*SRC), made(*WEIGHTS)).block_until_ready()


def test_a_program_of_other_operands_is_refused() -> None:
    """As one may be that another wrote: the handler reads no memory that is not there."""
    case = prepare("Convolution", (made(*SRC), made(*WEIGHTS)), KEYWORDS, None).problem
    call = jax.ffi.ffi_call(handler.TARGET, jax.ShapeDtypeStruct(DST, np.float32))
    with pytest.raises(Exception, match="Convolution has 2 operands and a result; got a program with 1 and 1"):
        call(made(*SRC), site=site.written(case, None)).block_until_ready()
