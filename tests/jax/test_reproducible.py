"""convgrad.jax.reproducible: the bits of explicit calls under every transformation, and nothing else is changed."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import convgrad
from tests.support.engine_helpers import digest
from tests.support.tiers import tiers

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402
from jax.extend.core import subjaxprs  # noqa: E402

import convgrad.jax as cj  # noqa: E402
from convgrad.jax import reproducible  # noqa: E402
from tests.jax.configurations import drawn  # noqa: E402

THEIRS, OURS = jax.lax.conv_general_dilated, cj.lax.conv_general_dilated
NUMBERS = ("NHWC", "HWIO", "NHWC")
Model = Callable[..., Any]


def made(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)


def weights() -> dict[str, Any]:
    return {"one": made(3, 3, 4, 8), "two": [made(3, 3, 1, 8), made(8)], "up": made(2, 2, 8, 4)}


def model(conv: Model, weights: Any, images: Any) -> Any:
    """Strides, groups, dilations and a transposed convolution."""
    x = jax.nn.relu(conv(images, weights["one"], (2, 2), "SAME", dimension_numbers=NUMBERS))
    depthwise, bias = weights["two"]
    x = conv(x, depthwise, (1, 1), "VALID", rhs_dilation=(1, 2), dimension_numbers=NUMBERS, feature_group_count=8)
    x = jnp.tanh(x + bias)
    return conv(x, weights["up"], (1, 1), [(1, 1), (1, 1)], lhs_dilation=(2, 2), dimension_numbers=NUMBERS)


def loss(conv: Model, weights: Any, images: Any) -> Any:
    return jnp.square(model(conv, weights, images)).mean()


def assert_same(got: Any, expected: Any) -> None:
    got, expected = jax.tree.flatten(got), jax.tree.flatten(expected)
    assert got[1] == expected[1]
    assert [digest(array) for array in got[0]] == [digest(array) for array in expected[0]]


def names(function: Model, *given: Any) -> list[str]:
    """Return the names of primitives in a function, those of what it calls included."""

    def inside(program: Any) -> list[str]:
        found = [equation.primitive.name for equation in program.eqns]
        return found + [name for inner in subjaxprs(program) for name in inside(inner)]

    return inside(jax.make_jaxpr(function)(*given))


# -- bits ----------------------------------------------------------------------------------------------------------

GRADIENTS = partial(jax.value_and_grad, argnums=(0, 1))
WAYS: dict[str, Callable[[Model, Model], Model]] = {  # of what makes a function reproducible, and the function
    "jit_inside": lambda wrap, f: GRADIENTS(wrap(jax.jit(f))),
    "jit_around": lambda wrap, f: jax.jit(GRADIENTS(wrap(f))),
    "eager": lambda wrap, f: GRADIENTS(wrap(f)),
    "remat": lambda wrap, f: GRADIENTS(wrap(jax.checkpoint(f))),
    "remat_around": lambda wrap, f: GRADIENTS(jax.checkpoint(wrap(f))),
    "twice": lambda wrap, f: GRADIENTS(wrap(wrap(f))),
}


def unchanged(function: Model) -> Model:
    return function


@pytest.mark.every(7)
@pytest.mark.parametrize("way", WAYS)
def test_gradients_are_those_of_explicit_calls(way: str) -> None:
    """Compiled in the same places: XLA's own operations have different bits elsewhere."""
    given = weights(), made(2, 12, 12, 4)
    theirs, ours = WAYS[way](reproducible, partial(loss, THEIRS)), WAYS[way](unchanged, partial(loss, OURS))
    assert_same(theirs(*given), ours(*given))


def test_a_batch_has_the_bits_of_explicit_calls() -> None:
    given = weights(), made(3, 2, 12, 12, 4)
    theirs, ours = (jax.grad(f) for f in (reproducible(partial(loss, THEIRS)), partial(loss, OURS)))
    each = [jax.jit(jax.vmap(gradient, in_axes=(None, 0)))(*given) for gradient in (theirs, ours)]
    assert_same(*each)


