"""The function ``reproducible``. It replaces the convolutions in a traced program and does not change JAX."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache, lru_cache, partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeAlias, TypeGuard, TypeVar
from weakref import WeakKeyDictionary

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, jaxpr_as_fun, subjaxprs
from jax.extend.core.primitives import conv_general_dilated_p, custom_jvp_call_p, custom_vjp_call_p
from jax.extend.linear_util import WrappedFun, wrap_init
from jax.extend.source_info_util import summarize

from convgrad.engines.settings import accuracy, flag
from convgrad.engines.settings import max_error as accuracy_of
from convgrad.errors import ConvgradError, InvalidDataTypeError
from convgrad.jax.kinds import is_exact
from convgrad.jax.lax import conv_general_dilated
from convgrad.jax.primitive import primitive

if TYPE_CHECKING:
    from jax.extend.core import JaxprEqn
    from jax.tree_util import PyTreeDef

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
Program: TypeAlias = Jaxpr | ClosedJaxpr

_SEARCHED = (conv_general_dilated_p, primitive, custom_vjp_call_p)  # a rule of a custom_vjp may have convolutions
_ARRAY = object()  # stored in place of an array, because a stored tracer would leak
_MANUAL_AXES = ("newly_manual_axes", "manual_axes")  # names of a shard_map's parameter in different versions of JAX
REMEMBERED = 64  # values of max_error whose programs are cached
_FRAMES = 100  # max number of frames in which the user's line is sought
_PACKAGE, _INSTALLED = str(Path(__file__).parent), "site-packages"  # parts of the paths of files that users do not edit


def reproducible(function: Callable[Arguments, Result], *, strict: bool = False) -> Callable[Arguments, Result]:
    """Return a function with the same results as ``function``, in which convgrad computes the convolutions.

    `convgrad.jax.lax.conv_general_dilated` computes each ``jax.lax.conv_general_dilated`` in ``function``, and its
    gradients. This includes layers of Flax, Equinox and Haiku. The bits of a convolution and of its gradients then
    depend only on the values of its operands, not on threads or the instruction set. XLA still computes all other
    operations. JAX itself does not change, so ``function``, its callers and other threads are not affected.

    JAX still computes a convolution that `convgrad.jax.lax.conv_general_dilated` refuses, for example of operands of a
    type that convgrad does not have. A warning names each of these calls: its line, shapes and types, and the reason.
    ``strict=True`` raises an error instead. JAX also computes convolutions of integers, without a warning, because
    their bits are the same in any order.

    Differentiate the returned function: ``jax.grad(reproducible(loss))``. Some functions call ``jax.grad`` themselves,
    for example training steps. Then JAX turns gradients into other convolutions before convgrad gets the program.
    convgrad computes these convolutions too, but more slowly and with different bits.

    Each call traces ``function``, as the first call of ``jax.jit`` does. To save time, apply ``jax.jit`` to the
    returned function. Arguments and results are pytrees with leaves of any type.

    Args:
        function: Any callable that JAX can trace, such as a loss or a method ``model.apply``.

    Keyword Args:
        strict: If true, a call of the returned function raises the error of `convgrad.jax.lax.conv_general_dilated` for
            a convolution that convgrad does not support. If false, JAX computes this convolution. Default: False.

    Returns:
        A function with the arguments of ``function``. A call gives a ``UserWarning`` if JAX still computes
        convolutions whose bits may vary, or if there is no convolution.

    Raises:
        InvalidDataTypeError: ``function`` is not callable.
        InvalidAttributeError: ``strict`` is not a bool.

    >>> import jax, jax.numpy as jnp
    >>> def loss(weights, images):
    ...     return jax.lax.conv_general_dilated(images, weights, (1,), "VALID").sum()
    >>> weights, images = jnp.array([[[1.0, 2.0]]]), jnp.array([[[1.0, 2.0, 3.0]]])
    >>> jax.grad(reproducible(loss))(weights, images).tolist()
    [[[3.0, 5.0]]]
    """
    if not callable(function):
        raise InvalidDataTypeError(f"reproducible: function must be callable; got {type(function).__name__}")
    is_strict = flag(strict, "reproducible: strict")

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
        return rebuild(jaxpr_as_fun(_rewriter(is_strict, accuracy(None)).warned(program))())

    return computed


def _traced(function: Callable[[], Result]) -> tuple[ClosedJaxpr, Callable[[list[jax.Array]], Result]]:
    """Return the program of ``function``, and a function that makes the result from the program's output arrays.

    The program has no arguments. Arrays that ``function`` uses are constants of the program, and JAX can differentiate
    with respect to them.
    """
    structures: list[tuple[PyTreeDef, list[object]]] = []  # the tree of the result, and its leaves that are not arrays

    def arrays() -> list[jax.Array]:
        leaves, tree = jax.tree.flatten(function())
        structures.append((tree, [_ARRAY if _is_array(leaf) else leaf for leaf in leaves]))
        return [leaf for leaf in leaves if _is_array(leaf)]

    program = jax.make_jaxpr(arrays)()
    tree, others = structures[-1]

    def rebuild(results: list[jax.Array]) -> Result:
        remaining = iter(results)
        result: Result = jax.tree.unflatten(tree, [next(remaining) if leaf is _ARRAY else leaf for leaf in others])
        return result

    return program, rebuild


def _is_array(leaf: object) -> bool:
    return isinstance(leaf, jax.Array | np.ndarray | np.generic)


def _is_program(value: object) -> TypeGuard[Program]:
    return isinstance(value, Jaxpr | ClosedJaxpr)


def _has_convolution(program: Program) -> bool:
    """Return whether a program, or a program that it calls, may contain a convolution."""
    is_direct = any(equation.primitive in _SEARCHED for equation in program.eqns)
    return is_direct or any(map(_has_convolution, subjaxprs(program)))


def _call(equation: JaxprEqn, function: Callable[..., object]) -> JaxprEqn:
    """Return ``equation`` with a call of ``function`` in its place. JAX must trace ``function`` to one equation."""
    with jax.disable_jit(False), equation.ctx.manager:
        (call,) = jax.make_jaxpr(function)(*[operand.aval for operand in equation.invars]).eqns
    return call.replace(invars=equation.invars, outvars=equation.outvars, source_info=equation.source_info)


class _Rewriter:
    """Makes programs with calls of convgrad in place of their convolutions. The new programs are cached."""

    def __init__(self, strict: bool, max_error: float) -> None:
        self.strict, self.max_error = strict, max_error
        # the new program, so that XLA compiles it once, and the sentences about the convolutions that JAX computes
        self.known: WeakKeyDictionary[Program, tuple[Program, list[str]]] = WeakKeyDictionary()

    def warned(self, program: Program) -> Program:
        """Return a new program, and warn of the convolutions that JAX computes."""
        sentences: list[str] = []
        changed = self.rewritten(program, sentences)
        if sentences:
            shown = "; ".join(dict.fromkeys(sentences))
            warnings.warn(
                f"reproducible: JAX still computes {shown}. The bits of these results may depend on threads and the"
                " instruction set. Use strict=True to raise an error instead.",
                UserWarning,
                stacklevel=3,
            )
        return changed

    def rewritten(self, program: Program, sentences: list[str]) -> Program:
        """Return a new program. Append a sentence about each convolution that JAX computes to ``sentences``."""
        if not _has_convolution(program):
            return program
        if program not in self.known:
            own_sentences: list[str] = []
            if isinstance(program, ClosedJaxpr) and not isinstance(
                program.jaxpr, ClosedJaxpr
            ):  # one class from JAX 0.12
                changed = program.replace(jaxpr=self.rewritten(program.jaxpr, own_sentences))
            else:
                changed = program.replace(eqns=[self.equation(equation, own_sentences) for equation in program.eqns])
            self.known[program] = changed, own_sentences
        changed, known_sentences = self.known[program]
        sentences += known_sentences
        return changed

    def equation(self, equation: JaxprEqn, sentences: list[str]) -> JaxprEqn:
        """Return an equation that calls convgrad, or new programs, if ``equation`` is or calls a convolution."""
        params = equation.params
        if equation.primitive is conv_general_dilated_p:
            return self.convolution(equation, sentences)
        if equation.primitive.name == "shard_map":  # traced again: its convolutions need the mesh's axes
            if not _has_convolution(params["jaxpr"]):
                return equation
            program = self.rewritten(params["jaxpr"], sentences)
            mapped = jax.shard_map(
                lambda *operands: tuple(jaxpr_as_fun(ClosedJaxpr(program, ()))(*operands)),
                mesh=params["mesh"],
                in_specs=params["in_specs"],
                out_specs=params["out_specs"],
                axis_names=next(params[name] for name in _MANUAL_AXES if name in params),
                check_vma=params["check_vma"],
            )
            return _call(equation, mapped)

        def changed_value(value: object) -> object:
            return self.rewritten(value, sentences) if _is_program(value) else value

        changed = {name: jax.tree.map(changed_value, value, is_leaf=_is_program) for name, value in params.items()}
        if equation.primitive is custom_vjp_call_p:
            changed["fwd_jaxpr_thunk"] = self.forward_rule(params["fwd_jaxpr_thunk"])
            changed["bwd"] = self.backward_rule(params["bwd"])
        elif equation.primitive is custom_jvp_call_p:
            changed["jvp_jaxpr_fun"] = self.forward_rule(params["jvp_jaxpr_fun"])
        return equation.replace(params=changed)

    def convolution(self, equation: JaxprEqn, sentences: list[str]) -> JaxprEqn:
        """Return a call of convgrad in place of a convolution, or the convolution if convgrad refuses it."""
        if is_exact(equation.outvars[0].aval.dtype):
            return equation
        params = equation.params
        try:
            return _call(equation, partial(_compiled(tuple(params)), max_error=self.max_error, **params))
        except ConvgradError as error:
            lhs, rhs = (operand.aval.str_short() for operand in equation.invars)
            sentence = f"a convolution of {lhs} and {rhs}{_place(equation)}, because {error}"
            if self.strict:
                raise type(error)(f"reproducible: only JAX can compute {sentence}") from None
            sentences.append(sentence)
            return equation

    def forward_rule(self, rule: WrappedFun) -> WrappedFun:
        """Return the forward rule of a custom derivative, with calls of convgrad in place of its convolutions."""

        def changed(*zeros: bool) -> tuple[object, ...]:
            program, *others = rule.call_wrapped(*zeros)
            return self.warned(program), *others

        return wrap_init(changed, debug_info=rule.debug_info)

    def backward_rule(self, rule: WrappedFun) -> WrappedFun:
        """Return the backward rule of a custom derivative, with calls of convgrad in place of its convolutions."""

        def changed(*operands: object) -> object:
            program, rebuild = _traced(partial(rule.call_wrapped, *operands))
            return rebuild(jaxpr_as_fun(self.warned(program))())

        return wrap_init(changed, debug_info=rule.debug_info)


_rewriter = lru_cache(maxsize=REMEMBERED)(_Rewriter)


def _conv_general_dilated(lhs: jax.Array, rhs: jax.Array, *, max_error: float, **params: Any) -> jax.Array:
    """Compute a convolution with ``max_error``, which is a parameter because JAX caches traced functions."""
    with accuracy_of(max_error):
        return conv_general_dilated(lhs, rhs, **params)


@cache
def _compiled(params: tuple[str, ...]) -> Callable[..., jax.Array]:
    """Return the one compiled function for parameters with these names, because JAX never frees a function's calls."""
    compiled: Callable[..., jax.Array] = jax.jit(_conv_general_dilated, static_argnames=("max_error", *params))
    return compiled


def _place(equation: JaxprEqn) -> str:
    """Return the line of the user's file that made an equation, with a space in front, or "" if JAX has no such line.

    If all lines are in installed packages, this is the innermost.
    """
    lines = [line for line in summarize(equation.source_info, num_frames=_FRAMES).split("\n") if _PACKAGE not in line]
    own = [line for line in lines if _INSTALLED not in line]
    return "".join(f" at {line}" for line in (own or lines)[-1:] if line)
