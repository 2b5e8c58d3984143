"""Vector-Jacobian products of any order: a result, and a function from its cotangent to the gradients."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from convgrad import arrays, engines
from convgrad.arrays.libraries import like
from convgrad.formats import Format
from convgrad.functional.call import REMEMBERED, check_options, prepare, solve
from convgrad.functional.types import Array, MaybeArray
from convgrad.parameters import described
from convgrad.spec.activation import inactive
from convgrad.spec.check import as_integer, as_items
from convgrad.spec.formulas import Formula, Term, gradients
from convgrad.spec.operators import LARGEST_RANK
from convgrad.spec.problem import Problem, intern
from convgrad.spec.rules import refuse
from convgrad.words import shown

InputGradients = tuple[MaybeArray, ...]  # one per input
Needs = Collection[str | int]


@dataclass(frozen=True, eq=False)
class Pullback:
    """The gradients of a result as a function of its cotangent v. You can call a pullback many times, from any thread.

    :func:`vjp` makes it. Inputs and cotangents are not copied, so do not change them while you use the pullback.

    Args:
        operator: The name of the operator.
        names: The names of the operator's inputs and, from the second order on, "v".
        format: The type of inputs and outputs.
        variables: The inputs, then the cotangents; None for shapes and zero cotangents.
        formula: The formulas of the outputs, each of which has a cotangent.
        shapes: The shapes of the outputs; None if not computed.
        single: Whether the output is one array and not a tuple.
        threads: The largest number of threads; None is the setting of ``convgrad.threads``.
        max_error: The largest error bound allowed, as in :func:`run`.
        hand: A function that converts a gradient to an array of the caller's library.
        inactive: The mask of the elements of an activated result that are 0; None without activation. Default: None.
        gated_outputs: The numbers of the outputs whose cotangents the mask sets to 0. Default: frozenset().
        gated: The numbers of the variables whose gradients the mask sets to 0. Default: frozenset().
    """

    operator: str
    names: tuple[str, ...]
    format: Format
    variables: tuple[Array | None, ...]
    formula: Formula
    shapes: tuple[tuple[int, ...] | None, ...]
    single: bool
    threads: int | None
    max_error: float | None
    hand: Callable[[Array], object]
    inactive: NDArray[np.bool_] | None = None
    gated_outputs: frozenset[int] = frozenset()
    gated: frozenset[int] = frozenset()

    def __call__(self, v: object, needs: Needs | None = None) -> InputGradients:
        """Return the gradients of <v, result> by each input as a tuple, in the input's shape, layout and type.

        The gradient is None if the input is a shape, is None, is not in ``needs``, or does not affect the result. A
        pullback of gradients returns the gradients by all inputs and v.

        Args:
            v: The cotangent, an array of the result's shape and type. In a pullback of gradients, v is a tuple of the
                gradients' cotangents, some of which may be None.
            needs: The inputs by name or number; None selects all. Default: None.

        Raises:
            InvalidShapeError: v does not have the shape of the result.
            InvalidDataTypeError: v does not have the type of the result.
            InvalidAttributeError: ``needs`` contains an unknown name or number.
        """
        pulled, _ = self._pulled(self._taken(v), needs)
        return tuple(None if gradient is None else self.hand(gradient) for gradient in pulled)

    def vjp(self, v: object, needs: Needs | None = None) -> tuple[InputGradients, Pullback]:
        """Return the gradients and their pullback, which differentiates them by all inputs and v.

        The returned pullback takes the cotangents of the gradients as one tuple.

        Args:
            v: The cotangent, as in a call of the pullback.
            needs: The inputs by name or number; None selects all. Default: None.
        """
        cotangents = self._taken(v)
        pulled, formula = self._pulled(cotangents, needs)
        names = (*self.names, "v") if self.single else self.names
        shapes = tuple(None if gradient is None else gradient.shape for gradient in pulled)
        variables = (*self.variables, *cotangents)
        gated = self.gated | {len(self.variables) + output for output in self.gated_outputs}
        again = replace(
            self,
            names=names,
            variables=variables,
            formula=formula,
            shapes=shapes,
            single=False,
            gated_outputs=self.gated,
            gated=gated,
        )
        return tuple(None if gradient is None else self.hand(gradient) for gradient in pulled), again

    def _taken(self, v: object) -> tuple[Array | None, ...]:
        """Return the cotangents as arrays with the shapes and type of the outputs; raise an error if they differ."""
        if self.single:
            return (self._fitting("v", 0, v),)
        if not isinstance(v, Sequence) or len(v) != len(self.shapes):  # O2
            got = f"{len(v)} of them" if isinstance(v, Sequence) else type(v).__name__
            refuse(
                "O2", self.operator, f"v must be a tuple of the cotangents of {len(self.shapes)} gradients; got {got}"
            )
        return tuple(
            None if cotangent is None else self._fitting(f"v[{at}]", at, cotangent) for at, cotangent in enumerate(v)
        )

    def _fitting(self, name: str, output: int, value: object) -> Array:
        array, fmt = arrays.take(value, self.operator, name)
        shape = self.shapes[output]
        if array.shape != shape:  # D7
            must = "be None, as there is no such gradient" if shape is None else f"have its result's shape {shape}"
            refuse("D7", self.operator, f"{name} must {must}; got {array.shape}")
        if fmt is not self.format:  # T6
            refuse("T6", self.operator, f"{name} must be of {self.format}, its result's type; got {fmt}")
        if self.inactive is None or output not in self.gated_outputs:
            return array
        return np.where(self.inactive, array.dtype.type(0), array)

    def _pulled(self, cotangents: Sequence[Array | None], needs: Needs | None) -> tuple[list[Array | None], Formula]:
        """Return the requested gradients and the formula of each gradient."""
        wanted = self._numbers(needs)
        every = gradients(self.formula, len(self.variables))
        variables = (*self.variables, *cotangents)
        absent = {number for number, variable in enumerate(variables) if variable is None}
        formula = tuple([_present(terms, absent) if n in wanted else () for n, terms in enumerate(every)])
        pulled = [_sum(terms, variables, self.threads, self.max_error) for terms in formula]
        for gradient in (pulled[number] for number in self.gated):
            if gradient is not None:
                gradient[self.inactive] = 0
        return pulled, formula

    def _numbers(self, needs: Needs | None) -> Collection[int]:
        every = range(len(self.variables))
        if needs is None:
            return every
        held = as_items(needs, LARGEST_RANK)
        if held is None:  # O3
            is_one = needs in self.names if isinstance(needs, str) else as_integer(needs) in every
            hint = f". Use ({shown(needs)},)" if is_one else ""
            refuse("O3", self.operator, f"needs must be a tuple of {self._known()}; got {shown(needs)}{hint}")
        numbers = set[int]()
        for selector in held:
            is_name = isinstance(selector, str) and selector in self.names
            number = self.names.index(selector) if is_name else as_integer(selector)
            if number is None or number not in every:  # O3
                refuse("O3", self.operator, f"needs must hold {self._known()}; got {shown(selector)}")
            numbers.add(number)
        return numbers

    def _known(self) -> str:
        return f"names or numbers of {', '.join(self.names)}"


def _present(terms: tuple[Term, ...], absent: set[int]) -> tuple[Term, ...]:
    """Return the terms without an absent variable. Terms with an absent variable are 0."""
    return tuple([term for term in terms if absent.isdisjoint(term.variables)]) if absent else terms


def _sum(
    terms: tuple[Term, ...], variables: Sequence[MaybeArray], threads: int | None, max_error: float | None
) -> Array | None:
    """Return the sum of terms as a new array, or None without terms. Each term is added with one rounding."""
    result: Array | None = None
    for problem, numbers in terms:
        if problem is None:
            assert result is None, "a term that is a variable itself comes first"
            handed: Array = variables[int(numbers[0])]
            result = arrays.aligned(handed.shape, handed.dtype.newbyteorder("="))
            result[...] = handed
            continue
        operands = [_zeros(problem) if isinstance(number, str) else variables[number] for number in numbers]
        solved = engines.within(problem if result is None else _adding(problem), max_error)
        result = solve(solved, operands, result, threads, aligned=True)
    return result


def _zeros(problem: Problem) -> Array:
    """Return zeros of the result's shape, to which a bias is added. All elements share one address."""
    return np.broadcast_to(np.zeros((), problem.operand_format.dtype), problem.output_shape)