def test_hessians_are_those_of_explicit_calls() -> None:
    given = made(2, 1, 3), made(1, 1, 5)
    theirs, ours = (lambda w, x, conv=conv: (conv(x, w, (1,), "SAME") ** 3).sum() for conv in (THEIRS, OURS))
    assert_same(*(jax.jit(jax.hessian(f))(*given) for f in (reproducible(theirs), ours)))


def looped(conv: Model, w: Any, x: Any) -> Any:
    def step(x: Any, w: Any) -> Any:
        return jnp.tanh(conv(x, w, (1, 1), "SAME")), x.sum()

    x, sums = jax.lax.scan(step, x, w)
    x = jax.lax.cond(x.sum() < sums[0], lambda x: conv(x, w[0], (1, 1), "SAME"), lambda x: 2 * x, x)
    return jnp.square(jax.lax.switch(1, [lambda x: x, lambda x: conv(x, w[1], (1, 1), "SAME")], x)).mean()


def compiled_gradient(function: Model) -> Model:
    return jax.jit(jax.grad(function))


@tiers("way", [compiled_gradient], long=[jax.grad, jax.jit])
def test_scan_and_cond(way: Callable[[Model], Model]) -> None:
    given = made(4, 2, 2, 3, 3), made(1, 2, 6, 6)
    assert_same(way(reproducible(partial(looped, THEIRS)))(*given), way(partial(looped, OURS))(*given))


def test_while_loop() -> None:
    def function(conv: Model, w: Any, x: Any) -> Any:
        return jax.lax.while_loop(lambda x: jnp.abs(x).max() < 50, lambda x: conv(x, w, (1, 1), "SAME"), x)

    given = made(2, 2, 3, 3), made(1, 2, 6, 6)
    assert_same(reproducible(partial(function, THEIRS))(*given), partial(function, OURS)(*given))


def test_shard_map() -> None:
    """Of one device here; jax_devices.py has several."""
    mesh = jax.make_mesh((1,), ("d",), axis_types=(jax.sharding.AxisType.Auto,))
    spec = jax.sharding.PartitionSpec

    def function(conv: Model, w: Any, x: Any) -> Any:
        def part(w: Any, x: Any) -> Any:
            return jax.lax.psum(jnp.square(conv(x, w, (1,), "SAME")).sum(), "d")

        return jax.shard_map(part, mesh=mesh, in_specs=(spec(), spec("d")), out_specs=spec())(w, x)

    given = made(3, 2, 3), made(4, 2, 6)
    theirs, ours = reproducible(partial(function, THEIRS)), partial(function, OURS)
    assert_same(jax.jit(jax.grad(theirs))(*given), jax.jit(jax.grad(ours))(*given))
    assert "conv_general_dilated" not in names(theirs, *given)


# -- custom derivatives --------------------------------------------------------------------------------------------


def test_relu_keeps_its_derivative() -> None:
    """At 0 the derivative of jax.nn.relu is 0, that of a maximum is half."""
    x = jnp.array([[[-1.0, 0.0, 2.0]]])
    got = jax.grad(reproducible(lambda x: jax.nn.relu(THEIRS(x, jnp.ones((1, 1, 1)), (1,), "SAME")).sum()))(x)
    assert got.tolist() == [[[0.0, 0.0, 1.0]]]


def with_rules(conv: Model) -> tuple[Model, ...]:
    """Return functions with rules of their own, wrong on purpose; the last two call convolutions there only."""
    same = partial(conv, window_strides=(1, 1), padding="SAME")
    forward, backward, filtered = jax.custom_jvp(same), jax.custom_vjp(same), jax.custom_vjp(lambda x, w: x)
    forward.defjvp(lambda primals, tangents: (same(*primals), same(3 * tangents[0], primals[1])))
    backward.defvjp(lambda x, w: (same(x, w), w), lambda w, cotangent: (same(2 * cotangent, w), None))
    filtered.defvjp(lambda x, w: (x, w), lambda w, cotangent: (same(cotangent, w), None))
    tilted = jax.custom_jvp(lambda x, w: x)
    tilted.defjvp(lambda primals, tangents: (primals[0], same(tangents[0], primals[1])))
    return forward, backward, filtered, lambda x, w: tilted(same(x, w), w)


