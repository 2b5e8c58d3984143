"""``activation`` and ``max_error`` on arrays of JAX and Dask: the bits of the functions on NumPy's."""

from __future__ import annotations

import importlib
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest

import convgrad
from convgrad import InvalidAttributeError
from convgrad.formats import F64, FORMATS, Format
from tests.support.helpers import assert_same_bits
from tests.support.tiers import tiers

RNG = np.random.default_rng(0)
SRC, WEIGHTS, BIAS = (RNG.standard_normal(n).astype(np.float32) for n in ((5, 12, 12, 64), (3, 3, 64, 64), (64,)))
LAYER: dict[str, Any] = {"pads_begin": 1, "pads_end": 1}


def adapter(library: str) -> Any:
    """Return convgrad's module for a library, or skip the test if the library is not installed."""
    pytest.importorskip({"dask": "dask.array"}.get(library, library))
    return importlib.import_module(f"convgrad.{library}")


@tiers("most", [64], long=[None, 8])
def test_max_error_of_jax_arrays(most: float | None) -> None:
    """Of a result, and of its derivatives."""
    jax, ours = pytest.importorskip("jax"), adapter("jax")
    options = {**LAYER, "max_error": most, "activation": "relu"}
    dst, pullback = convgrad.vjp("Convolution", SRC, WEIGHTS, BIAS, **options)
    theirs, gradients = jax.vjp(lambda *operands: ours.convolution(*operands, **options), SRC, WEIGHTS, BIAS)
    assert_same_bits(np.asarray(theirs), dst, "dst")
    cotangent = RNG.standard_normal(dst.shape).astype(np.float32)
    for got, expected in zip(gradients(cotangent), pullback(cotangent), strict=True):
        assert_same_bits(np.asarray(got), expected, f"max_error {most}")
    if most:
        direct = convgrad.convolution(SRC, WEIGHTS, BIAS, **LAYER, activation="relu")
        assert (dst != direct).any()
        with convgrad.max_error(most):
            traced = ours.convolution(SRC, WEIGHTS, BIAS, **LAYER, activation="relu")
        assert_same_bits(np.asarray(traced), dst, "as the context says")


@pytest.mark.parametrize("library", ["jax", "dask"])
@pytest.mark.parametrize("fmt", FORMATS.values(), ids=str)
def test_activation_of_small_and_large_sums(fmt: Format, library: str) -> None:
    """A sum below all numbers of the type becomes 0, not the NaN of f8_e4m3; a denormal above 0 remains."""
    if library == "dask" and fmt is F64:
        pytest.skip("Dask refuses f64")
    ours, array = adapter(library), np.asarray
    if library == "dask":
        array = pytest.importorskip("dask.array").from_array
    sums = [-fmt.largest, -fmt.tiny, 0, fmt.tiny, fmt.largest]
    src = np.array(sums, np.float64).astype(fmt.dtype).reshape(1, 5, 1).repeat(2, 2)
    src[..., 1] *= np.array([1, 0, 0, 0, 0]).astype(fmt.dtype)  # the first sum is twice the smallest number
    weights = np.ones((1, 2, 1), fmt.dtype)
    with x64(library, fmt):
        got = np.asarray(ours.convolution(array(src), weights, activation="relu"))
    assert_same_bits(got, convgrad.convolution(src, weights, activation="relu"), str(fmt))


@pytest.mark.every(2)
@pytest.mark.parametrize("fmt", FORMATS.values(), ids=str)
def test_gradient_of_an_activation_of_jax_arrays(fmt: Format) -> None:
    """The gradient is 0 where the result is 0, and not where the result is a denormal."""
    jax, ours = pytest.importorskip("jax"), adapter("jax")
    src = np.array([-1, -fmt.tiny, 0, fmt.tiny, 1], np.float64).astype(fmt.dtype).reshape(1, 5, 1)
    with x64("jax", fmt):
        one = jax.numpy.ones((1, 1, 1), fmt.dtype)
        _, pullback = jax.vjp(lambda src: ours.convolution(src, one, activation="relu"), src)
        (gradient,) = pullback(jax.numpy.ones(src.shape, fmt.dtype))
    assert np.asarray(gradient, np.float64).ravel().tolist() == [0, 0, 0, 1, 1]


def x64(library: str, fmt: Format) -> Any:
    return importlib.import_module("jax").enable_x64(fmt is F64) if library == "jax" else nullcontext()


@pytest.mark.parametrize("library", ["jax", "dask"])
def test_options_that_a_library_lacks_are_refused(library: str) -> None:
    module = adapter(library)
    with pytest.raises(InvalidAttributeError, match=r"'out'. This function returns a new array \[A1\]"):
        module.convolution(SRC, WEIGHTS, out=SRC)
    array = SRC if library == "jax" else pytest.importorskip("dask.array").from_array(SRC)
    with pytest.raises(InvalidAttributeError, match=r"activation must be None or \"relu\"; got 'gelu' \[D13\]"):
        module.convolution(array, WEIGHTS, activation="gelu")
    if library == "dask":
        with pytest.raises(InvalidAttributeError, match=r"computes direct sums, which are within any max_error \[A1\]"):
            module.convolution(SRC, WEIGHTS, max_error=64)
    with pytest.raises(convgrad.ConvgradError, match=r"activation.*\[(A1|D13)\]"):
        module.convolution_backward_weights(SRC, SRC, WEIGHTS.shape, activation="relu")


TORCH = {
    "conv2d": ((4, 16, 12, 12), (24, 16, 3, 3), {"padding": 1}),
    "conv_transpose2d": ((2, 16, 7, 7), (16, 8, 3, 3), {"stride": 2}),
}


@pytest.mark.every(5)
@pytest.mark.parametrize("name", TORCH)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_activation_of_torch_tensors(name: str, dtype: str) -> None:
    """Stored by the kernel or applied afterwards: the same bits, and the derivative of torch.relu."""
    torch = pytest.importorskip("torch")
    ours = getattr(adapter("torch").functional, name)
    data, weights, layer = TORCH[name]
    x, w = (torch.from_numpy(RNG.standard_normal(n, np.float32)).to(getattr(torch, dtype)) for n in (data, weights))
    expected = torch.relu(ours(x, w, **layer)) + 0.0  # no -0
    w.requires_grad_()
    trained = ours(x, w, **layer, activation="relu")
    with torch.no_grad():
        inferred = ours(x, w, **layer, activation="relu")
    compiled = torch.compile(ours, backend="eager", fullgraph=True)(x, w, **layer, activation="relu")
    for result in (trained, inferred, compiled):
        assert torch.equal(result, expected)
        assert not torch.signbit(result).any()
    cotangent = torch.ones_like(expected)
    (gradient,) = torch.autograd.grad(trained, w, cotangent)
    (theirs,) = torch.autograd.grad(torch.relu(ours(x, w, **layer)), w, cotangent)
    assert torch.equal(gradient, theirs)


def test_other_activations_of_torch_tensors_are_refused() -> None:
    torch, ours = pytest.importorskip("torch"), adapter("torch").functional
    for gradients in (True, False):
        with pytest.raises(ValueError, match=r"activation must be None or \"relu\"; got 'gelu' \[D13\]"):
            ours.conv1d(torch.ones(1, 1, 5), torch.ones(1, 1, 3, requires_grad=gradients), activation="gelu")
