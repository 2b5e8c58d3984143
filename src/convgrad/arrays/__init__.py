"""Conversion of a caller's arrays to NumPy arrays, and the checks of their number formats and of ``out``."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from math import prod
from typing import Any, TypeGuard

import numpy as np

from convgrad import formats
from convgrad.array_types import Array, Dtype
from convgrad.arrays import libraries
from convgrad.arrays.libraries import dlpack
from convgrad.arrays.libraries.library import Library
from convgrad.arrays.libraries.torch import TORCH
from convgrad.arrays.mapped import seen_from
from convgrad.arrays.overlap import overlaps, overlaps_itself
from convgrad.engines.addresses import address_of
from convgrad.errors import ConvgradError
from convgrad.formats import Format
from convgrad.plan.machine import LINE_BYTES
from convgrad.spec.check import as_integers, length
from convgrad.spec.operators import LARGEST_RANK
from convgrad.spec.rules import refuse
from convgrad.words import shown

_OUT = "out must be a PyTorch tensor or a NumPy array"
_HERE = "; copy it there first"
_HERE_OR_ON_GPU = f"{_HERE}, or call an operator with __cuda_array_interface__ in all array operands and out"
ONE_AXIS = ("bias", "scale", "norm2")  # operands with one axis: a list of their values looks like a shape
LONGEST_MESSAGE = 1000  # characters of another library's error
ALIGNED_BYTES = 1 << 16  # aligning a smaller array costs more time than it saves


def take(value: object, operator: str, name: str) -> tuple[Array, Format]:
    """Return an operand as a NumPy array, without a copy where possible, and the array's number format.

    An operand can be a NumPy array with any strides, an object with ``__dlpack__`` (also of bf16) or ``__array__``, or
    nested sequences of numbers.
    """
    if value is None:  # T1
        refuse("T1", operator, f"{name} must be an array; got None")
    if isinstance(value, range):  # T1: NumPy would make an array of all its integers
        refuse("T1", operator, f"{name} must be an array of {formats.LISTED}; got {shown(value)}")
    array = value if type(value) is np.ndarray else _as_array(value, operator, name)
    fmt = formats.of_dtype(array.dtype)
    if fmt is None:  # T1
        hint = ""
        if array.dtype.kind in "iub":
            hint = f". Use {name}.astype(numpy.float32)" if hasattr(value, "astype") else ". Use f32"
            if isinstance(value, list | tuple) and array.ndim == 1 and name in ONE_AXIS:
                hint = f". Use numpy.asarray({name}, numpy.float32)"
            elif isinstance(value, list | tuple) and array.ndim == 1 and len(value) > 1:
                hint = ". This looks like a shape, which explain and infer_shapes take"
            if isinstance(value, bool):
                hint = f". Pass the values of {name} themselves, one for each element"
        if name == "result":
            hint = ""  # integers that a program returns are bits, or a mistake that a conversion would hide
        if array.dtype == np.uint16 and hasattr(value, "view"):
            module = "torch" if libraries.library_of(value) is TORCH else "ml_dtypes"
            hint = f". The bits of bf16 are {name}.view({module}.bfloat16)"
        got = _dtype_words(array)
        if array.dtype.kind in "OU" and not array.ndim:
            got = type(value).__name__
            if isinstance(value, str | os.PathLike):
                hint = ". Use numpy.load(path), with mmap_mode='r' to map the file"
                if not os.fspath(value).endswith(".npy"):
                    hint += "; or numpy.memmap(path, dtype, shape=shape) for a raw file"
        refuse("T1", operator, f"{name} must be an array of {formats.LISTED}; got {got}{hint}")
    return array, fmt


def empty(shape: tuple[int, ...], dtype: Dtype) -> Array:
    """Return a new array with arbitrary values. A large array begins at the start of a cache line.

    Large arrays of ``np.empty`` begin 16 bytes into a cache line, so each store of a 64-byte vector writes two lines.
    """
    return aligned(shape, dtype) if prod(shape) * dtype.itemsize >= ALIGNED_BYTES else np.empty(shape, dtype)


def aligned(shape: tuple[int, ...], dtype: Dtype) -> Array:
    """Return a new array with arbitrary values that begins at the start of a cache line."""
    size = prod(shape) * dtype.itemsize
    memory = np.empty(size + LINE_BYTES, np.uint8)
    return np.ndarray(shape, dtype, memory, -address_of(memory) % LINE_BYTES)


def stand_in(shape: tuple[int, ...], dtype: Dtype) -> Array:
    """Return an array with a given shape and type for the checks of a call. All elements share one address."""
    return np.broadcast_to(np.empty((), dtype), shape)


def native(array: Array, fmt: Format) -> Array:
    """Return the array itself if its byte order is native, else a copy in native byte order."""
    return array if array.dtype is fmt.dtype or array.dtype.isnative else array.astype(fmt.dtype)


def take_shape(value: object, operator: str, name: str) -> tuple[int, ...]:
    """Return a shape operand, which is a 1-D integer array or a sequence of ints, as a tuple."""
    integers, count, hint = as_integers(value), length(value), ""
    got = shown(value)
    if integers is None and (count or 0) <= LARGEST_RANK and not isinstance(value, list | tuple | str):
        array = _as_array(value, operator, name)
        integers, count = as_integers(array), length(array)
        got = f"{_dtype_words(array)} of shape {array.shape}"
        if array.ndim != 1:
            hint = ". Pass its .shape" if array.ndim else ". Pass the extents of all axes"
    if integers is None and (count or 0) > LARGEST_RANK:  # G9
        sentence = f"{name} must hold at most {LARGEST_RANK} extents, as arrays have axes"
        refuse("G9", operator, f"{sentence}; got {count} ({type(value).__name__})")
    if integers is None:  # T3
        refuse("T3", operator, f"{name} must be a 1-D array of integers or a sequence of ints; got {got}{hint}")
    return integers


def is_shape(value: object) -> bool:
    """Return whether an operand looks like a shape: a 1-D integer array, or a non-empty sequence of ints."""
    if isinstance(value, list | tuple):
        return as_integers(value) is not None and len(value) > 0
    try:
        dtype, shape = getattr(value, "dtype", None), getattr(value, "shape", ())
    except Exception:  # a caller's class may raise anything
        return False
    return isinstance(shape, tuple) and len(shape) == 1 and "int" in str(dtype)


def check_common(named: list[tuple[str, Format]], values: Mapping[str, object], operator: str) -> Format:
    """Return the number format that all operands have. Raise InvalidDataTypeError (rule T2) if formats differ.

    ``values`` has the caller's operands by name.
    """
    common = named[0][1]
    if [fmt for _, fmt in named if fmt is not common]:  # T2
        got = ", ".join(f"{name} {fmt}" for name, fmt in named)
        refuse("T2", operator, f"all operands must have one type; got {got}{_conversion(named, values)}")
    return common


def _conversion(named: list[tuple[str, Format]], values: Mapping[str, object]) -> str:
    """Return a hint on how to convert all operands to the first format that is not f64, which is NumPy's default."""
    like, to = next((pair for pair in named if pair[1] is not formats.F64), named[0])
    others = [name for name, fmt in named if fmt is not to]
    has_numpy_dtype = isinstance(getattr(values[like], "dtype", None), np.dtype)
    dtype = f"{'ml_dtypes' if to.is_extension else 'numpy'}.{to.dtype_name}"
    default = ". An array made without a dtype is f64" if formats.F64 in (fmt for _, fmt in named) else ""

    def way(name: str) -> str:
        value = values[name]
        if libraries.library_of(value) is TORCH:
            return f"{name}.to(torch.{to.dtype_name})"
        if hasattr(value, "astype"):  # tracers of JAX have no values for NumPy
            return f"{name}.astype({f'{like}.dtype' if has_numpy_dtype else dtype})"
        return f"numpy.asarray({name}, {dtype})"

    return f"{default}. Use {' and '.join(map(way, others))}"