@pytest.mark.every(3)
@pytest.mark.parametrize("number", range(4))
@pytest.mark.parametrize("way", [unchanged, jax.jit], ids=["eager", "jit"])
def test_rules_of_custom_derivatives(number: int, way: Callable[[Model], Model]) -> None:
    w, x = made(2, 2, 3, 3), made(1, 2, 6, 6)

    def squares(function: Model, x: Any) -> Any:
        return jnp.square(function(x, w)).sum()

    theirs = jax.grad(reproducible(way(partial(squares, with_rules(THEIRS)[number]))))
    ours = jax.grad(way(partial(squares, with_rules(OURS)[number])))
    assert_same(theirs(x), ours(x))
    assert "convgrad" in names(theirs, x)
    assert "conv_general_dilated" not in names(theirs, x)


# -- arguments and results -----------------------------------------------------------------------------------------


def test_arguments_and_results_of_any_type() -> None:
    @reproducible
    def function(x: Any, w: Any, *, padding: str, parts: dict[str, Any]) -> Any:
        """Its own words."""
        return {"name": padding, "result": THEIRS(x, w, parts["strides"], padding), "same": x, "none": None, "one": 1}

    x, w = made(1, 2, 6), made(3, 2, 3)
    got = function(x, w, padding="SAME", parts={"strides": (2,)})
    assert_same(got.pop("result"), OURS(x, w, (2,), "SAME"))
    assert_same(got.pop("same"), x)
    assert got == {"name": "SAME", "none": None, "one": 1}
    assert (function.__name__, function.__doc__) == ("function", "Its own words.")


def test_a_weight_of_a_closure_is_differentiated() -> None:
    x, w = made(1, 2, 6), made(3, 2, 3)
    theirs, ours = (lambda w, c=c: (c(x, w, (1,), "SAME") ** 2).sum() for c in (THEIRS, OURS))
    assert_same(jax.grad(lambda w: reproducible(lambda: theirs(w))())(w), jax.grad(ours)(w))


def test_no_tracer_is_kept() -> None:
    x = made(1, 2, 6)
    with jax.checking_leaks():
        jax.jit(jax.grad(reproducible(lambda w: THEIRS(x, w, (1,), "SAME").sum())))(made(3, 2, 3))


def test_bf16_and_results_of_another_type() -> None:
    given = [jnp.asarray(made(*shape), jnp.bfloat16) for shape in ((2, 3, 9), (4, 3, 3))]
    for dtype in (None, jnp.float32):
        theirs, ours = (
            lambda x, w, c=c, d=dtype: jnp.square(c(x, w, (1,), "SAME", preferred_element_type=d)).sum()
            for c in (THEIRS, OURS)
        )
        assert_same(reproducible(theirs)(*given), ours(*given))


# -- what JAX computes ---------------------------------------------------------------------------------------------

NARROW = jnp.float8_e4m3b11fnuz  # a type that convgrad does not have
LEFT = r"^reproducible: JAX still computes a convolution of float8_e4m3b11fnuz\[1,2,6\] and .*fnuz\[3,2,3\] at "
PLACE = r"test_reproducible.py:\d+:\d+ \(narrow\), because conv_general_dilated: lhs and rhs must be arrays of f32, "


def narrow(x: Any, w: Any) -> Any:
    """One convolution that is refused, and one that is not."""
    return THEIRS(x.astype(NARROW), w.astype(NARROW), (1,), "SAME").astype(x.dtype) + THEIRS(x, w, (1,), "SAME")


