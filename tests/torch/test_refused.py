"""What of PyTorch's is refused at the door: tensors that are no memory of numbers, or stand for others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import convgrad
from convgrad import ConvgradError, UnsupportedError
from convgrad.arrays import libraries

torch = pytest.importorskip("torch")

import convgrad.torch as ct  # noqa: E402

LAYER = {"strides": [1], "dilations": [1]}


class Wrapper(torch.Tensor):  # type: ignore[misc]
    """A tensor that says it lies elsewhere, and has no memory."""

    @staticmethod
    def __new__(cls, device: str) -> Any:
        return torch.Tensor._make_wrapper_subclass(cls, (2, 3), device=device)

    @classmethod
    def __torch_dispatch__(cls, *_: Any) -> Any:
        raise AssertionError("not to be called")


def quantized() -> Any:
    return torch._empty_affine_quantized([2, 3], scale=1.0, zero_point=0, dtype=torch.quint8)


def freed(dtype: Any) -> Any:
    """Return a tensor whose memory was given back, as those that lie elsewhere for the time being."""
    given = torch.ones(2, 3, dtype=dtype)
    given.untyped_storage().resize_(0)
    return given


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "gradients": (lambda: torch.ones(2, 3, requires_grad=True), "src must not require gradients.*convgrad.torch.*D8"),
    "bf16 gradients": (lambda: torch.ones(2, 3).bfloat16().requires_grad_(), r"convgrad.torch .* src.detach\(\).*D8"),
    "a parameter": (lambda: torch.nn.Parameter(torch.ones(2, 3)), "convgrad.torch.*D8"),
    "meta": (
        lambda: torch.ones(2, 3, device="meta"),
        r"src must lie in CPU memory; got a tensor on meta; copy it .*D1",
    ),
    "sparse": (lambda: torch.ones(2, 3).to_sparse(), r"got layout torch.sparse_coo. Use src.to_dense\(\) \[D1\]"),
    "quantized": (quantized, r"must not be quantized; got torch.quint8. Use src.dequantize\(\) \[D1\]"),
    "nested": (
        lambda: torch.nested.nested_tensor([torch.ones(3), torch.ones(2)]),
        r"one dense tensor; .*nested.*\[D1\]",
    ),
    "zeros": (
        lambda: torch._efficientzerotensor((2, 3)),
        r"src must lie in memory; got a Tensor that has none.*\[D1\]",
    ),
    "freed": (lambda: freed(torch.float32), r"src must lie in memory; got a Tensor that has none \[D1\]"),
    "freed bf16": (lambda: freed(torch.bfloat16), r"src must lie in memory; got a Tensor that has none \[D1\]"),
    "a wrapper": (lambda: Wrapper("cuda:0"), r"memory of its own; got a Wrapper.*\[D8\]"),
    "f8": (lambda: torch.ones(2, 3).to(torch.float8_e4m3fnuz), r"src must be .*; got torch.float8_e4m3fnuz \[T1\]"),
    "complex": (lambda: torch.ones(2, 3) + 0j, r"src must be an array of .*; got complex64 \[T1\]"),
    "conjugated": ((torch.ones(2, 3) + 0j).conj, r"src must be an array of .*; got torch.complex64 \[T1\]"),
}


@pytest.mark.filterwarnings("ignore:.*quantized tensor creation", "ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize(("make", "words"), REFUSED.values(), ids=REFUSED)
def test_what_is_no_memory_of_numbers_is_refused(make: Callable[[], Any], words: str) -> None:
    value = make()
    for call in (convgrad.bias_add_backward, convgrad.compile("BiasAddBackward", torch.ones(2, 3))):
        with pytest.raises(ConvgradError, match=words.replace("src", "(src|diff_dst)")):
            call(value)


def test_advice_about_tensors_of_two_types() -> None:
    src, weights = torch.ones(1, 3, 3, 1), torch.ones(1, 1, 1, 1, dtype=torch.bfloat16)
    with pytest.raises(ConvgradError, match=r"Use weights\.to\(torch\.float32\) \[T2\]"):
        convgrad.convolution(src, weights)


@pytest.mark.long
def test_fake_tensors_and_real_ones_among_them_are_refused() -> None:
    fake_tensor = pytest.importorskip("torch._subclasses.fake_tensor")
    real = torch.ones(2, 3)
    with fake_tensor.FakeTensorMode():
        fake = torch.ones(2, 3)
        with pytest.raises(UnsupportedError, match=r"under FakeTensorMode.*convgrad.torch.*\[D8\]"):
            convgrad.bias_add_backward(real)
    with pytest.raises(UnsupportedError, match=r"memory of its own; got a FakeTensor.*convgrad.torch.*\[D8\]"):
        convgrad.bias_add_backward(fake)


def test_a_tensor_of_no_elements_needs_no_memory() -> None:
    for empty in (torch.ones(0, 3), freed(torch.float32)[:0], freed(torch.bfloat16)[:0]):
        assert convgrad.bias_add_backward(empty).tolist() == [0.0] * 3


def test_another_device_is_named() -> None:
    """As PyTorch has no other here, by the row itself."""
    (row,) = (row for row in libraries.TORCH.refused_there if "CPU memory" in row.words)

    class OnGpu:
        is_cpu, device = False, "cuda:0"

    assert row.of(torch, OnGpu())
    words = "src must lie in CPU memory; got a tensor on cuda:0; copy it there first: src.cpu(); convgrad.torch also"
    assert row.words.format(name="src", got=OnGpu()) == f"{words} computes on CUDA devices"


def refused_inside(value: Any) -> Any:
    with pytest.raises(UnsupportedError, match=r"convgrad.torch .*\[D8\]"):
        convgrad.bias_add_backward(value)
    with pytest.raises(UnsupportedError, match=r"convgrad.torch .*\[D8\]"):
        convgrad.bias_add_backward(value.bfloat16())
    return value.sum()


@pytest.mark.filterwarnings("ignore:`torch.jit.(script|trace)` is deprecated")  # forward mode itself calls script
@pytest.mark.parametrize(
    "transform",
    [
        "vmap",
        "functionalize",
        "before dispatch",
        "torch.jit.trace",
        *(pytest.param(slow, marks=pytest.mark.long) for slow in ("grad", "jvp", "forward mode", "make_fx")),
    ],
)
def test_what_stands_for_others_is_refused(transform: str) -> None:
    """Of some of these PyTorch hands over memory that holds anything."""
    src, called = torch.ones(2, 2, 3), []

    def inside(value: Any) -> Any:
        called.append(1)
        return refused_inside(value)

    if transform == "forward mode":
        with torch.autograd.forward_ad.dual_level():
            inside(torch.autograd.forward_ad.make_dual(src, src))
    elif transform in ("make_fx", "before dispatch"):
        proxies = pytest.importorskip("torch.fx.experimental.proxy_tensor")
        proxies.make_fx(inside, pre_dispatch=transform == "before dispatch")(src)
    elif transform == "torch.jit.trace":
        torch.jit.trace(inside, (src,), check_trace=False)
    elif transform == "jvp":
        torch.func.jvp(inside, (src,), (src,))
    else:
        getattr(torch.func, transform)(inside)(src)
    assert called


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_layers_refuse_memory_that_was_given_back(dtype: Any) -> None:
    layers = pytest.importorskip("convgrad.torch")
    there, weight = torch.ones(1, 2, 3, dtype=dtype), torch.ones(1, 2, 1, dtype=dtype)
    assert layers.conv1d(there, weight).tolist() == [[[2.0] * 3]]
    part = there[..., 1:]
    there.untyped_storage().resize_(0)
    for gone in (there, part):
        with pytest.raises(UnsupportedError, match=r"must be in memory; got a tensor of shape \(1, 2, [23]\) "):
            layers.conv1d(gone, weight)


@pytest.mark.parametrize("dtype", ["float32", "complex64"])
def test_no_output_padding_is_refused(dtype: str) -> None:
    """It does not make a transposed layer one that is not transposed."""
    image, weight = (torch.ones(1, 1, 3, 3, dtype=getattr(torch, dtype)) for _ in range(2))
    for function in (ct.conv_transpose, ct.conv_transpose2d):
        padding: Any = None
        with pytest.raises(ConvgradError, match=rf"{function.__name__}: output_padding must be .*; got None"):
            function(image, weight, output_padding=padding)
