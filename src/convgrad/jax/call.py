"""The way of every call on JAX's arrays: what is known while a function is traced is checked as any call is."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from convgrad.arrays import is_shape
from convgrad.functional.call import check_options, prepare
from convgrad.functional.types import DType
from convgrad.jax.primitive import Traced, solve
from convgrad.spec.operators import find
from convgrad.spec.rules import refuse

Array = jax.Array
_ANY = bytes(16)


def call(
    operator: str,
    operands: tuple[object, ...],
    attributes: Mapping[str, Any],
    *,
    dtype: DType | None,
    threads: int | None,
    lenient: bool = True,
) -> Traced:
    """Return the result of a call whose operands are JAX's arrays, or become such; shapes are known."""
    check_options(operator, None, False, threads)
    op = find(operator, shape_second=len(operands) > 1 and is_shape(operands[1]))
    for port, value in zip(op.operands, operands, strict=False):
        if port.is_shape and isinstance(value, jax.core.Tracer):  # T3
            refuse(
                "T3", op.name, f"{port.name} must be known while a function is traced; got a tracer; a tuple would do"
            )
    for name, value in attributes.items():
        each = value if isinstance(value, list | tuple) else [value]
        if any(isinstance(one, jax.core.Tracer) for one in each):  # A2
            sentence = f"{name} must be known while a function is traced; got a tracer"
            refuse("A2", op.name, f"{sentence}; jit(..., static_argnames=({name!r},)) leaves it as it is")
    ports = [(port.is_shape, value) for port, value in zip(op.operands, operands, strict=False)]
    given = [value if shape or value is None else _array(value) for shape, value in ports]
    arrays = [value for (shape, _), value in zip(ports, given, strict=True) if not shape and value is not None]
    alike = [value if shape or value is None else _alike(value) for (shape, _), value in zip(ports, given, strict=True)]
    problem = prepare(operator, (*alike, *operands[len(ports) :]), attributes, _named(dtype), lenient=lenient).problem
    if problem.note:
        warnings.warn(problem.note, UserWarning, stacklevel=3)
    return solve(problem, arrays, threads)


def _array(value: Any) -> Traced:
    return value if isinstance(value, jax.Array) else jax.numpy.asarray(value)


def _alike(array: Traced) -> Any:
    """Return an array of NumPy's of the same shape and type, which takes no memory: its elements are all one."""
    return np.ndarray(array.shape, array.dtype, _ANY, strides=(0,) * array.ndim)


def _named(dtype: Any) -> object:
    """Return NumPy's own for a type of JAX, such as jax.numpy.float32; what is none is refused with the others."""
    if dtype is None or isinstance(dtype, str):
        return dtype
    try:
        return np.dtype(dtype)
    except TypeError:
        return dtype
