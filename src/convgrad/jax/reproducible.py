"""The function ``reproducible``. It replaces the convolutions in a traced program and does not change JAX."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial, wraps
from typing import Any, ParamSpec, TypeVar
from weakref import WeakKeyDictionary

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, jaxpr_as_fun, subjaxprs
from jax.extend.core.primitives import conv_general_dilated_p, custom_jvp_call_p, custom_vjp_call_p
from jax.extend.linear_util import wrap_init

from convgrad.errors import InvalidDataTypeError
from convgrad.jax.lax import conv_general_dilated
from convgrad.jax.primitive import primitive

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
Program = Any  # a Jaxpr or a ClosedJaxpr

_SEARCHED = (conv_general_dilated_p, primitive, custom_vjp_call_p)  # a rule of a custom_vjp may have convolutions
_ARRAY = object()  # stored in place of an array, because a stored tracer would leak
_MANUAL_AXES = ("newly_manual_axes", "manual_axes")  # names of a shard_map's parameter in different versions of JAX
_rewritten_programs: WeakKeyDictionary[Program, Program] = WeakKeyDictionary()  # so XLA compiles each one once


def reproducible(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Return a function with the same results as ``function``, in which convgrad computes the convolutions.

    `convgrad.jax.lax.conv_general_dilated` computes each ``jax.lax.conv_general_dilated`` in ``function``, and its
    gradients. This includes layers of Flax, Equinox and Haiku. The bits of a convolution and of its gradients then
    depend only on the values of its operands, not on threads or the instruction set. XLA still computes all other
    operations. JAX itself does not change, so ``function``, its callers and other threads are not affected.

    Differentiate the returned function: ``jax.grad(reproducible(loss))``. Some functions call ``jax.grad`` themselves,
    for example training steps. Then JAX turns gradients into other convolutions before convgrad gets the program.
    convgrad computes these convolutions too, but more slowly and with different bits.

    Each call traces ``function``, as the first call of ``jax.jit`` does. To save time, apply ``jax.jit`` to the
    returned function. Arguments and results are pytrees with leaves of any type.

    Args:
        function: Any callable that JAX can trace, such as a loss or a method ``model.apply``.

    Returns:
        A function with the arguments of ``function``. If convgrad does not support a convolution, a call raises the
        errors of `convgrad.jax.lax.conv_general_dilated`. If there is no convolution, a call gives a ``UserWarning``.

    Raises:
        InvalidDataTypeError: ``function`` is not callable.

    >>> import jax, jax.numpy as jnp
    >>> def loss(weights, images):
    ...     return jax.lax.conv_general_dilated(images, weights, (1,), "VALID").sum()
    >>> weights, images = jnp.array([[[1.0, 2.0]]]), jnp.array([[[1.0, 2.0, 3.0]]])
    >>> jax.grad(reproducible(loss))(weights, images).tolist()
    [[[3.0, 5.0]]]
    """
    if not callable(function):
        raise InvalidDataTypeError(f"reproducible: function must be callable; got {type(function).__name__}")

    @wraps(function, updated=())
    def computed(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        program, rebuild = _traced(partial(function, *args, **kwargs))
        if not _has_convolution(program):
            name = getattr(function, "__qualname__", type(function).__qualname__)
            warnings.warn(
                f"reproducible: found no convolution of jax.lax in {name}, so nothing has changed. Convolutions that"
                " are computed outside of it, by matrix products or by custom calls are not found: call"
                " convgrad.jax.conv_general_dilated there.",
                UserWarning,
                stacklevel=2,
            )
        result: Result = rebuild(jaxpr_as_fun(_rewritten(program))())
        return result

    return computed


def _traced(function: Callable[[], Any]) -> tuple[Any, Callable[[list[Any]], Any]]:
    """Return the program of ``function``, and a function that makes the result from the program's output arrays.

    The program has no arguments. Arrays that ``function`` uses are constants of the program, and JAX can differentiate
    with respect to them.
    """
    found: list[Any] = []

    def arrays() -> list[Any]:
        leaves, tree = jax.tree.flatten(function())
        found[:] = tree, [_ARRAY if _is_array(leaf) else leaf for leaf in leaves]
        return [leaf for leaf in leaves if _is_array(leaf)]

    program = jax.make_jaxpr(arrays)()
    tree, kept = found

    def rebuild(results: list[Any]) -> Any:
        each = iter(results)
        return jax.tree.unflatten(tree, [next(each) if leaf is _ARRAY else leaf for leaf in kept])

    return program, rebuild


def _is_array(leaf: object) -> bool:
    return isinstance(leaf, jax.Array | np.ndarray | np.generic)


def _is_program(value: object) -> bool:
    return isinstance(value, Jaxpr | ClosedJaxpr)


def _has_convolution(program: Program) -> bool:
    """Return whether a program, or a program that it calls, may contain a convolution."""
    found = any(equation.primitive in _SEARCHED for equation in program.eqns)
    return found or any(map(_has_convolution, subjaxprs(program)))


def _rewritten(program: Program) -> Program:
    """Return a program with calls of convgrad in place of its convolutions. The new programs are cached."""
    if not _has_convolution(program):
        return program
    known = _rewritten_programs.get(program)
    if known is None:
        if isinstance(program, ClosedJaxpr):
            known = program.replace(jaxpr=_rewritten(program.jaxpr))
        else:
            known = program.replace(eqns=[_rewritten_equation(equation) for equation in program.eqns])
        _rewritten_programs[program] = known
    return known


def _rewritten_equation(equation: Any) -> Any:
    params = equation.params
    if equation.primitive is conv_general_dilated_p:
        return _call(equation, partial(jax.jit(conv_general_dilated, static_argnames=tuple(params)), **params))
    if equation.primitive.name == "shard_map":  # traced again: its convolutions need the mesh's axes
        if not _has_convolution(params["jaxpr"]):
            return equation
        mapped = jax.shard_map(
            lambda *operands: tuple(jaxpr_as_fun(ClosedJaxpr(_rewritten(params["jaxpr"]), ()))(*operands)),
            mesh=params["mesh"],
            in_specs=params["in_specs"],
            out_specs=params["out_specs"],
            axis_names=next(params[name] for name in _MANUAL_AXES if name in params),
            check_vma=params["check_vma"],
        )
        return _call(equation, mapped)
    changed = {name: jax.tree.map(_in_parameters, value, is_leaf=_is_program) for name, value in params.items()}
    if equation.primitive is custom_vjp_call_p:
        changed |= {"fwd_jaxpr_thunk": _forward_rule(params["fwd_jaxpr_thunk"]), "bwd": _backward_rule(params["bwd"])}
    elif equation.primitive is custom_jvp_call_p and _has_convolution(params["call_jaxpr"]):
        changed["jvp_jaxpr_fun"] = _forward_rule(params["jvp_jaxpr_fun"])
    return equation.replace(params=changed)


def _call(equation: Any, function: Callable[..., Any]) -> Any:
    """Return ``equation`` with a call of ``function`` in its place. JAX must trace ``function`` to one equation."""
    with jax.disable_jit(False), equation.ctx.manager:
        (call,) = jax.make_jaxpr(function)(*[operand.aval for operand in equation.invars]).eqns
    return call.replace(invars=equation.invars, outvars=equation.outvars, source_info=equation.source_info)


def _in_parameters(value: Any) -> Any:
    return _rewritten(value) if _is_program(value) else value


def _forward_rule(rule: Any) -> Any:
    """Return the forward rule of a custom derivative, with calls of convgrad in place of its convolutions."""

    def changed(*zeros: Any) -> Any:
        program, *others = rule.call_wrapped(*zeros)
        return _rewritten(program), *others

    return wrap_init(changed, debug_info=rule.debug_info)


def _backward_rule(rule: Any) -> Any:
    """Return the backward rule of a custom derivative, with calls of convgrad in place of its convolutions."""

    def changed(*operands: Any) -> Any:
        program, rebuild = _traced(partial(rule.call_wrapped, *operands))
        return rebuild(jaxpr_as_fun(_rewritten(program))())

    return wrap_init(changed, debug_info=rule.debug_info)
