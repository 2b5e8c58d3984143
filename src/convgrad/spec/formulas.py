"""Formulas: sums of problems on variables, closed under differentiation. They give gradients of any order.

An operator is such a sum on its inputs. Its gradients are such sums on the inputs and the cotangent, and so on.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from convgrad.spec.derivatives import COTANGENT, ZEROS, derivative
from convgrad.spec.problem import Problem

REMEMBERED = 1024


class Term(NamedTuple):
    """A problem on some of the variables, by number, or on ZEROS. Without a problem it is the variable itself."""

    problem: Problem | None
    variables: tuple[int | str, ...]


Formula = tuple[tuple[Term, ...], ...]  # per output the terms to add, plain variables first; no terms mean 0


@lru_cache(maxsize=REMEMBERED)
def gradients(formula: Formula, variables: int) -> Formula:
    """Return the gradients of <u, formula> by each of the formula's variables. ``variables`` is their number.

    The variables of the gradients are the formula's variables, followed by the cotangents u of its outputs.

    >>> from convgrad.notation import problem
    >>> convolution = problem("FWD_D f32 NXC mb1ic1iw3oc1ow3kw3pw1")
    >>> first = gradients(((Term(convolution, (0, 1)),),), 2)
    >>> [[(term.problem.operator, term.variables) for term in terms] for terms in first]
    [[('ConvolutionBackwardData', (2, 1))], [('ConvolutionBackwardWeights', (0, 2))]]
    >>> [len(terms) for terms in gradients(first, 3)]
    [1, 1, 2]
    """
    found: list[list[Term]] = [[] for _ in range(variables)]
    for output, terms in enumerate(formula):
        for term in terms:
            for place, variable in enumerate(term.variables):
                if isinstance(variable, int):
                    found[variable].append(_derived(term, place, variables + output))
    return tuple([tuple(sorted(terms, key=lambda term: term.problem is not None)) for terms in found])


def _derived(term: Term, place: int, cotangent: int) -> Term:
    """Return the derivative of a term by the variable at one place."""
    if term.problem is None:
        return Term(None, (cotangent,))
    found = derivative(term.problem, place)
    named: dict[int | str, int | str] = {COTANGENT: cotangent, ZEROS: ZEROS, **dict(enumerate(term.variables))}
    return Term(found.problem, tuple(named[operand] for operand in found.operands))
