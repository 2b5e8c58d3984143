"""What may be an operand: DLPack tensors, sequences, array-likes; and what is refused, with a hint."""

from __future__ import annotations

import ctypes
import sys
import types
from typing import Any

import numpy as np
import pytest

import convgrad
from convgrad import InvalidDataTypeError, InvalidShapeError, UnsupportedError, arrays
from tests.functional.other_arrays import Theirs
from tests.support.roles import BF16, DTYPES, F32, Array, Role, Tensor, every_second, read_only, roles, same


def dltensor(capsule: Any, name: bytes = b"dltensor") -> int:
    """Return the address of a capsule's tensor, or of what a versioned one has before it."""
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    address: int = pointer(capsule, name)
    return address


class Bf16Tensor:
    """A bf16 tensor of another library: NumPy's capsule of its bits, with DLPack's type code for bfloat."""

    dtype = "elsewhere.bfloat16"

    def __init__(self, array: Array) -> None:
        self.bits = array.view(np.uint16)

    def __dlpack__(self, **_: Any) -> Any:
        return self.as_bf16(capsule := self.bits.__dlpack__(), dltensor(capsule))

    def as_bf16(self, capsule: Any, begin: int) -> Any:
        # void* data; int32 device_type, device_id, ndim; then the type: uint8 code, uint8 bits
        address = begin + ctypes.sizeof(ctypes.c_void_p) + 12
        code, bits = (ctypes.c_uint8.from_address(address + i) for i in range(2))
        assert (code.value, bits.value) == (1, 16)
        code.value = 4
        return capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0


class Versioned(Bf16Tensor):
    """The same in the version of DLPack that can say that memory is read-only."""

    def __dlpack__(self, *, max_version: tuple[int, int], **_: Any) -> Any:
        capsule = self.bits.__dlpack__(max_version=max_version)
        # uint32 major, minor; void* manager_ctx, deleter; uint64 flags
        before = 16 + 2 * ctypes.sizeof(ctypes.c_void_p)
        return self.as_bf16(capsule, dltensor(capsule, b"dltensor_versioned") + before)


class Pending(Tensor):
    """A tensor whose sign, or conjugate, is still to be taken: its memory holds the opposite."""

    def __init__(self, array: Array, bit: str, pending: bool = True) -> None:
        super().__init__(np.negative(array) if pending else array)
        self.bit, self.pending = bit, pending

    def __getattr__(self, name: str) -> Any:
        if name == f"is_{self.bit}":
            return lambda: self.pending
        if name == f"resolve_{self.bit}":
            return lambda: Tensor(np.negative(self.array))
        raise AttributeError(name)


class Shape(Tensor):
    """A tensor that has a shape and no memory, as one that only stands for others has."""

    def __dlpack__(self, **_: Any) -> Any:
        capsule = self.array.__dlpack__()
        ctypes.c_void_p.from_address(dltensor(capsule)).value = None
        return capsule


@roles
@pytest.mark.parametrize("name", ["f32", "f16", "f64"])
def test_dlpack_is_read(role: Role, name: str) -> None:
    operands = role.operands(DTYPES[name])
    assert same(role(*map(Tensor, operands)), role(*operands))
    assert same(role(Tensor(every_second(operands[0])), *operands[1:]), role(*operands))


@roles
def test_dlpack_of_bf16_is_read(role: Role) -> None:
    operands = role.operands(BF16)
    assert same(role(*map(Bf16Tensor, operands)), role(*operands))
    assert same(role(Bf16Tensor(np.asfortranarray(operands[0])), *operands[1:]), role(*operands))
    described = Bf16Tensor(operands[0])
    described.dtype = "<dtype: 'bfloat16'>"  # as TensorFlow's
    assert same(role(described, *operands[1:]), role(*operands))


versioned = pytest.mark.skipif(
    np.lib.NumpyVersion(np.__version__) < "2.1.0", reason="this NumPy speaks no versioned DLPack"
)