@lru_cache(maxsize=REMEMBERED)
def _adding(problem: Problem) -> Problem:
    """Return the problem that adds its result to the output."""
    return intern(replace(problem, accumulate=True))


@described
def vjp(
    operator: str,
    *inputs: object,
    threads: int | None = None,
    max_error: float | None = None,
    activation: str | None = None,
    **attributes: object,
) -> tuple[Array, Pullback]:
    """Return an operator's result and its pullback. ``pullback(v)`` returns the gradient of <v, result> by each input.

    The operator is a current or older one, as in :func:`run`. An attribute may also be one int for all axes, and you
    may omit strides and dilations of 1. Shapes must be full.

    - ``pullback(v, needs=("weights",))`` computes only the weight gradient. Gradients that are not computed are None,
      and so are the gradients of shape inputs.
    - ``pullback.vjp(v)`` returns the gradients and a second pullback. The second one takes a tuple of the gradients'
      cotangents and returns the gradients by all inputs and v. You can differentiate to any order in this way.

    Result and gradients are new arrays of the inputs' type. If ``activation="relu"`` is given, v counts as 0 where the
    result is 0. Raises the errors of :func:`run`.

    Follows oneDNN's documentation of the named operator.

    >>> import numpy as np
    >>> src = np.arange(1, 6, dtype=np.float32).reshape(1, 5, 1)
    >>> weights = np.array([1, 0, -1], np.float32).reshape(3, 1, 1)
    >>> dst, pullback = vjp("Convolution", src, weights)
    >>> diff_src, diff_weights = pullback(np.ones_like(dst))
    >>> diff_src.ravel().tolist(), diff_weights.ravel().tolist()
    ([1.0, 1.0, 0.0, -1.0, -1.0], [6.0, 9.0, 12.0])

    A gradient penalty needs the second order. If the penalty is half the squared norm of the src gradient, the
    cotangent of the src gradient is the src gradient itself:

    >>> (diff_src, _), again = pullback.vjp(np.ones_like(dst), needs=("src",))
    >>> _, by_weights, by_v = again((diff_src, None))
    >>> by_weights.ravel().tolist(), by_v.ravel().tolist()
    ([2.0, 0.0, -2.0], [1.0, 2.0, 1.0])
    """
    check_options(operator, None, False, threads)
    posed = prepare(operator, inputs, attributes, lenient=True)
    problem, op, prepared = posed.problem, posed.op, posed.activated(activation).within(max_error)
    if problem.note:
        warnings.warn(problem.note, UserWarning, stacklevel=2)
    result = prepared.execute(None, threads, type(inputs[0]) is not np.ndarray)
    numbers = [number for number, port in enumerate(op.operands) if not port.is_shape][: len(prepared.taken)]
    variables: list[Array | None] = [None] * len(inputs)
    for number, array in zip(numbers, prepared.taken.values(), strict=True):
        variables[number] = array
    names = tuple(port.name for port in op.operands[: len(inputs)])
    formula = ((Term(problem, tuple(numbers)),),)
    hand, fmt = like(inputs[0]), problem.operand_format
    zeroed, gated = (None, frozenset[int]()) if activation is None else (inactive(result), frozenset({0}))
    pullback = Pullback(
        op.name, names, fmt, tuple(variables), formula, (result.shape,), True, threads, max_error, hand, zeroed, gated
    )
    return hand(result), pullback