@pytest.mark.every(5)
@pytest.mark.parametrize("way", [unchanged, jax.jit, jax.checkpoint, partial(jax.vmap, in_axes=(0, None))])
def test_what_is_refused_is_left_to_jax(way: Callable[[Model], Model]) -> None:
    """Each call warns, of programs that were met before too; with strict=True each call raises."""
    x, w = jnp.ones((1, 1, 2, 6) if isinstance(way, partial) else (1, 2, 6)), jnp.ones((3, 2, 3))
    function = way(narrow)
    for _ in range(2):
        with pytest.warns(UserWarning, match=LEFT + ".*" + PLACE + ".*strict=True to raise an error"):
            got = reproducible(function)(x, w)
        assert np.array_equal(got, function(x, w))
        with pytest.raises(convgrad.InvalidDataTypeError, match="^reproducible: only JAX can compute a conv.*" + PLACE):
            reproducible(function, strict=True)(x, w)
    with pytest.warns(UserWarning, match=LEFT):
        assert set(names(reproducible(function), x, w)) >= {"convgrad", "conv_general_dilated"}


def test_rules_of_custom_derivatives_leave_it_to_jax_too() -> None:
    """The line is that of the forward function, as in all of JAX's messages; there may be none."""
    x, w = made(1, 2, 6), made(3, 2, 3)
    rule = jax.custom_vjp(lambda x, w: x)
    rule.defvjp(lambda x, w: (x, w), lambda w, cotangent: (cotangent + narrow(cotangent, w).sum(), None))

    def called(x: Any, w: Any) -> Any:
        return rule(x, w)

    def gradient(function: Model, strict: bool) -> Any:
        return jax.grad(lambda x: reproducible(function, strict=strict)(x, w).sum())(x)

    for function, place in (called, r" at \S*test_reproducible.py:\d+:\d+ \(\S*called\)"), (rule, ""):
        words = rf"\[3,2,3\]{place}, because conv_general_dilated"
        for _ in range(2):
            with pytest.warns(UserWarning, match=words):
                gradient(function, False)
            with pytest.raises(convgrad.InvalidDataTypeError, match=words):
                gradient(function, True)


def test_symbolic_shapes_are_left_to_jax() -> None:
    (batch,) = jax.export.symbolic_shape("batch")
    x, w = jax.ShapeDtypeStruct((batch, 2, 6), np.float32), made(3, 2, 3)
    with pytest.warns(UserWarning, match=r"float32\[batch,2,6\].*lhs must have a shape of integers"):
        exported = jax.export.export(jax.jit(reproducible(lambda x: THEIRS(x, w, (1,), "SAME"))))(x)
    assert exported.out_avals[0].shape == (batch, 3, 6)


def test_integers_are_left_to_jax_silently() -> None:
    """Their bits are the same in any order of sums."""
    x, w = jnp.ones((1, 2, 6), int), jnp.ones((3, 2, 3), int)
    function = reproducible(lambda x, w: THEIRS(x, w, (1,), "SAME"), strict=True)
    assert_same(function(x, w), THEIRS(x, w, (1,), "SAME"))
    assert "convgrad" not in names(function, x, w)
    wide = reproducible(lambda x, w: THEIRS(x, w, (1,), "SAME", preferred_element_type=np.float32), strict=True)
    assert "conv_general_dilated" not in names(wide, x, w)


@tiers("seed", [1], long=range(2, 60))
def test_all_that_jax_computes_is_served(seed: int) -> None:
    lhs, rhs, keywords = drawn(seed)
    try:
        expected = jax.eval_shape(lambda lhs, rhs: THEIRS(lhs, rhs, **keywords), lhs, rhs)
    except ValueError:
        return
    function = reproducible(lambda lhs, rhs: THEIRS(lhs, rhs, **keywords), strict=True)
    got = jax.eval_shape(function, lhs, rhs)
    assert (got.shape, got.dtype) == (expected.shape, expected.dtype)
    if jnp.issubdtype(expected.dtype, jnp.inexact):
        assert "conv_general_dilated" not in names(function, lhs, rhs)


