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
from convgrad import InvalidDataTypeError, InvalidShapeError, UnsupportedError, arrays, libraries
from convgrad.formats import FORMATS
from convgrad.graph import Graph, LogicalTensor, Op
from convgrad.verify import check, exact
from tests.support.roles import BF16, DTYPES, F32, ROLES, Array, same

jax = pytest.importorskip("jax")
jnp = pytest.importorskip("jax.numpy")

LAYER = {"strides": [1], "dilations": [1]}
NARROW = ("f32", "bf16", "f16")  # what JAX has by default


@pytest.mark.parametrize("name", NARROW)
@pytest.mark.parametrize("role", ["bias_add", "bias_add_backward"])
def test_arrays_give_arrays(role: str, name: str) -> None:
    operands = ROLES[role].operands(DTYPES[name])
    result = ROLES[role](*map(jnp.asarray, operands))
    assert isinstance(result, jax.Array)
    assert same(np.asarray(result), ROLES[role](*operands))


def test_the_first_operand_decides() -> None:
    role = ROLES["convolution"]
    first, *others = role.operands(F32)
    assert isinstance(role(jnp.asarray(first), *others), jax.Array)
    assert type(role(first, *map(jnp.asarray, others))) is np.ndarray


@pytest.mark.parametrize("name", NARROW)
def test_no_memory_is_copied(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither an operand's nor the result's: both are where JAX has them, which takes over what begins a line."""
    given = jnp.ones((2, 4, 3), DTYPES[name])
    array, fmt = arrays.take(given, "", "src")
    assert (array.ctypes.data, fmt.name) == (given.unsafe_buffer_pointer(), name)
    assert not array.flags.writeable
    made: list[int] = []
    aligned = arrays.aligned

    def watched(shape: tuple[int, ...], dtype: Any) -> Array:
        made.append((result := aligned(shape, dtype)).ctypes.data)
        return result

    monkeypatch.setattr(arrays, "aligned", watched)
    forward = convgrad.compile("BiasAddBackward", given)
    results = [convgrad.bias_add_backward(given), forward(given)]
    assert [result.unsafe_buffer_pointer() for result in results] == made
    assert [result.tolist() for result in results] == [[8.0] * 3] * 2


def test_a_result_outlives_what_made_it() -> None:
    src = jnp.arange(6.0).reshape(2, 3)
    result = convgrad.bias_add(src, jnp.ones(3))
    del src
    other = [np.full(6, 9.0, F32) for _ in range(50)]
    assert (result * 1).tolist() == [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]
    del other


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
    """As the bound on the error does: in f32 it would be none."""
    src, weights = jnp.arange(6.0).reshape(1, 6, 1) / 3, jnp.ones((3, 1, 1))
    bound = convgrad.error_bound("Convolution", src, weights, **LAYER)
    expected = convgrad.error_bound("Convolution", np.asarray(src), np.asarray(weights), **LAYER)
    assert isinstance(bound, jax.Array)
    assert same(np.asarray(bound), expected)
    with jax.enable_x64(True):
        assert convgrad.bias_add_backward(jnp.ones((2, 3))).dtype == np.float64
    assert src.dtype == np.float32


@pytest.mark.parametrize("name", FORMATS)
def test_dtype_may_be_the_librarys(name: str) -> None:
    src = np.ones((2, 3), np.float64 if name == "f64" else F32)
    scalar = getattr(jnp, DTYPES[name].name)
    for dtype in (scalar, jnp.dtype(scalar), f"jax.numpy.{DTYPES[name].name}"):
        assert convgrad.bias_add_backward(src, dtype=dtype).dtype == DTYPES[name]
    with pytest.raises(InvalidDataTypeError, match=r"dtype must be one of .*int8.*\[T4\]"):
        convgrad.bias_add_backward(src, dtype=jnp.int8)


def test_shapes_may_be_the_librarys() -> None:
    src, dst = jnp.ones((1, 6, 1)), jnp.ones((1, 4, 1))
    result = convgrad.convolution_backward_weights(src, dst, jnp.asarray((3, 1, 1)))
    assert result.flatten().tolist() == [4.0] * 3


def test_out_of_jax_is_refused() -> None:
    out = jnp.zeros(3)
    with pytest.raises(
        InvalidShapeError, match=r"out must be writable; got an array of JAX, and no such array is \[D3\]"
    ):
        convgrad.bias_add_backward(jnp.ones((2, 3)), out=out)
    assert not out.any()
    ours = np.zeros(3, F32)
    assert convgrad.bias_add_backward(jnp.ones((2, 3)), out=ours) is ours
    assert ours.tolist() == [2.0] * 3


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


def test_a_graphs_results_are_of_the_library_of_what_they_come_from() -> None:
    tensors = LogicalTensor(0, "f32", (1, 6, 1)), LogicalTensor(1, "f32", (3, 1, 1))
    dst = LogicalTensor(2)
    ops = [Op(0, "Convolution", tensors, (dst,), LAYER), Op(1, "BiasAddBackward", (dst,), (LogicalTensor(3),), {})]
    graph = Graph(ops, outputs=[2, 3])
    graph.finalize()
    results = graph.run({0: jnp.ones((1, 6, 1)), 1: np.ones((3, 1, 1), F32)}).results
    assert all(isinstance(value, jax.Array) for value in results.values())
    assert [value.flatten().tolist() for value in results.values()] == [[3.0] * 4, [12.0]]


def test_verify_takes_arrays() -> None:
    src, weights = jnp.arange(6.0).reshape(1, 6, 1), jnp.ones((3, 1, 1))
    result = exact("Convolution", src, weights, dtype=jnp.bfloat16, **LAYER)
    assert isinstance(result, jax.Array)
    assert same(np.asarray(result), np.array([3, 6, 9, 12], BF16).reshape(1, 4, 1))
    assert check("Convolution", result, src, weights, **LAYER).outcome == "ok"

    def theirs(operator: str, x: Any, w: Any, **_: Any) -> Any:
        assert isinstance(x, jax.Array)
        return jax.lax.conv_general_dilated(x, w, (1,), "VALID", dimension_numbers=("NWC", "WIO", "NWC"))

    assert check("Convolution", theirs, src, weights, **LAYER).outcome == "ok"
