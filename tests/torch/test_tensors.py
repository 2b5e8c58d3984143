"""PyTorch's tensors: results as tensors without a copy, ``out``, dtypes; the bits are NumPy's."""

from __future__ import annotations

import copy
import gc
import pickle
import re
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import convgrad
from convgrad import InvalidDataTypeError, InvalidShapeError, UnsupportedError, arrays
from convgrad.arrays import libraries
from convgrad.errors import InvalidOpError
from convgrad.formats import FORMATS, of_dtype
from convgrad.verify import check, exact
from tests.support.roles import DTYPES, F32, ROLES, Array, same
from tests.torch.library import LAYER, ArraysOfALibrary

torch = pytest.importorskip("torch")

THEIRS = {name: getattr(torch, fmt.dtype_name) for name, fmt in FORMATS.items()}


def tensor(array: Array) -> Any:
    """Return a tensor of an array's values in memory of its own."""
    fmt = of_dtype(array.dtype)
    if fmt is not None and fmt.is_extension:
        return torch.tensor(array.astype(F32)).to(THEIRS[fmt.name])
    return torch.tensor(array)


def values(result: Any) -> Array:
    """Return a tensor's values, by the library's own way."""
    assert type(result) is torch.Tensor
    fmt = next((fmt for name, fmt in FORMATS.items() if THEIRS[name] is result.dtype and fmt.is_extension), None)
    array: Array = result.numpy() if fmt is None else result.float().numpy().astype(fmt.dtype)
    return array


class TestTensors(ArraysOfALibrary):
    kind, formats = torch.Tensor, tuple(FORMATS)
    made, values = staticmethod(tensor), staticmethod(values)

    def address(self, array: Any) -> int:
        return array.data_ptr()  # type: ignore[no-any-return]


@pytest.mark.parametrize("name", FORMATS)
def test_strides_are_taken_over(name: str) -> None:
    given = torch.ones(2, 5, 3, dtype=THEIRS[name])[:, 1:]
    array, _ = arrays.take(given, "", "src")
    assert array.ctypes.data == given.data_ptr()
    assert [step // array.itemsize for step in array.strides] == list(given.stride())


def test_a_tensor_may_lie_in_any_way() -> None:
    role = ROLES["convolution"]
    operands = role.operands(F32)
    src = tensor(operands[0])
    expected = role(*operands)
    for lies in (src.permute(0, 3, 1, 2).contiguous().permute(0, 2, 3, 1), torch.cat([src, src], -1)[..., :4]):
        assert same(values(role(lies, *map(tensor, operands[1:]))), expected)
    assert convgrad.bias_add_backward(torch.ones(1, 1).expand(4, 3)).tolist() == [4.0] * 3


def test_memory_is_given_back_with_the_last_tensor() -> None:
    made = np.ones(4, F32)
    ref = weakref.ref(made)
    handed = libraries.like(torch.ones(1))(made)
    view = handed[1:]
    del made, handed
    assert ref() is not None
    assert view.tolist() == [1.0] * 3
    del view
    gc.collect()
    assert ref() is None


@pytest.mark.parametrize("name", FORMATS)
def test_out_may_be_a_tensor(name: str) -> None:
    src, weights = np.arange(12, dtype=DTYPES[name]).reshape(1, 6, 2), np.ones((3, 2, 2), DTYPES[name])
    expected = convgrad.convolution(src, weights)
    for out in (
        torch.zeros(1, 4, 2, dtype=THEIRS[name]),
        torch.zeros(1, 2, 9, dtype=THEIRS[name])[:, :, ::2].mT[:, :4],
    ):
        assert convgrad.convolution(tensor(src), weights, out=out) is out
        assert same(np.ascontiguousarray(values(out)), expected)
        assert convgrad.convolution(src, tensor(weights), out=out, accumulate=True) is out
        assert same(np.ascontiguousarray(values(out)), (2 * expected.astype(np.float64)).astype(DTYPES[name]))
        forward = convgrad.compile("Convolution", src, weights, **LAYER)
        assert forward(tensor(src), weights, out=out) is out
        assert same(np.ascontiguousarray(values(out)), expected)


def test_what_was_saved_for_backward_is_known_to_be_written_over() -> None:
    saved, factor = torch.ones(3), torch.ones(3, requires_grad=True)
    product = factor * saved
    convgrad.bias_add_backward(torch.ones(2, 3), out=saved)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.sum().backward()
    with torch.inference_mode():
        assert convgrad.bias_add_backward(torch.ones(2, 3), out=torch.ones(3)).tolist() == [2.0] * 3


WRONG_OUT: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "requires grad": (lambda: torch.zeros(3, requires_grad=True), UnsupportedError, "out must not require gr.*D8"),
    "meta": (lambda: torch.zeros(3, device="meta"), UnsupportedError, r"out must lie in CPU memory; got .* meta.*D1"),
    "pending": (lambda: torch._neg_view(torch.zeros(3)), InvalidShapeError, r"whose signs are pending.*\[D3\]"),
    "type": (lambda: torch.zeros(3, dtype=torch.float64), InvalidDataTypeError, r"of f32, .*; got f64 \[T5\]"),
    "integers": (lambda: torch.zeros(3, dtype=torch.int32), InvalidDataTypeError, r"got int32 \[T5\]"),
    "shape": (lambda: torch.zeros(4), InvalidShapeError, r"shape \(3,\); got \(4,\) \[D2\]"),
    "expanded": (lambda: torch.zeros(1).expand(3), InvalidShapeError, r"not overlap itself.*\[D4\]"),
}


