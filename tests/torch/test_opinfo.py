"""PyTorch's own samples of layers, with convgrad's functions and layers in place of PyTorch's."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode  # noqa: E402
from torch.testing._internal.two_tensor import TwoTensor  # noqa: E402

import convgrad.torch as ct  # noqa: E402
from convgrad.errors import ConvgradError  # noqa: E402
from tests.support.tiers import tiers  # noqa: E402
from tests.torch import opinfo  # noqa: E402
from tests.torch.layers import integers  # noqa: E402

F = torch.nn.functional
# What PyTorch itself warns of: even kernels with padding="same", tangents, which load TorchScript, and lazy layers.
pytestmark = pytest.mark.filterwarnings(
    "ignore:Using padding='same'", "ignore:.*torch.jit.script", "ignore:Lazy modules"
)
SAMPLES, ERRORS, MODULES = (opinfo.samples(kind) for kind in ("op", "error", "module"))
SIXTEEN = (torch.bfloat16, torch.float16)


def is_computed(dtype: Any) -> bool:
    """Return whether convgrad.torch computes this type. Types that it comes to compute are then tried here."""
    try:
        ct.conv1d(torch.ones(1, 1, 1, dtype=dtype), torch.ones(1, 1, 1, dtype=dtype))
    except ConvgradError:
        return False
    return True


OTHERS = (torch.complex64, torch.complex128, torch.int64)
DTYPES = [torch.float32, torch.float64, *SIXTEEN, *filter(is_computed, OTHERS)]


def tensor_of(given: Any, seed: int, dtype: Any = None) -> Any:
    """Return a tensor of small integers for a shape; other arguments are returned unchanged."""
    if not isinstance(given, dict):
        return tuple(given) if isinstance(given, list) else given
    dtype, shape = dtype or getattr(torch, given["dtype"]), given["shape"]
    values = integers(*shape, seed=seed) if dtype not in SIXTEEN else integers(*shape, seed=seed).sign()  # exact sums
    return torch.complex(values, integers(*shape, seed=seed + 9)).to(dtype) if dtype.is_complex else values.to(dtype)


def call_of(sample: dict[str, Any], dtype: Any = None) -> tuple[list[Any], Callable[[Any], Callable[..., Any]]]:
    """Return a sample's tensors, and what returns the function of them for our functions or PyTorch's."""
    given = [tensor_of(value, at, dtype) for at, value in enumerate(sample["args"])]
    words = {word: tensor_of(value, 7, dtype) for word, value in sample["kwargs"].items()}
    places = [at for at, value in enumerate(given) if isinstance(value, torch.Tensor)]

    def of(module: Any) -> Callable[..., Any]:
        def function(*tensors: Any) -> Any:
            args = list(given)
            for at, tensor in zip(places, tensors, strict=True):
                args[at] = tensor
            return getattr(module, sample["name"])(*args, **words)

        return function

    return [given[at] for at in places], of


def cotangent(like: Any) -> Any:
    return (torch.arange(like.numel()).reshape(like.shape) % 3 - 1).to(like.dtype)


def gradients(function: Callable[..., Any]) -> Callable[..., Any]:
    def both(*operands: Any) -> Any:
        given = [t.detach().requires_grad_() for t in operands]
        result = function(*given)
        v = cotangent(torch.empty(result.shape, dtype=result.dtype)) if type(result) is torch.Tensor else None
        v = torch.ones_like(result) if v is None or result.is_meta else v
        return result.detach(), *torch.autograd.grad(result, given, v)

    return both


def tangent(function: Callable[..., Any]) -> Callable[..., Any]:
    def both(*operands: Any) -> Any:
        with torch.autograd.forward_ad.dual_level():
            given = [torch.autograd.forward_ad.make_dual(t, t.clone()) for t in operands]
            primal, result = torch.autograd.forward_ad.unpack_dual(function(*given))
            return primal, result

    return both


DERIVED: dict[str, Callable[[Callable[..., Any]], Callable[..., Any]]] = {"gradients": gradients, "tangent": tangent}


def alike(found: Any, wanted: Any) -> bool:
    """Return whether tensors have one shape, type and memory format; strides of axes of extent 1 have no meaning."""
    for one, other in zip(found, wanted, strict=True):
        axes = [axis for axis, extent in enumerate(other.shape) if extent > 1]
        strides = [[tensor.stride(axis) for axis in axes] for tensor in (one, other)]
        if one.shape != other.shape or one.dtype != other.dtype or strides[0] != strides[1]:
            return False
    return True


@tiers("derived, dtype, sample", list(DERIVED), DTYPES, SAMPLES, every=67)
def test_results_and_derivatives(derived: str, dtype: Any, sample: dict[str, Any]) -> None:
    """All sums are exact, so == to PyTorch's own."""
    operands, of = call_of(sample, dtype)
    found, wanted = (DERIVED[derived](of(module))(*operands) for module in (ct, F))
    assert alike(found[:1], wanted[:1])
    assert all(torch.equal(a, b) for a, b in zip(found, wanted, strict=True))


@tiers("derived, sample", list(DERIVED), SAMPLES, every=17)
def test_noncontiguous_operands(derived: str, sample: dict[str, Any]) -> None:
    operands, of = call_of(sample)
    apart = [torch.stack([t, t + 1], -1)[..., 0] for t in operands]
    found, wanted = (DERIVED[derived](of(ct))(*given) for given in (apart, operands))
    assert all(torch.equal(a, b) for a, b in zip(found, wanted, strict=True))


