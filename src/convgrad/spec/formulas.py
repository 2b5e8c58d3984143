"""Formulas: sums of problems whose operands are variables. Gradients of formulas are formulas, to any order.

An operator is a formula of its inputs. Its gradients are formulas of its inputs and of its result's cotangent.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from convgrad.spec.derivatives import COTANGENT, ZEROS, derivative
from convgrad.spec.problem import Problem

REMEMBERED = 1024


class Term(NamedTuple):
    """A term of a formula: a problem, and for each of its operands the number of a variable, or ZEROS.

    A term without a problem is the variable itself.
    """

    problem: Problem | None
    variables: tuple[int | str, ...]


Formula = tuple[tuple[Term, ...], ...]  # per output: the terms to add, variables without a problem first


@lru_cache(maxsize=REMEMBERED)
def gradients(formula: Formula, variables: int) -> Formula:
    """Return the gradients of the dot product <u, formula> by each variable. ``variables`` is the number of variables.

    The variables of the gradients are the formula's variables, followed by the cotangents u of its outputs.

    >>> from convgrad.notation import problem
    >>> convolution = problem("FWD_D f32 NXC mb1ic1iw3oc1ow3kw3pw1")
    >>> first = gradients(((Term(convolution, (0, 1)),),), 2)
    >>> [[(term.problem.operator, term.variables) for term in terms] for terms in first]
    [[('ConvolutionBackwardData', (2, 1))], [('ConvolutionBackwardWeights', (0, 2))]]
    >>> [len(terms) for terms in gradients(first, 3)]
    [1, 1, 2]
    """
    terms_of: list[list[Term]] = [[] for _ in range(variables)]
    for output, terms in enumerate(formula):
        for term in terms:
            for place, variable in enumerate(term.variables):
                if isinstance(variable, int):
                    terms_of[variable].append(_derived(term, place, variables + output))
    return tuple([tuple(sorted(terms, key=lambda term: term.problem is not None)) for terms in terms_of])


def _derived(term: Term, place: int, cotangent: int) -> Term:
    """Return the derivative of a term by operand ``place``. ``cotangent`` is the number of the cotangent's variable."""
    if term.problem is None:
        return Term(None, (cotangent,))
    derived = derivative(term.problem, place)
    named: dict[int | str, int | str] = {COTANGENT: cotangent, ZEROS: ZEROS, **dict(enumerate(term.variables))}
    return Term(derived.problem, tuple(named[operand] for operand in derived.operands))
