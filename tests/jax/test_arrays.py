"""JAX's arrays: results as arrays without a copy, dtypes, and what is refused; the bits are NumPy's."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import convgrad
from convgrad import InvalidDataTypeError, InvalidShapeError, UnsupportedError, arrays
from convgrad.arrays import libraries
from convgrad.formats import FORMATS
from convgrad.verify import check, exact
from tests.support.roles import DTYPES, F32, Array
from tests.torch.library import LAYER, ArraysOfALibrary

jax = pytest.importorskip("jax")
jnp = pytest.importorskip("jax.numpy")
import convgrad.jax  # noqa: E402 - it needs JAX


class TestArrays(ArraysOfALibrary):
    kind, formats = jax.Array, ("f32", "bf16", "f16")  # what JAX has by default
    made = staticmethod(jnp.asarray)

    def values(self, result: Any) -> Array:
        return np.asarray(result)

    def address(self, array: Any) -> int:
        return array.unsafe_buffer_pointer()  # type: ignore[no-any-return]


def test_an_array_is_read_where_it_lies() -> None:
    array, _ = arrays.take(jnp.ones((2, 4, 3)), "", "src")
    assert not array.flags.writeable


def test_memory_is_given_back_with_the_last_array() -> None:
    made = arrays.aligned((4,), np.dtype(F32))
    made[...] = 1
    ref = weakref.ref(made.base)
    handed = libraries.like(jnp.ones(1))(made)
    assert handed.unsafe_buffer_pointer() == made.ctypes.data
    del made
    assert ref() is not None
    assert handed.tolist() == [1.0] * 4
    del handed
    gc.collect()
    assert ref() is None


def test_a_result_lies_where_the_operand_does() -> None:
    """Though it has other axes to be spread along."""
    device = jax.devices()[0]
    mesh = jax.sharding.Mesh(np.array([device]).reshape(1, 1), ("n", "c"))
    spread = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("n", "c"))
    result = convgrad.bias_add_backward(jax.device_put(jnp.ones((2, 3)), spread))
    assert (result.tolist(), result.devices()) == ([2.0] * 3, {device})


def test_f64_stays_f64() -> None:
    """As the bound on the error does, which in f32 would be none."""
    with jax.enable_x64(True):
        assert convgrad.bias_add_backward(jnp.ones((2, 3))).dtype == np.float64


@pytest.mark.parametrize("name", FORMATS)
def test_dtype_may_be_the_librarys(name: str) -> None:
    src = np.ones((2, 3), np.float64 if name == "f64" else F32)
    scalar = getattr(jnp, DTYPES[name].name)
    for dtype in (scalar, jnp.dtype(scalar), f"jax.numpy.{DTYPES[name].name}"):
        assert convgrad.bias_add_backward(src, dtype=dtype).dtype == DTYPES[name]
    with pytest.raises(InvalidDataTypeError, match=r"dtype must be one of .*int8.*\[T4\]"):
        convgrad.bias_add_backward(src, dtype=jnp.int8)


def test_out_of_jax_is_refused() -> None:
    out = jnp.zeros(3)
    with pytest.raises(
        InvalidShapeError, match=r"out must be writable; got a JAX array, which is never writable \[D3\]"
    ):
        convgrad.bias_add_backward(jnp.ones((2, 3)), out=out)
    assert not out.any()


@pytest.mark.parametrize("transform", ["jit", "grad", "vmap", "jvp"])
def test_tracers_are_refused(transform: str) -> None:
    def inside(value: Any) -> Any:
        for call in (convgrad.bias_add_backward, convgrad.compile("BiasAddBackward", np.ones((2, 3), F32))):
            with pytest.raises(
                UnsupportedError, match=r"diff_dst must be an array, not a tracer.*convgrad.jax.*\[D8\]"
            ):
                call(value)
        return value.sum()

    src = jnp.ones((2, 2, 3))
    if transform == "jvp":
        jax.jvp(inside, (src,), (src,))
    else:
        getattr(jax, transform)(inside)(src)


def test_advice_about_two_types_works_in_a_trace() -> None:
    def traced(convolution: Callable[..., Any], cast: bool) -> Any:
        def layer(src: Any, weights: Any) -> Any:
            weights = weights.astype(jnp.bfloat16)
            return convolution(src, weights.astype(src.dtype) if cast else weights)

        return jax.jit(layer)(jnp.ones((1, 3, 3, 1)), jnp.ones((1, 1, 1, 1)))

    advice = r"Use weights\.astype\(src\.dtype\) \[T2\]"
    with pytest.raises(InvalidDataTypeError, match=advice):
        traced(convgrad.jax.convolution, cast=False)
    assert traced(convgrad.jax.convolution, cast=True).dtype == F32
    src, weights = jnp.ones((1, 3, 3, 1)), jnp.ones((1, 1, 1, 1), jnp.bfloat16)
    with pytest.raises(InvalidDataTypeError, match=advice):
        convgrad.convolution_backward(src, src, weights)
    with pytest.raises(InvalidDataTypeError, match=r"Use numpy\.asarray\(weights, numpy\.float32\) \[T2\]"):
        convgrad.convolution_backward(src, src, [[[[1.0]]]])


def test_a_deleted_array_is_refused() -> None:
    src = jnp.ones((2, 3))
    src.delete()
    with pytest.raises(UnsupportedError, match=r"must lie in memory; got an array that was deleted \[D1\]"):
        convgrad.bias_add_backward(src)


ELSEWHERE: dict[str, tuple[Callable[[], Any], str]] = {
    "a GPU": (
        lambda: SimpleNamespace(is_deleted=bool, devices=lambda: {0}, platform=lambda: "gpu", device="cuda:0"),
        "src must lie in CPU memory; got an array on cuda:0; copy it there first: "
        'jax.device_put(src, jax.devices("cpu")[0])',
    ),
    "many devices": (
        lambda: SimpleNamespace(
            is_deleted=bool, devices=lambda: {0, 1}, platform=lambda: "cpu", sharding="two devices"
        ),
        "src must lie on one device; got an array on two devices; jax.device_put(src, device) gathers it",
    ),
}


@pytest.mark.parametrize(("make", "words"), ELSEWHERE.values(), ids=ELSEWHERE)
def test_another_device_is_named(make: Callable[[], Any], words: str) -> None:
    """As JAX has one device here, by the rows themselves."""
    value = make()
    refusal = libraries.JAX.refusal(value, libraries.JAX.refused)
    assert refusal is not None
    assert (refusal.rule, refusal.words.format(name="src", got=value)) == ("D1", words)


def test_a_function_that_is_judged_is_called_with_arrays() -> None:
    src, weights = jnp.arange(6.0).reshape(1, 6, 1), jnp.ones((3, 1, 1))
    assert exact("Convolution", src, weights, dtype=jnp.bfloat16, **LAYER).dtype == jnp.bfloat16

    def theirs(operator: str, x: Any, w: Any, **_: Any) -> Any:
        assert isinstance(x, jax.Array)
        return jax.lax.conv_general_dilated(x, w, (1,), "VALID", dimension_numbers=("NWC", "WIO", "NWC"))

    assert check("Convolution", theirs, src, weights, **LAYER).outcome == "ok"