@versioned
def test_versioned_dlpack_says_what_is_read_only() -> None:
    bits = np.arange(6).astype(BF16).reshape(2, 3)
    for given, writeable in ((bits, True), (read_only(bits.copy()), False)):
        array, fmt = arrays.take(Versioned(given), "", "src")
        assert (array.flags.writeable, fmt.name, array.ctypes.data) == (writeable, "bf16", given.ctypes.data)
        assert same(convgrad.bias_add_backward(Versioned(given)), np.array([3, 5, 7], BF16))


def test_dlpack_shares_memory() -> None:
    """So an ``out`` in that memory is an overlap."""
    src, weights = np.ones((1, 4, 1), F32), np.ones((1, 1, 1), F32)
    with pytest.raises(InvalidShapeError, match=r"shared with src \[D4\]"):
        convgrad.convolution(Tensor(src), weights, out=src)
    bits = src.astype(BF16)
    with pytest.raises(InvalidShapeError, match=r"shared with src \[D4\]"):
        convgrad.convolution(Bf16Tensor(bits), weights.astype(BF16), out=bits)


@versioned
def test_a_read_only_tensor_can_be_read() -> None:
    src, weights = np.ones((1, 4, 1), F32), np.ones((1, 1, 1), F32)
    assert same(convgrad.convolution(Tensor(read_only(src)), weights), src)


@pytest.mark.parametrize("pending", [False, True])
@pytest.mark.parametrize("bit", ["neg", "conj"])
@roles
def test_what_is_pending_is_taken_first(role: Role, bit: str, pending: bool) -> None:
    operands = role.operands(F32)
    assert same(role(*(Pending(operand, bit, pending) for operand in operands)), role(*operands))


def test_a_shape_may_be_pending_too() -> None:
    src, weights = np.ones((1, 3, 1), F32), np.ones((3, 1, 1), F32)
    shape = np.array([1, 5, 1], np.int32)
    expected = convgrad.convolution_backward_data(src, weights, shape)
    assert same(convgrad.convolution_backward_data(src, weights, Pending(shape, "neg")), expected)


def test_a_tensor_without_memory_is_refused() -> None:
    """NumPy reads such a capsule as an array of whatever its new memory holds."""
    src = np.ones((2, 3), F32)
    assert np.from_dlpack(Shape(src)).shape == (2, 3)
    for tensor in (Shape(src), Shape(src.astype(BF16).view(np.uint16))):
        with pytest.raises(UnsupportedError, match=r"src must lie in memory; got a Shape that has none \[D1\]"):
            convgrad.bias_add(tensor, np.ones(3, F32))
    assert convgrad.bias_add(Shape(np.ones((0, 3), F32)), np.ones(3, F32)).shape == (0, 3)


def test_nested_lists_are_f64() -> None:
    src, weights = [[[1.0], [2.0], [4.0]]], [[[1.0]], [[-1.0]]]
    result = convgrad.convolution(src, weights)
    assert result.dtype == np.float64
    assert result.tolist() == [[[-1.0], [-2.0]]]
    assert convgrad.bias_add(((1.5, 2.5),), [1.0, 2.0]).tolist() == [[2.5, 4.5]]
    with pytest.raises(
        InvalidDataTypeError, match=r"src f64, weights f32. An array made without a dtype is f64. Use numpy"
    ):
        convgrad.convolution(src, np.ones((2, 1, 1), F32))


def test_objects_with_array_are_read() -> None:
    src, weights = np.ones((1, 4, 1), F32), np.ones((2, 1, 1), F32)
    assert same(convgrad.convolution(Theirs(src), Theirs(weights)), np.full((1, 3, 1), 2, F32))


def test_subclasses_are_read_as_arrays() -> None:
    result = convgrad.bias_add(np.arange(6.0).reshape(2, 3).view(np.recarray), np.ones(3))
    assert type(result) is np.ndarray
    assert np.array_equal(result, np.arange(1.0, 7.0).reshape(2, 3))


def test_what_makes_masked_arrays_may_be_half_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where another thread is loading it."""
    monkeypatch.setitem(sys.modules, "numpy.ma", types.ModuleType("numpy.ma"))
    assert convgrad.bias_add_backward(np.ones((2, 3, 4), np.float32)).tolist() == [6.0] * 4
