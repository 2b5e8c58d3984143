"""The JAX primitive that computes all operators, with its rules for shapes, derivatives, batches and programs.

An operator is linear in each operand, and its derivative by an operand is again an operator. So one rule for tangents
and one rule for cotangents are enough. Both rules use the table in ``spec/derivatives.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple, NoReturn, TypeAlias

import jax
from jax import lax
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from convgrad import engines
from convgrad.errors import UnsupportedError
from convgrad.formats import F32, F64, Format
from convgrad.jax.handler import TARGET
from convgrad.jax.site import operand_shapes, written
from convgrad.spec.derivatives import COTANGENT, ZEROS, Derivative, derivative
from convgrad.spec.problem import Problem, of_images
from convgrad.spec.rules import refuse
from convgrad.spec.winograd.choice import DIRECT

if TYPE_CHECKING:
    from jax.core import ShapedArray
    from jax.typing import DTypeLike

Traced: TypeAlias = jax.Array  # also a tracer, or an array of NumPy that JAX need not convert

primitive = Primitive("convgrad")


class Options(NamedTuple):
    """The number of threads and the ``max_error`` for a problem and for all its derivatives."""

    threads: int | None = None
    max_error: float = DIRECT


def solve(problem: Problem, operands: Sequence[Traced], options: Options) -> Traced:
    """Return a problem's result as a JAX array."""
    return primitive.bind(*_on_devices(operands), problem=problem, options=options)


def zeros(shape: Sequence[int], dtype: DTypeLike, *operands: Traced) -> Traced:
    """Return an array of zeros, which differs between devices like the operands."""
    every = frozenset[Hashable]().union(*(_varying(jax.typeof(operand)) for operand in operands))
    array = lax.full(shape, 0, dtype)
    return lax.pcast(array, tuple(every), to="varying") if every else array


def _on_devices(operands: Sequence[Traced]) -> list[Traced]:
    """Return the operands, complete on each device. JAX can differentiate this function.

    Arrays that are sharded over an explicit mesh are gathered. In a shard_map, some operands may differ between devices
    and others may be shared. The shared operands are then marked as varying, so JAX sums their cotangents over devices.
    """
    gathered = []
    for operand in operands:
        kind = jax.typeof(operand)
        cut = any(axes is not None for axes in kind.sharding.spec)
        gathered.append(jax.sharding.reshard(operand, _unsharded(kind, kind.ndim)) if cut else operand)
    varying = [_varying(jax.typeof(operand)) for operand in gathered]
    every = frozenset[Hashable]().union(*varying)
    return [
        lax.pcast(operand, tuple(every - axes), to="varying") if every - axes else operand
        for operand, axes in zip(gathered, varying, strict=True)
    ]


def _unsharded(kind: ShapedArray, rank: int) -> jax.sharding.NamedSharding:
    return jax.sharding.NamedSharding(kind.sharding.mesh, jax.sharding.PartitionSpec(*[None] * rank))


def _varying(kind: ShapedArray) -> frozenset[Hashable]:
    """Return the mesh axes along which an operand differs between devices; older versions of JAX call them vma."""
    return frozenset(kind.vma if hasattr(kind, "vma") else kind.manual_axis_type.varying)


def _shape(*operands: Traced, problem: Problem, options: Options) -> Traced:
    """Return the abstract value of the result: its shape and type. It differs between devices like the operands.

    Without jax_enable_x64, JAX converts arrays to f32 instead of f64, which the handler must not read as f64.
    """
    if any(operand.dtype != problem.operand_format.dtype for operand in operands):
        raise UnsupportedError(
            f"{problem.operator}: f64 must be enabled in JAX. Use jax.config.update('jax_enable_x64', True)"
        )
    kind, shape, dtype = operands[0], problem.output_shape, problem.output_format.dtype
    return kind.update(shape=shape, dtype=dtype, weak_type=False, sharding=_unsharded(kind, len(shape)))


def _computed(*operands: Traced, problem: Problem, options: Options) -> Traced:
    program = _program(problem, options)
    if not jax.config.jax_disable_jit:
        return program(*operands)
    with jax.disable_jit(False):  # only a compiled program computes the primitive
        return program(*operands)


@lru_cache(maxsize=1024)
def _program(problem: Problem, options: Options) -> Callable[..., Traced]:
    program: Callable[..., Traced] = jax.jit(lambda *operands: solve(problem, operands, options))
    return program


primitive.def_impl(_computed)
primitive.def_abstract_eval(_shape)


# -- derivatives ---------------------------------------------------------------------------------------------------


def _forward(
    primals: Sequence[Traced], tangents: Sequence[Traced], *, problem: Problem, options: Options
) -> tuple[Traced, Traced]:
    """Return the result and its tangent. Each operand with a tangent adds a term to it.

    The tangent of bias is the bias of another operand's term, if there is such a term. The tangent is 0 where an
    activated result is 0.
    """
    terms: list[Traced] = []
    bias = None
    plain = linear = replace(problem, activation="")
    if "bias" in problem.operands:
        bias = None if _is_zero(tangents[-1]) else tangents[-1]
        plain = replace(linear, operands=problem.operands[:-1], layouts=(*problem.layouts[:-2], problem.layouts[-1]))
    for number, _ in enumerate(plain.operands):
        if _is_zero(tangents[number]):
            continue
        mixed = [tangents[n] if n == number else primals[n] for n in range(len(plain.operands))]
        if problem.solves_for == "bias_add" and bias is None:
            terms.append(_as(mixed[0], problem.output_format))
        elif bias is None:
            terms.append(solve(plain, mixed, options))
        else:
            terms.append(solve(linear, [*mixed, bias], options))
            bias = None
    if bias is not None:
        terms.append(_by_bias(linear, bias, options))
    result, tangent = solve(problem, primals, options), sum(terms[1:], terms[0])
    if problem.activation:
        tangent = jax.numpy.where(_inactive(result), tangent.dtype.type(0), tangent)
    return result, tangent