def output_format(dtype: object, common: Format, operator: str) -> Format:
    """Return the number format of the output: the format that ``dtype`` names, or ``common`` if ``dtype`` is None."""
    if dtype is None:
        return common
    fmt = formats.named(libraries.dtype(dtype))  # type: ignore[arg-type]
    if fmt is None:  # T4
        names = ", ".join(formats.FORMATS)
        refuse("T4", operator, f"dtype must be one of {names}; got {shown(dtype)}{formats.meant(dtype)}")
    return fmt


def check_out(out: object, shape: tuple[int, ...], fmt: Format, operands: Mapping[str, Array], operator: str) -> Array:
    """Return ``out`` as a NumPy array on the same memory. Raise an error if the result cannot be written to ``out``.

    ``out`` must have the result's type and shape, and be writable. ``out`` must not overlap itself or an operand, in
    memory or in a mapped file.
    """
    if type(out) is not np.ndarray:
        out = _memory_of(out, fmt, operator)
    if out.dtype is not fmt.dtype and (out.dtype != fmt.dtype or not out.dtype.isnative):  # T5
        refuse(
            "T5",
            operator,
            f"{_OUT} of {fmt}, the output's type; got {_dtype_words(out)}",
        )
    if out.shape != shape:  # D2
        refuse("D2", operator, f"out must have the output's shape {shape}; got {out.shape}")
    flags = out.flags
    if not flags.writeable:  # D3
        refuse("D3", operator, "out must be writable; got a read-only array")
    if not flags.c_contiguous:
        shares = overlaps_itself(shape, out.strides, out.itemsize)
        if shares is not False:  # D4
            got = f"got shape {out.shape} with strides {out.strides} in bytes"
            refuse("D4", operator, f"out must not overlap itself{_words(shares, got)}")
    check_apart(out, operands, operator, "out must not overlap an operand")
    return out


