"""A check whether the results of two implementations differ by no more than a proved bound.

If they differ by more, exact results for one channel show which implementation is wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from convgrad.array_types import Array
from convgrad.cli.bench.work import Work
from convgrad.spec import exact_result
from convgrad.spec.bound import error_bound
from convgrad.spec.geometry import Conv
from convgrad.spec.operators import Tensor
from convgrad.spec.order import last_additions, order_of
from convgrad.spec.problem import Problem
from convgrad.verify.compare import compare
from convgrad.verify.verdict import Verdict


@dataclass(frozen=True)
class Agreement:
    """The largest difference of two results, as a share of the allowed difference, and its index in canonical axes."""

    share: float
    worst: tuple[int, ...]

    @property
    def ok(self) -> bool:
        """Whether both results can be correct."""
        return self.share <= 1


def terms(problem: Problem) -> int:
    """Return the number of additions per result, which is the largest rounding depth of any order of summation."""
    return order_of(problem).terms + last_additions(problem)


def agree(first: Array, second: Array, magnitude: Array, problem: Problem) -> Agreement:
    """Compare two results in canonical axes. ``magnitude`` is sum |x||y| as convgrad computes it.

    Each result may have an error of gamma_h sum |x||y|, where h is the number of terms, and the error of its output's
    rounding. The computed magnitude is first increased by its own largest rounding error.
    """
    accumulator, fmt, h = problem.operand_format.accumulator, problem.output_format, terms(problem)
    with np.errstate(all="ignore"):
        a, b, total = (values.astype(np.float64) for values in (first, second, magnitude))
        total *= 1 + 2 * h * accumulator.unit
        sums = error_bound(h, h, total, accumulator)
        roundings = np.maximum(fmt.unit * (np.maximum(np.abs(a), np.abs(b)) + sums), fmt.tiny)
        share = np.nan_to_num(np.abs(a - b) / (2 * (sums + roundings)), nan=np.inf)
        share[(a == b) | (np.isnan(a) & np.isnan(b))] = 0
    if share.size == 0:
        return Agreement(0.0, ())
    worst = np.unravel_index(int(np.argmax(share)), share.shape)
    return Agreement(float(share[worst]), tuple(map(int, worst)))


def judge(work: Work, result: Array, place: Sequence[int]) -> Verdict:
    """Return the verdict on one channel of a canonical result, from a comparison with the exact result.

    The channel is the slice with the first two indices of ``place``: (image, channel), or for weights (dst channel, src
    channel within its group).
    """
    problem, operands = _channel(work, *place[:2])
    answer = exact_result.evaluate(problem, operands)
    return compare(result[_slice_at(place[0]), _slice_at(place[1])], answer, problem, terms(problem))


def middle(work: Work) -> tuple[int, ...]:
    """Return the canonical index of the middle element of the result."""
    return tuple(extent // 2 for extent in work.canonical(np.empty(work.problem.output_shape, np.bool_)).shape)


def _slice_at(index: int) -> slice:
    return slice(index, index + 1)


def _channel(work: Work, first: int, second: int) -> tuple[Problem, list[Array]]:
    """Return the problem that computes one channel of the result, and its operands. This problem has one group."""
    conv, solves_for = work.conv, work.problem.solves_for
    inputs, outputs = conv.src_channels // conv.groups, conv.dst_channels // conv.groups
    group = {"dst": second // outputs, "src": second // inputs, "weights": first // outputs}[solves_for]
    sources, destinations = slice(group * inputs, (group + 1) * inputs), slice(group * outputs, (group + 1) * outputs)
    within = slice(0, inputs)
    batch, image = conv.batch, slice(None)
    if solves_for == "weights":
        sources, destinations, within = _slice_at(group * inputs + second), _slice_at(first), _slice_at(second)
    else:
        batch, image = 1, _slice_at(first)
    if solves_for == "dst":
        destinations = _slice_at(second)
    if solves_for == "src":
        sources, within = _slice_at(second), _slice_at(second % inputs)
    parts: dict[Tensor, tuple[slice, ...]] = {
        "src": (image, sources),
        "dst": (image, destinations),
        "weights": (destinations, within),
        "bias": (_slice_at(second),),
    }
    operands = [operand[parts[t]] for t, operand in zip(work.problem.operands, work.operands, strict=True)]
    geometry = Conv(batch, 1, _length(sources), _length(destinations), conv.axes)
    return replace(work.problem, geometry=geometry), operands


def _length(part: slice) -> int:
    return int(part.stop - part.start)