def _inactive(result: Traced) -> Traced:
    """Return where an activated result is +0, by its bits, because XLA compares as if denormals were 0."""
    return lax.bitcast_convert_type(result, f"uint{8 * result.dtype.itemsize}") == 0


def _by_bias(problem: Problem, bias: Traced, options: Options) -> Traced:
    """Return the values of bias at all positions of the result. The derivative of the bias gradient computes them."""
    sums = derivative(problem, len(problem.operands) - 1).problem
    assert sums is not None, "a bias gradient is an operator"
    return _followed(derivative(sums, 0), bias, (), problem.operand_format, problem.output_format, options)


def _backward(cotangent: Traced, *operands: Traced, problem: Problem, options: Options) -> list[Traced]:
    """Return the cotangents of the operands; None for operands that are not differentiated."""
    cotangents: list[Traced] = []
    common = _common(problem.operand_format, problem.output_format)
    for number, operand in enumerate(operands):
        if not ad.is_undefined_primal(operand):
            cotangents.append(None)
        elif _is_zero(cotangent):
            cotangents.append(ad.Zero(operand.aval))
        else:
            rule = derivative(problem, number)
            cotangents.append(_followed(rule, cotangent, operands, common, problem.operand_format, options))
    return cotangents


def _followed(
    rule: Derivative, cotangent: Traced, operands: Sequence[Traced], common: Format, to: Format, options: Options
) -> Traced:
    """Return the result of a derivative in the format ``to``; its operands are converted to the format ``common``."""
    if rule.problem is None:
        return _as(cotangent, to)
    problem = replace(rule.problem, operand_format=common, output_format=to)
    by_name: dict[int | str, Traced] = {COTANGENT: cotangent, **dict(enumerate(operands))}
    taken = [
        lax.full(shape, 0, common.dtype) if name == ZEROS else _as(by_name[name], common)
        for name, shape in zip(rule.operands, operand_shapes(problem), strict=True)
    ]
    return solve(problem, taken, options)


def _is_zero(tangent: Traced) -> bool:
    return type(tangent) is ad.Zero


def _common(first: Format, second: Format) -> Format:
    """Return a format that represents every number of both formats."""
    return first if first is second else F64 if F64 in (first, second) else F32


def _as(array: Traced, fmt: Format) -> Traced:
    return array if array.dtype == fmt.dtype else lax.convert_element_type(array, fmt.dtype)


ad.primitive_jvps[primitive] = _forward
ad.primitive_transposes[primitive] = _backward


# -- batches -------------------------------------------------------------------------------------------------------


def _batched(
    operands: Sequence[Traced], at: Sequence[int | None], *, problem: Problem, options: Options
) -> tuple[Traced, int]:
    """Return a vmap's results, with the same bits as separate calls, except with ``max_error``.

    If exactly the operands src and dst are batched, and the result is src or dst, one call computes all images.
    Otherwise one call after the other computes the results.
    """
    moved = [x if axis is None else jax.numpy.moveaxis(x, axis, 0) for x, axis in zip(operands, at, strict=True)]
    mapped = [axis is not None for axis in at]
    if problem.output in ("src", "dst") and mapped == [tensor in ("src", "dst") for tensor in problem.operands]:
        data = mapped.index(True)
        size, images, *extents = moved[data].shape
        moved[data] = moved[data].reshape(size * images, *extents)
        problem_of_all = of_images(problem, size * images)
        return solve(problem_of_all, moved, options).reshape(size, *problem.output_shape), 0

    def solve_mapped(slices: Sequence[Traced]) -> Traced:
        values = iter(slices)
        return solve(problem, [next(values) if varies else x for x, varies in zip(moved, mapped, strict=True)], options)

    return lax.map(solve_mapped, [x for x, varies in zip(moved, mapped, strict=True) if varies]), 0


batching.primitive_batchers[primitive] = _batched


# -- programs ------------------------------------------------------------------------------------------------------


def _lowered(
    context: mlir.LoweringRuleContext, *operands: mlir.ir.Value, problem: Problem, options: Options
) -> Sequence[mlir.ir.Value]:
    site = written(engines.within(problem, options.max_error), options.threads)
    results: Sequence[mlir.ir.Value] = jax.ffi.ffi_lowering(TARGET)(context, *operands, site=site)
    return results


def _refused(context: mlir.LoweringRuleContext, *_: mlir.ir.Value, problem: Problem, options: Options) -> NoReturn:
    platforms = context.platforms or context.module_context.platforms
    refuse(  # D1
        "D1",
        problem.operator,
        f"convgrad.jax computes on the CPU; got a program for {', '.join(platforms)}. Use jax.device_put to a device"
        " of jax.devices('cpu')",
    )


mlir.register_lowering(primitive, _lowered, platform="cpu")
mlir.register_lowering(primitive, _refused)