def test_wrong_arguments() -> None:
    with pytest.raises(convgrad.InvalidDataTypeError, match=r"^reproducible: function must be callable; got list$"):
        reproducible([])  # type: ignore[arg-type]
    with pytest.raises(convgrad.InvalidAttributeError, match=r"^reproducible: strict must be True or False; got 1$"):
        reproducible(model, strict=1)  # type: ignore[arg-type]


def test_a_function_without_convolutions_warns() -> None:
    with pytest.warns(UserWarning, match=r"^reproducible: found no convolution of jax.lax in relu, so nothing has"):
        assert reproducible(jax.nn.relu)(jnp.float32(2)) == 2
    explicit = reproducible(jax.jit(lambda x, w: OURS(x, w, (1,), "SAME")))
    explicit(made(1, 2, 6), made(3, 2, 3))  # has one, which is ours already


# -- nothing else is changed ---------------------------------------------------------------------------------------


def test_functions_outside_are_not_affected() -> None:
    """Before, within and after, in this thread and another, whoever compiled a function first."""
    x, w = made(1, 2, 6), made(3, 2, 3)
    compiled, first = (jax.jit(lambda x, w, n=n: n * THEIRS(x, w, (1,), "SAME")) for n in (2, 3))
    before = compiled(x, w)
    seen: list[list[str]] = []

    def function(x: Any, w: Any) -> Any:
        def look() -> None:
            seen.append(names(compiled, np.asarray(made(1, 2, 6)), np.asarray(made(3, 2, 3))))

        look()
        other = threading.Thread(target=look)
        other.start()
        other.join()
        return compiled(x, w) + first(x, w)

    wrapped = reproducible(function)
    seen.clear()
    assert names(wrapped, x, w).count("convgrad") == 2
    assert "conv_general_dilated" not in names(wrapped, x, w)
    wrapped(x, w)
    seen += [names(compiled, x, w), names(first, x, w), names(function, x, w)]
    assert len(seen) >= 6
    assert all("conv_general_dilated" in found and "convgrad" not in found for found in seen)
    assert_same(compiled(x, w), before)


def test_calls_leave_nothing_behind() -> None:
    gradient = jax.grad(reproducible(lambda x, w: jax.nn.relu(THEIRS(x, w, (1,), "SAME")).sum()))
    counts = []
    for _ in range(3):
        for _ in range(10):
            gradient(made(1, 2, 6), made(3, 2, 3))
        gc.collect()
        counts.append(len(gc.get_objects()))
    assert counts[-1] - counts[-2] < 10


@pytest.mark.parametrize("way", [unchanged, jax.jit], ids=["eager", "jit"])
def test_max_error_is_that_of_each_call(way: Any) -> None:
    """Though JAX remembers what it has traced."""
    given = made(2, 40, 32, 32), made(50, 40, 3, 3)  # as in tests/torch/test_max_error.py
    theirs, ours = ((lambda x, w, f=f: f(x, w, (1, 1), "SAME")) for f in (THEIRS, OURS))
    function = reproducible(way(theirs))
    expected = {}
    for bound in (1000, 1):
        with convgrad.max_error(bound):
            expected[bound] = ours(*given), jax.grad(lambda w: ours(given[0], w).sum())(given[1])
    assert [digest(one) for one in expected[1]] != [digest(one) for one in expected[1000]]
    for bound in (1000, 1, 1000, 1):
        with convgrad.max_error(bound):
            got = function(*given), jax.grad(lambda w: function(given[0], w).sum())(given[1])
        assert_same(got, expected[bound])


def test_a_compiled_function_is_compiled_once() -> None:
    function = reproducible(jax.jit(lambda x, w: THEIRS(x, w, (1,), "SAME")))
    given = made(1, 2, 6), made(3, 2, 3)
    events: list[str] = []

    def listen(event: str, *_: Any, **__: Any) -> None:
        events.append(event.rsplit("/", maxsplit=1)[-1])

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        function(*given)
        assert "backend_compile_duration" in events
        events.clear()
        function(*given)
        assert "backend_compile_duration" not in events
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)