def check_apart(out: Array, others: Mapping[str, Array], operator: str, sentence: str) -> None:
    """Raise an error that begins with ``sentence`` if ``out`` overlaps another array in memory or in a mapped file."""
    for name, array in seen_from(out, others).items():
        shares = overlaps(out, array)
        if shares is not False:  # D4
            got = f"got memory shared with {name}" if shares else f"got memory near {name}"
            refuse("D4", operator, f"{sentence}{_words(shares, got)}")


def _words(shares: bool | None, got: str) -> str:
    """Return the end of an error about an overlap, which may be too hard to decide."""
    return f"; {got}" + ("" if shares else ", which is too hard to decide. Use a contiguous array")


def _memory_of(out: object, fmt: Format, operator: str) -> Array:
    if isinstance(out, np.ndarray) and not is_masked(out):
        return out
    library = libraries.library_of(out)
    if library is None:
        _check_in_cpu_memory(out, operator, "out")
        refuse("T5", operator, f"{_OUT} of {fmt}, the output's type; got {type(out).__name__}")  # T5
    return _from_library(library, out, operator, "out", to_write=True)


def _check_in_cpu_memory(value: Any, operator: str, name: str) -> None:
    try:
        is_on_gpu = value.__cuda_array_interface__ is not None
    except Exception:  # a library may raise any exception for an array that is not on a GPU
        return
    if is_on_gpu:  # D1
        refuse("D1", operator, f"{name} must be in CPU memory; got a {type(value).__name__} on a GPU{_HERE_OR_ON_GPU}")


def is_masked(value: object) -> TypeGuard[np.ma.MaskedArray[Any, Any]]:
    """Return whether a value is a masked array, without importing ``numpy.ma``."""
    masked = getattr(sys.modules.get("numpy.ma"), "MaskedArray", None)  # None while numpy.ma is being imported
    return masked is not None and isinstance(value, masked)


def _as_array(value: object, operator: str, name: str) -> Array:
    if is_masked(value):  # T1
        refuse("T1", operator, f"{name} must be a plain array; got a masked array, whose mask would be ignored")
    if isinstance(value, np.ndarray):
        return value.view(np.ndarray)  # methods of a subclass, such as numpy.matrix, may treat axes differently
    library = libraries.library_of(value)
    if library is not None:
        return _from_library(library, value, operator, name)
    if _exports(value):
        return _from_dlpack(value, operator, name)
    _check_in_cpu_memory(value, operator, name)
    try:
        return np.asarray(value)
    except Exception as error:  # T1: an object's own __array__ may raise anything
        refuse("T1", operator, f"{name} must be an array; got {type(value).__name__} ({_line(error)})")


def _exports(value: object) -> bool:
    """Return whether an object has ``__dlpack__``."""
    try:
        return hasattr(value, "__dlpack__")
    except Exception:  # a caller's class may raise anything
        return False


def _from_library(library: Library, value: object, operator: str, name: str, to_write: bool = False) -> Array:
    try:
        refusal = library.refusal(value, library.not_written + library.refused if to_write else library.refused)
        if refusal is None:
            if to_write:
                library.unshared(library.loaded, value)
            return library.array(library.loaded, value)
    except Exception as error:  # D1: a library may raise any exception for an array that it cannot convert
        refusal = library.refusal(value, library.refused_there)
        if refusal is None:
            refuse("D1", operator, f"{name} must be readable as a NumPy array; got: {_line(error)}")
    refuse(refusal.rule, operator, refusal.words.format(name=name, got=value))  # D1, D3, D8


def _from_dlpack(value: object, operator: str, name: str) -> Array:
    try:
        kind, number = dlpack.device_of(value)
        if kind != dlpack.CPU:  # D1
            device = f"DLPack device ({kind}, {number})"
            hint = _HERE_OR_ON_GPU if kind == dlpack.CUDA else _HERE
            refuse("D1", operator, f"{name} must lie in CPU memory; got {device}{hint}")
        array = dlpack.array_of(value)
        if array.size and array.flags.owndata:  # D1: NumPy has allocated the memory, because the value has none
            refuse("D1", operator, f"{name} must lie in memory; got a {type(value).__name__} that has none")
        return array
    except ConvgradError:
        raise
    except Exception as error:  # D1: a library may raise any exception for an array that it cannot export
        refuse("D1", operator, f"{name} must be readable through DLPack; got: {_line(error)}")


def _line(error: Exception) -> str:
    """Return the message of an error on one line."""
    try:
        return " ".join(str(error).split())[:LONGEST_MESSAGE]
    except Exception:  # a caller's class may raise anything
        return type(error).__name__


def _dtype_words(array: Array) -> str:
    fmt = formats.of_dtype(array.dtype)
    order = "" if array.dtype.isnative else " in foreign byte order"
    return f"{fmt or array.dtype}{order}"
