"""Calls of operators on JAX's arrays. Shapes, types and attributes are checked while JAX traces a function."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import TypedDict, Unpack

import jax
import numpy as np
from numpy.typing import NDArray

from convgrad.arrays import is_shape
from convgrad.engines.settings import accuracy
from convgrad.errors import InvalidDataTypeError
from convgrad.formats import F64, FORMATS
from convgrad.functional.call import check_options, prepare
from convgrad.functional.types import DType
from convgrad.jax.primitive import Options, Traced, solve
from convgrad.spec.operators import find
from convgrad.spec.rules import refuse

Array = jax.Array
KEPT = frozenset(fmt.dtype for fmt in FORMATS.values() if fmt is not F64)
_ANY = bytes(16)
_NUMBERS = "convgrad.jax: an operand must be an array of numbers"


class JaxOptions(TypedDict, total=False):
    """The options of a call of an operator on JAX's arrays."""

    dtype: DType | None
    threads: int | None
    max_error: float | None
    activation: str | None


def call(
    operator: str,
    operands: tuple[object, ...],
    attributes: Mapping[str, object],
    *,
    lenient: bool = True,
    **options: Unpack[JaxOptions],
) -> Traced:
    """Return the result of an operator. Operands may be arrays of other libraries; their shapes must be integers."""
    threads = options.get("threads")
    check_options(operator, None, False, threads)
    op = find(operator, shape_second=len(operands) > 1 and is_shape(operands[1]))
    for port, value in zip(op.operands, operands, strict=False):
        if port.is_shape and isinstance(value, jax.core.Tracer):  # T3
            refuse("T3", op.name, f"{port.name} must be known while a function is traced; got a tracer. Use a tuple")
    for name, value in attributes.items():
        numbers = value if isinstance(value, list | tuple) else [value]
        if any(isinstance(number, jax.core.Tracer) for number in numbers):  # A2
            sentence = f"{name} must be known while a function is traced; got a tracer"
            refuse("A2", op.name, f"{sentence}. Use jit(..., static_argnames=({name!r},))")
    ports = [(port.is_shape, value) for port, value in zip(op.operands, operands, strict=False)]
    jax_operands: list[Traced] = [value if shape or value is None else array(value) for shape, value in ports]
    for port, value in zip(op.operands, jax_operands, strict=False):
        if not port.is_shape and value is not None:
            check_shape(op.name, port.name, value)
    arrays = [value for (shape, _), value in zip(ports, jax_operands, strict=True) if not shape and value is not None]
    alike = [
        value if shape or value is None else _alike(value)
        for (shape, _), value in zip(ports, jax_operands, strict=True)
    ]
    dtype = named(options.get("dtype"))
    prepared = prepare(operator, (*alike, *operands[len(ports) :]), attributes, dtype, lenient=lenient)
    problem = prepared.activated(options.get("activation")).problem
    if problem.note:
        warnings.warn(problem.note, UserWarning, stacklevel=3)
    return solve(problem, arrays, Options(threads, accuracy(options.get("max_error"), op.name)))


def check_shape(operator: str, name: str, value: Traced) -> None:
    """Raise if an operand's shape is not known."""
    if not all(type(extent) is int for extent in value.shape):  # T3
        shape = ", ".join(map(str, value.shape))
        refuse("T3", operator, f"{name} must have a shape of integers while a function is traced; got ({shape})")


def array(value: object) -> Traced:
    """Return an operand as a JAX array. NumPy arrays are returned unchanged if JAX would not change their type.

    A conversion would be slower, because JAX compiles a conversion for each shape.
    """
    if isinstance(value, jax.Array):
        if jax.dtypes.issubdtype(value.dtype, jax.dtypes.extended):
            raise InvalidDataTypeError(f"{_NUMBERS}; got {value.dtype}, whose elements are keys")
        return value
    if type(value) is np.ndarray and value.dtype in KEPT:
        return value
    if isinstance(value, range):  # JAX would make an array of all its integers
        raise InvalidDataTypeError(f"{_NUMBERS}; got {value}")
    try:
        return jax.numpy.asarray(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidDataTypeError(f"{_NUMBERS}; got {type(value).__name__}: {error}") from None


def _alike(operand: Traced) -> NDArray[np.generic]:
    """Return a NumPy array of an operand's shape and type that needs no memory: all elements have one address."""
    return np.ndarray(operand.shape, operand.dtype, _ANY, strides=(0,) * operand.ndim)


def named(dtype: DType | None) -> object:
    """Return the NumPy type of a JAX type such as jax.numpy.float32; return other values unchanged."""
    if dtype is None or isinstance(dtype, str):
        return dtype
    try:
        return np.dtype(dtype)
    except TypeError:
        return dtype
