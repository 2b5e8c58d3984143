"""The choice of the algorithm (variant) for a given accuracy: the one of lowest cost that keeps the accuracy."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from convgrad.formats import F32
from convgrad.spec.geometry import Conv
from convgrad.spec.order import height_of
from convgrad.spec.problem import REMEMBERED, Problem, only
from convgrad.spec.toom_cook import AXES, VARIANTS, why_not

DIRECT = 1.0  # the default of ``max_error``: the direct sum


@lru_cache(maxsize=REMEMBERED)
def in_variant(problem: Problem, max_error: float) -> Problem:
    """Return the problem in the cheapest variant whose error bound is at most ``max_error`` times the direct sum's.

    Both bounds are multiples of a product of two norms: gamma_h times it for the direct sum, kappa gamma_H times it for
    a variant. For a weight gradient, the norms are of the two channels of a weight. Else they are of the positions that
    a tile meets and of the weights of its channel.

    >>> from convgrad.notation import problem
    >>> one = problem("BWD_W f32 NXC mb8ic128ih28oc128oh28kh3ph1")
    >>> [in_variant(one, each).variant for each in (1, 8, 64)]
    ['', '2x2', '4x4']
    """
    conv = problem.geometry
    if max_error <= DIRECT or why_not_of(problem):
        return problem
    assert isinstance(conv, Conv)
    costs = {"": float(conv.multiply_adds)}
    costs |= {
        name: one.cost(conv, problem.solves_for)
        for name, one in VARIANTS.items()
        if guarantee(problem, name) <= max_error
    }
    return only(replace(problem, variant=min(costs, key=lambda name: costs[name])))


def guarantee(problem: Problem, variant: str) -> float:
    """Return the smallest ``max_error`` that admits a variant: kappa H / h, to first order."""
    direct = replace(problem, variant="")
    of_variant = replace(problem, variant=variant)
    return kappa(of_variant) * height_of(of_variant) / height_of(direct)


def kappa(problem: Problem) -> float:
    """Return the constant kappa in the bound of a problem's variant; 1 for the direct sum."""
    return VARIANTS[problem.variant].way(problem.solves_for).kappa ** AXES if problem.variant else 1.0


def why_not_of(problem: Problem) -> str:
    """Return why a problem has no variant except the direct sum; "" if it has one."""
    if not isinstance(problem.geometry, Conv):
        return "convolutions and their gradients have variants"
    if problem.operand_format is not F32:
        return f"operands in f32 have variants; these are {problem.operand_format}"
    if not problem.geometry.multiply_adds:
        return "there is nothing to sum"
    return why_not(problem.geometry)
