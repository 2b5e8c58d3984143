"""Recognition of one running sum in a narrow format: the sum is repeated term by term, and its bits are compared.

An element with these bits gives as many bits of evidence as its distance from the right result needs. A few elements
are therefore enough, although statistics of errors need many.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from convgrad.array_types import Array, F64Array
from convgrad.formats import BF16, F16, Format, round_to
from convgrad.spec.geometry import Channels
from convgrad.spec.order import order_of
from convgrad.spec.problem import Problem, canonical_shape
from convgrad.verify.diagnose.fit import MAXIMUM
from convgrad.verify.diagnose.sums import Scene, Where
from convgrad.verify.judge.model import last_place
from convgrad.verify.judge.names import ACCUMULATED
from convgrad.verify.rows import rows_of
from convgrad.verify.terms import terms_of
from convgrad.verify.verdict import Defect

LONGEST = 2**14  # maximum number of terms of a sum that is repeated
SAMPLED = 32  # numbers of wrong elements, and of right elements, at which sums are repeated
AGREED = 0.8  # minimum share of the elements with the same bits
# Bits of evidence for one of at most 16 sums, so that chance gives this name to fewer than 1 in 2^15 wrong results.
ENOUGH = 19.0
# The same for a sum that stops growing at half of its value, in the format of the operands or of the result. Few other
# defects give this result, and if all terms are equal, as in a test with ones, more elements add no evidence.
STUCK = 7.0


def running(scene: Scene) -> Iterator[Defect]:
    """Yield the defect of one running sum in bf16 or f16, if nearly all elements have its bits."""
    others = np.setdiff1d(scene.many, scene.wrong)
    where = np.concatenate([scene.wrong[:SAMPLED], others[:SAMPLED]])
    out, got, right = scene.problem.output_format, scene.actual[where], scene.exact.value.ravel()[where]
    if not np.isfinite(got).all() or not np.isfinite(right).all():
        return
    place = last_place(got, out)
    bits = np.log2(1 + np.abs(got - right) / (np.maximum(place, 1.0) if scene.reference.integral else place))
    bits = np.where(np.arange(where.size) < scene.wrong.size, np.minimum(bits, MAXIMUM), 0.0)
    for fmt in (BF16, F16):
        if fmt.significand_bits >= scene.accumulator.significand_bits:
            continue
        for words, total in running_sums(scene.problem, scene.operands, scene.old, where, fmt):
            same = round_to(total, out) == got
            stuck = fmt in (scene.problem.operand_format, out) and bool((np.abs(total) <= np.abs(right) / 2).all())
            if same.mean() >= AGREED and bits[same].sum() >= (STUCK if stuck else ENOUGH):
                shown = f"the same bits at {np.count_nonzero(same)} of {same.size} elements"
                yield Defect(ACCUMULATED.format(fmt), f"one running sum over {words}, {shown}")
                return


def running_sums(
    problem: Problem, operands: Sequence[Array], old: Array | None, where: Where, fmt: Format
) -> Iterator[tuple[str, F64Array]]:
    """Yield orders in words, and the running sums in a format of the elements at these flat indices.

    Loops run from first to last. Products are exact, as in fused multiply-adds, or rounded. Bias and old value come
    first or last.
    """
    shape = canonical_shape(problem.geometry, problem.output)
    at = [tuple(int(i) for i in index) for index in zip(*np.unravel_index(where, shape), strict=True)]
    if not at or problem.solves_for == "bias_add" or order_of(problem).terms > LONGEST:
        return
    if isinstance(problem.geometry, Channels):
        products = np.stack([terms_of(problem, operands, index).products for index in at])
    else:
        x, y = rows_of(problem, operands, at)
        products = x * y
    outer, inner = ("images", "positions") if problem.solves_for in ("weights", "bias") else ("channels", "taps")
    orders = {f"{outer}, then {inner}": products, f"{inner}, then {outer}": np.moveaxis(products, 1, -1)}
    flat = np.concatenate([ordered.reshape(len(at), -1) for ordered in orders.values()])
    rows = np.concatenate([flat, round_to(flat, fmt)])
    added = np.array([sum(terms_of(problem, operands, index, old).added) for index in at])
    starts = np.tile(round_to(added, fmt), len(rows) // len(at))
    sums = [_running(rows, starts, fmt)]
    if added.any():
        sums.append(round_to(_running(rows, np.zeros(len(rows)), fmt) + starts, fmt))
    for totals in sums:
        yield from zip([*orders, *orders], totals.reshape(-1, len(at)), strict=True)


def _running(rows: F64Array, starts: F64Array, fmt: Format) -> F64Array:
    total = starts
    for at in range(rows.shape[1]):
        total = round_to(total + rows[:, at], fmt)
    return total
