"""Calls of operators on dask arrays. Arguments are checked immediately, and Dask computes the result later."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from typing import Any

import dask.array as da
import numpy as np
from dask.base import is_dask_collection

from convgrad import arrays
from convgrad.dask.fused import BATCHED
from convgrad.dask.graph import array_of
from convgrad.functional.call import check_options, prepare
from convgrad.functional.partials import check_order
from convgrad.functional.types import DType
from convgrad.spec.operators import Operator, Tensor, find
from convgrad.spec.rules import refuse

Operand = Any  # a dask array, a NumPy array, or an array of a supported library


def call(
    operator: str,
    operands: tuple[object, ...],
    attributes: Mapping[str, Any],
    *,
    dtype: DType | None = None,
    threads: int = 1,
    activation: str | None = None,
) -> Any:
    """Return the result of an operator as a dask array. At least one operand must be a dask array."""
    check_options(operator, None, False, threads)
    op = find(operator, shape_second=len(operands) > 1 and arrays.is_shape(operands[1]))
    stand_ins = tuple(_stand_in(op, at, value) for at, value in enumerate(operands))
    prepared = prepare(operator, stand_ins, attributes, dtype, lenient=True).activated(activation)
    problem = prepared.problem
    named = {port.name: value for port, value in zip(op.operands, operands, strict=False)}
    arguments: list[Any] = [named[name] for name in prepared.taken]
    if not any(map(_is_array, arguments)):  # T1
        got = ", ".join(f"{name} a {type(named[name]).__name__}" for name in prepared.taken)
        refuse("T1", op.name, f"one operand must be a dask array; got {got}. Use convgrad.run")
    check_order(problem)
    if problem.note:
        warnings.warn(problem.note, UserWarning, stacklevel=3)
    tensors = [*zip(problem.operands, arguments, prepared.taken.values(), strict=True)]
    batch = next((value.chunks[0] for tensor, value, _ in tensors if tensor in BATCHED and _is_array(value)), -1)
    collections = {tensor: _dask_array(tensor, value, array, batch) for tensor, value, array in tensors}
    return array_of(problem, collections, threads)


def _dask_array(tensor: Tensor, value: Any, array: Any, batch: object) -> Any:
    """Return an operand as a dask array. Other arrays get the chunks of ``batch``; weights and biases get one chunk.

    Weights and biases that are dask arrays become a delayed layer. Dask does not fuse this layer with the tasks that
    read it, so each task does not compute the weights again.
    """
    if not _is_array(value):
        return da.from_array(array, chunks=(batch, *(-1,) * (array.ndim - 1)) if tensor in BATCHED else -1)
    if tensor in BATCHED:
        return value
    (block,) = value.rechunk(-1).to_delayed(optimize_graph=False).flat
    return da.from_delayed(block, value.shape, meta=value._meta)


def _is_array(value: object) -> bool:
    return isinstance(value, da.Array)


def _stand_in(op: Operator, at: int, value: Any) -> object:
    """Return an operand for the checks: a dask array becomes an array of its shape and type that needs no memory."""
    name = op.operands[at].name if at < len(op.operands) else f"operand {at}"
    if not _is_array(value):
        if type(value).__module__.partition(".")[0] == "xarray":  # T1
            kind = type(value).__name__
            refuse("T1", op.name, f"{name} must be a dask array; got xarray's {kind}. Use the .data of a DataArray")
        if is_dask_collection(value) or type(value).__module__.startswith("distributed."):  # T1: a Future
            ways = "Use its .data, to_dask_array(lengths=True) or dask.array.from_delayed"
            refuse("T1", op.name, f"{name} must be a dask array; got Dask's {type(value).__name__}. {ways}")
        return value
    if at < len(op.operands) and op.operands[at].is_shape:  # T3
        refuse("T3", op.name, f"{name} must be known before anything is computed; got a dask array. Use a tuple")
    if any(math.isnan(extent) for extent in value.shape):  # G9
        must = f"{name} must have chunks of known sizes"
        refuse("G9", op.name, f"{must}; got shape {value.shape}. Use {name}.compute_chunk_sizes()")
    meta = value._meta
    if not isinstance(meta, np.ndarray):  # D1
        blocks = f"{type(meta).__module__.partition('.')[0]}.{type(meta).__name__}"
        refuse("D1", op.name, f"{name} must have NumPy arrays as blocks, in CPU memory; got {blocks}")
    arrays.take(meta, op.name, name)
    return arrays.stand_in(value.shape, value.dtype)