@pytest.mark.parametrize(("make", "error", "words"), WRONG_OUT.values(), ids=WRONG_OUT)
def test_a_wrong_out_is_refused(make: Callable[[], Any], error: type[Exception], words: str) -> None:
    out = make()
    version = out._version
    with torch.no_grad(), pytest.raises(error, match=words):
        convgrad.bias_add_backward(torch.ones(2, 3), out=out)
    assert out._version == version
    assert out.device.type == "meta" or not out.any()


def test_out_in_an_operands_memory_is_refused() -> None:
    src = torch.ones(2, 3, dtype=torch.bfloat16)
    with pytest.raises(InvalidShapeError, match=r"shared with diff_dst \[D4\]"):
        convgrad.bias_add_backward(src, out=src[0])


@pytest.mark.parametrize("name", FORMATS)
def test_dtype_may_be_the_librarys(name: str) -> None:
    src = torch.ones(2, 3, dtype=torch.float64 if name == "f64" else torch.float32)
    for dtype in (THEIRS[name], str(THEIRS[name])):
        assert convgrad.bias_add_backward(src, dtype=dtype).dtype is THEIRS[name]
        assert convgrad.bias_add_backward(src.numpy(), dtype=dtype).dtype == DTYPES[name]


def test_another_dtype_is_refused() -> None:
    for dtype in (torch.int8, torch.float8_e4m3fnuz, "torch.int8"):
        with pytest.raises(InvalidDataTypeError, match=r"dtype must be one of .*int8|float8.*\[T4\]"):
            convgrad.bias_add_backward(torch.ones(2, 3), dtype=dtype)


def test_a_torch_size_is_a_shape() -> None:
    src, weights = torch.ones(1, 6, 1), torch.ones(3, 1, 1)
    result = convgrad.convolution_backward_weights(src, torch.ones(1, 4, 1), weights.shape)
    assert result.flatten().tolist() == [4.0] * 3
    assert convgrad.infer_shapes("Convolution", src.shape, weights.shape, **LAYER) == (1, 4, 1)


def test_what_is_pending_is_taken_first() -> None:
    z = torch.complex(torch.zeros(2, 3), torch.arange(6, dtype=torch.float32).reshape(2, 3))
    assert z.conj().imag.is_neg()
    for negative in (z.conj().imag, torch._neg_view(z.imag).half(), torch._neg_view(z.imag.bfloat16())):
        assert convgrad.run("BiasAddBackward", negative).tolist() == [-3.0, -5.0, -7.0]


class Named(torch.Tensor):  # type: ignore[misc]
    """A tensor of a class of its own, with memory."""


def test_gradients_that_nobody_records_are_no_hindrance() -> None:
    for dtype in (torch.float32, torch.bfloat16):
        parameter = torch.nn.Parameter(torch.ones(2, 3, dtype=dtype))
        with torch.no_grad():
            result = convgrad.bias_add_backward(parameter)
        assert result.tolist() == [2.0] * 3
        assert not result.requires_grad
    named = torch.ones(2, 3).as_subclass(Named)
    assert type(convgrad.bias_add_backward(named)) is torch.Tensor


def test_a_pullback_of_tensors_is_sent_and_copied() -> None:
    result, pullback = convgrad.vjp("BiasAdd", torch.zeros(1, 2, 3), torch.zeros(3))
    for again in (copy.deepcopy(pullback), pickle.loads(pickle.dumps(pullback))):
        assert again(result + 1)[1].tolist() == [2, 2, 2]


def test_verify_takes_tensors() -> None:
    """Types of PyTorch's, and an old value that requires gradients."""
    src, weights = torch.arange(6.0).reshape(1, 6, 1), torch.ones(3, 1, 1)
    result = exact("Convolution", src, weights, dtype=torch.bfloat16, **LAYER)
    assert (result.dtype, result.flatten().tolist()) == (torch.bfloat16, [3.0, 6.0, 9.0, 12.0])
    bound = convgrad.error_bound("Convolution", src / 3, weights, dtype=torch.bfloat16, **LAYER)
    ours = convgrad.error_bound("Convolution", src.numpy() / 3, weights.numpy(), dtype="bf16", **LAYER)
    assert (bound.dtype, bound.tolist()) == (torch.float64, ours.tolist())
    old = torch.ones(1, 4, 1, requires_grad=True)
    assert check("Convolution", old + result, src, weights, old=old, **LAYER).outcome == "ok"


def test_a_function_that_is_judged_is_called_with_tensors() -> None:
    src, weights = torch.arange(6.0).reshape(1, 6, 1), torch.ones(3, 1, 1)

    def theirs(operator: str, x: Any, w: Any, **_: Any) -> Any:
        return torch.nn.functional.conv1d(x.mT, w.permute(2, 1, 0)).mT

    def writes(operator: str, x: Any, w: Any, **attributes: Any) -> Any:
        x.zero_()
        return torch.zeros(1, 4, 1)

    assert check("Convolution", theirs, src, weights, **LAYER).outcome == "ok"
    with torch.enable_grad():  # of a verdict nobody asks for gradients
        layer = torch.nn.Conv1d(1, 1, 3, bias=False)
        torch.nn.init.ones_(layer.weight)
        kernel = layer.weight.permute(2, 1, 0)
        result = layer(src.mT).mT
        assert result.requires_grad
        assert check("Convolution", result, src, kernel, **LAYER).outcome == "ok"
        assert check("Convolution", lambda *_, **__: result, src, kernel, **LAYER).outcome == "ok"
    assert "wrote to its operand src" in str(check("Convolution", writes, src, weights, **LAYER))
    assert src.sum() == 15


def test_a_wrong_count_of_tensors_is_refused_as_ever() -> None:
    with pytest.raises(InvalidOpError, match=re.escape("it takes the operands diff_dst; got 2 [O2]")):
        convgrad.run("BiasAddBackward", torch.ones(2, 3), torch.ones(2, 3))
