"""Defects that are recognised from the wrong elements alone: not written, not finite, or without terms."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from convgrad.formats import F16
from convgrad.verify.diagnose.fit import ENOUGH
from convgrad.verify.diagnose.sums import Scene
from convgrad.verify.verdict import Defect

HUGE = 2.0**64  # uninitialised memory may exceed the magnitude of a sum by this factor; wrong sums rarely do


def no_terms(scene: Scene) -> Iterator[Defect]:
    """Yield a defect if only elements without terms are wrong, such as rows that no tap reaches."""
    empty, wrong = int(np.count_nonzero(scene.exact.terms == 0)), scene.wrong.size
    if scene.exact.terms[scene.beyond].any():
        return
    if (
        wrong < empty and wrong * np.log2(scene.got.size / empty) < ENOUGH
    ):  # a few wrong elements may have no terms by chance
        return
    if scene.problem.solves_for == "src":
        yield Defect("remainder rows written", f"{wrong} of {empty} elements that no tap reaches are not 0")
    else:
        yield Defect("uninitialised output", f"{wrong} of {empty} elements that have no terms are not 0")


def left_alone(scene: Scene) -> Iterator[Defect]:
    """Yield a defect if all wrong elements are 0 or have their old contents."""
    got = scene.actual[scene.wrong]
    before = None if scene.old is None else np.ascontiguousarray(scene.old, np.float64).ravel()[scene.wrong]
    if scene.wrong.size < 2:
        return
    if before is not None and np.array_equal(got, before, equal_nan=True) and np.ptp(before):
        yield Defect("old contents left", f"{got.size} elements were not written")
    elif not got.any():
        yield Defect("elements left 0", f"{got.size} elements were not written")


def not_finite(scene: Scene) -> Iterator[Defect]:
    """Yield a defect if wrong elements are NaN, infinite or huge, but their exact sums are finite."""
    got = scene.actual[scene.wrong]
    exact, magnitude = scene.exact.value.ravel()[scene.wrong], scene.exact.magnitude.ravel()[scene.wrong]
    if not np.isfinite(exact).all():
        return
    strange = ~np.isfinite(got) | (np.abs(got) > HUGE * np.maximum(magnitude, 1.0))
    small = magnitude < F16.largest / 2  # no partial sum of these overflows in any format
    how_many = f"{np.count_nonzero(strange)} elements are NaN or huge"
    if not all(np.isfinite(operand.astype(np.float64)).all() for operand in scene.operands):
        if strange.all():
            yield Defect(
                "NaN spread", f"{how_many}, but their terms are finite: NaN or infinity is elsewhere in the operands"
            )
    elif np.isinf(got).all() and (np.sign(got) == np.sign(exact)).all() and magnitude.min() > 1e3:
        yield Defect("overflow", f"{got.size} elements are infinite whose sums are finite")
    elif strange.all() or (strange & small).any():
        yield Defect("uninitialised output", f"{how_many}, but all operands are finite")


MARKS: tuple[Callable[[Scene], Iterator[Defect]], ...] = (no_terms, left_alone, not_finite)


def marked(scene: Scene) -> list[Defect]:
    """Return the defects of the first function of ``MARKS`` that recognises one."""
    return next((defects for mark in MARKS if (defects := list(mark(scene)))), [])
