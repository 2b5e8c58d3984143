"""A reference computation of per-sample squared norms and weighted sums on small data, with the specified bits."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np
from numpy.typing import NDArray

from convgrad.array_types import Array
from convgrad.float_environment import in_default_environment
from convgrad.spec.chains import tree
from convgrad.spec.geometry import Conv
from convgrad.spec.ordered import evaluate_in_order
from convgrad.spec.problem import Problem
from convgrad.spec.samples import CHAINS, cuts, is_product, of_one, scaled_operand, weighted


@in_default_environment
def norms2_in_order(problem: Problem, operands: Sequence[Array]) -> NDArray[np.float64]:
    """Return the squared norms of the gradients of a batch's samples. Operands are canonical and not f64.

    >>> from convgrad.notation import problem
    >>> x = np.arange(1, 7, dtype=np.float32).reshape(2, 1, 3)
    >>> norms2_in_order(problem("BWD_W f32 NXC mb2ic1iw3oc1ow3kw3pw1"), [x, x]).tolist()  # of 8, 14, 8; of 50, 77, 50
    [324.0, 10929.0]
    """
    sample_problem, norms = of_one(problem), np.zeros(problem.geometry.batch)
    for n in range(problem.geometry.batch):
        sample = [operand[n : n + 1] for operand in operands]
        if is_product(problem):
            norms[n] = _product(problem, *sample)
            continue
        gradient = evaluate_in_order(sample_problem, sample)
        by_taps = (*range(2, gradient.ndim), *reversed(range(min(gradient.ndim, 2))))
        for here in cuts(sample_problem):
            norms[n] += _norm2(gradient[here].transpose(by_taps))
    return norms


def _product(problem: Problem, *operands: Array) -> np.float64:
    """Return the squared norm of a sample's gradient if dst has one position, from norms of the groups' src and dst."""
    conv, total = problem.geometry, np.float64(0)
    assert isinstance(conv, Conv)
    src, dst = (operands[problem.operands.index(tensor)][0] for tensor in ("src", "dst"))
    places = ([k * a.dilation - a.pad_begin for k in range(a.kernel)] for a in conv.axes)
    existing = [i for i in product(*places) if all(0 <= at < a.src for at, a in zip(i, conv.axes, strict=True))]
    if not existing:
        return total
    src_at_taps = np.stack([src[:, *i] for i in existing])
    for x, dy in zip(np.split(src_at_taps, conv.groups, axis=1), np.split(dst, conv.groups), strict=True):
        total += _norm2(x) * _norm2(dy)
    return total


def _norm2(numbers: Array) -> np.float64:
    """Return the squared norm of numbers that are already in the specified order."""
    elements, chains = numbers.ravel().astype(np.float64), []
    for first in range(CHAINS):
        chain = np.float64(0)
        for element in elements[first::CHAINS]:
            chain += element * element
        chains.append(np.asarray(chain))
    return np.float64(tree(chains))


@in_default_environment
def weighted_in_order(
    problem: Problem, operands: Sequence[Array], scale: Sequence[float], old: Array | None = None
) -> Array:
    """Return the canonical weighted sum of the gradients of a batch's samples. Operands must not be f64.

    >>> from convgrad.notation import problem
    >>> x = np.arange(1, 7, dtype=np.float32).reshape(2, 1, 3)
    >>> weighted_in_order(problem("BWD_W f32 NXC mb2ic1iw3oc1ow3kw3pw1"), [x, x], [1, 0.5]).ravel().tolist()
    [33.0, 52.5, 33.0]
    """
    arrays, number = [operand.astype(np.float32) for operand in operands], scaled_operand(problem)
    with np.errstate(all="ignore"):
        arrays[number] = arrays[number] * np.asarray(scale, np.float32).reshape(-1, *[1] * (arrays[number].ndim - 1))
    return evaluate_in_order(weighted(problem), arrays, old)
