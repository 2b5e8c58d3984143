"""The choice of the algorithm for a given accuracy: the cheapest algorithm whose error bound is small enough."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from math import ceil

from convgrad.float_environment import in_default_environment
from convgrad.formats import BF16, F32
from convgrad.spec.geometry import Conv
from convgrad.spec.order import height_of
from convgrad.spec.problem import REMEMBERED, Problem, intern
from convgrad.spec.winograd.algorithms import algorithm_of, algorithms, as_forward, in_slices, why_not

PAIRED = 0.5  # the cost of a multiply-add of bf16 operands, which the direct sum may compute in pairs
DIRECT = 1.0  # the default of ``max_error``, which admits only the direct sum


@lru_cache(maxsize=REMEMBERED)
@in_default_environment
def with_algorithm(problem: Problem, max_error: float) -> Problem:
    """Return the problem with the cheapest algorithm whose error bound is at most ``max_error`` times the direct sum's.

    Both bounds are multiples of the same product of two norms. The factor is gamma_h for the direct sum in f32 and
    kappa gamma_H for an algorithm. For a weight gradient, the two norms are those of the src channel and the dst
    channel of a weight. In the other passes, the two norms are those of the positions that a tile meets and of the
    weights of the tile's channel.

    >>> from convgrad.notation import problem
    >>> one = problem("BWD_W f32 NXC mb8ic128ih28oc128oh28kh3ph1")
    >>> [with_algorithm(one, each).algorithm for each in (1, 8, 64)]
    ['', '2x2', '4x4']
    """
    conv = problem.geometry
    if max_error <= DIRECT or why_not_of(problem):
        return problem
    assert isinstance(conv, Conv)
    costs = _costs(problem, conv)
    admitted = [name for name in costs if not name or guarantee(problem, name) <= max_error]
    return intern(replace(problem, algorithm=min(admitted, key=lambda name: costs[name])))


def _costs(problem: Problem, conv: Conv) -> dict[str, float]:
    """Return the cost of each algorithm of a convolution in multiply-adds, by name; "" is the direct sum."""
    direct = conv.multiply_adds * (PAIRED if problem.operand_format is BF16 else 1.0)
    return {"": direct} | {
        name: algorithm.cost(conv, problem.solves_for) for name, algorithm in algorithms(conv).items()
    }


@in_default_environment
def why_direct(problem: Problem, max_error: float) -> str:
    """Return the reason why ``with_algorithm`` chooses the direct sum; "" if it chooses another algorithm.

    >>> from convgrad.notation import problem
    >>> one = problem("BWD_W f32 NXC mb8ic128ih28oc128oh28kh3ph1")
    >>> why_direct(one, 2)
    'the smallest max_error that admits tiles is 3.3'
    """
    if with_algorithm(problem, max_error).algorithm:
        return ""
    if reason := why_not_of(problem):
        return reason
    assert isinstance(problem.geometry, Conv)
    costs = _costs(problem, problem.geometry)
    cheaper = [guarantee(problem, name) for name, cost in costs.items() if name and cost < costs[""]]
    if cheaper:
        return f"the smallest max_error that admits tiles is {ceil(10 * min(cheaper)) / 10:g}"
    return "by the costs of the specification, the direct sum is cheaper"


@in_default_environment
def guarantee(problem: Problem, algorithm: str) -> float:
    """Return the smallest ``max_error`` that admits an algorithm: kappa H / h, to first order.

    H is the rounding depth of the algorithm, and h is that of the direct sum. For bf16, h is that of f32 operands, so
    that all formats choose the same algorithms.
    """
    direct = replace(problem, algorithm="", operand_format=F32)
    with_tiles = replace(problem, algorithm=algorithm)
    return kappa(with_tiles) * height_of(with_tiles) / height_of(direct)


def kappa(problem: Problem) -> float:
    """Return the constant kappa in the bound of a problem's algorithm; 1 for the direct sum."""
    if not problem.algorithm:
        return 1.0
    assert isinstance(problem.geometry, Conv)
    conv, solves_for = problem.geometry, problem.solves_for
    forward = conv if solves_for == "weights" else as_forward(conv, solves_for)
    return algorithm_of(conv, problem.algorithm).kappa(in_slices(forward), solves_for)


def why_not_of(problem: Problem) -> str:
    """Return the reason why the direct sum is a problem's only algorithm; "" if there are others."""
    if not isinstance(problem.geometry, Conv):
        return "only convolutions and their gradients have other algorithms"
    if problem.operand_format.accumulator is not F32:
        return f"only operands that are summed in f32 have other algorithms; these are {problem.operand_format}"
    if not problem.geometry.multiply_adds:
        return "there is nothing to sum"
    return why_not(problem.geometry)