@tiers("sample", SAMPLES, every=7)
def test_vmap(sample: dict[str, Any]) -> None:
    operands, of = call_of(sample)
    each = [[t, 1 - t] for t in operands]
    found, wanted = (torch.func.vmap(of(module))(*map(torch.stack, each)) for module in (ct, F))
    assert torch.equal(found, wanted)


@tiers("derived, sample", list(DERIVED), SAMPLES, every=17)
def test_fake_tensors(derived: str, sample: dict[str, Any]) -> None:
    """No kernel is called, and results are as real ones."""
    operands, of = call_of(sample)
    with FakeTensorMode() as mode:
        found = DERIVED[derived](of(ct))(*map(mode.from_tensor, operands))
    assert {type(one) for one in found} == {FakeTensor}
    assert alike(found, DERIVED[derived](of(ct))(*operands))


@tiers("derived, sample", list(DERIVED), SAMPLES, every=17)
def test_meta_tensors(derived: str, sample: dict[str, Any]) -> None:
    operands, of = call_of(sample)
    found = DERIVED[derived](of(ct))(*(t.to("meta") for t in operands))
    assert {one.device.type for one in found} == {"meta"}
    assert alike(found, DERIVED[derived](of(ct))(*operands))


@tiers("derived, sample", list(DERIVED), SAMPLES, every=17)
def test_wrapper_subclasses(derived: str, sample: dict[str, Any]) -> None:
    """A subclass that holds two tensors sees the operators, and so computes for both."""
    operands, of = call_of(sample)
    derive = DERIVED[derived]
    found = derive(of(ct))(*(TwoTensor(t, 1 - t) for t in operands))
    assert {type(one) for one in found} == {TwoTensor}
    for part, given in (("a", operands), ("b", [1 - t for t in operands])):
        wanted = tangent(of(ct))(*given) if derived == "tangent" else ones_as_cotangent(of(ct), given)
        assert all(torch.equal(getattr(one, part), other) for one, other in zip(found, wanted, strict=True))


def ones_as_cotangent(function: Callable[..., Any], operands: list[Any]) -> Any:
    given = [t.detach().requires_grad_() for t in operands]
    result = function(*given)
    return result.detach(), *torch.autograd.grad(result, given, torch.ones_like(result))


@tiers("sample", SAMPLES, every=19)
def test_gradcheck(sample: dict[str, Any]) -> None:
    operands, of = call_of(sample, torch.float64)
    given = [t.requires_grad_() for t in operands]
    words = {"fast_mode": True, "check_batched_grad": True}
    assert torch.autograd.gradcheck(of(ct), given, check_forward_ad=True, check_batched_forward_grad=True, **words)


@tiers("sample", SAMPLES, every=23)
def test_gradgradcheck(sample: dict[str, Any]) -> None:
    operands, of = call_of(sample, torch.float64)
    given = [t.requires_grad_() for t in operands]
    words = {"fast_mode": True, "check_batched_grad": True}
    assert torch.autograd.gradgradcheck(of(ct), given, check_fwd_over_rev=True, **words)


@pytest.mark.parametrize("sample", ERRORS, ids=opinfo.identity)
def test_errors(sample: dict[str, Any]) -> None:
    """What PyTorch refuses, convgrad refuses too, by a rule."""
    operands, of = call_of(sample)
    with pytest.raises(ConvgradError, match=rf"^{sample['name']}: .* \[[A-Z]\d+\]$"):
        of(ct)(*operands)


@pytest.mark.parametrize("dtype", [dtype for dtype in OTHERS if not is_computed(dtype)])
def test_types_that_are_not_computed(dtype: Any) -> None:
    operands, of = call_of(SAMPLES[0], dtype)
    with pytest.raises(TypeError, match=rf"input must be a tensor of .*; got {dtype} \[T1\]"):
        of(ct)(*operands)


@tiers("derived, sample", list(DERIVED), MODULES, every=9)
def test_modules(derived: str, sample: dict[str, Any]) -> None:
    """Layers that `reproducible` has changed; a lazy one after its first call."""
    layer = getattr(torch.nn, sample["name"])(*sample["args"], **sample["kwargs"])
    given = [tensor_of(value, at) for at, value in enumerate(sample["call"])]
    layer(*given)
    with torch.no_grad():
        for at, parameter in enumerate(layer.parameters()):
            parameter.copy_(integers(*parameter.shape, seed=at))
    parameters = dict(layer.named_parameters())

    def apply(*tensors: Any) -> Any:
        values = dict(zip(parameters, tensors[len(given) :], strict=True))
        return torch.func.functional_call(layer, values, tuple(tensors[: len(given)]))

    operands = [*given, *(parameter.detach() for parameter in parameters.values())]
    wanted = DERIVED[derived](apply)(*operands)
    ct.reproducible(layer, linear=True)
    assert type(layer).__name__.startswith("Reproducible")
    assert all(torch.equal(a, b) for a, b in zip(DERIVED[derived](apply)(*operands), wanted, strict=True))


@pytest.mark.long
def test_the_file_has_the_samples_of_the_installed_pytorch() -> None:
    """And PyTorch's checks of composite operators, which look for calls that subclasses cannot see, find none."""
    pytest.importorskip("expecttest")
    run = [sys.executable, "-W", "ignore", "-m", "tests.torch.opinfo", "check"]
    done = subprocess.run(run, capture_output=True, text=True, check=False, env=os.environ)
    assert done.returncode == 0, done.stderr
