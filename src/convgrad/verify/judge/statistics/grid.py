"""The statistic of results that use fewer bits than their format has: they are on a coarser grid.

A right result is a multiple of its largest partial sum's last place, so cancellation alone can make low bits 0. This
last place gives the expected number of results with low bits of 0. If an exact value is nearer to a coarse grid than
this last place, right results may be on the grid. Such values, frequent in data with few bits, do not count.
"""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt

import numpy as np

from convgrad.array_types import F64Array
from convgrad.formats import Format, round_to
from convgrad.verify.judge.errors import Errors
from convgrad.verify.judge.model import last_place
from convgrad.verify.judge.names import ACCUMULATED, MULTIPLES, RESULT
from convgrad.verify.judge.statistics.finding import Finding
from convgrad.verify.verdict import Defect, Evidence

# Significand bits, and the format of this precision that results most likely passed through.
GRIDS = ((8, "bf16"), (11, "f16"), (16, ""), (20, ""))
MAXIMUM, ALL = 0.9, 0.99  # minimum shares of results on a grid that names require
SMALL = 2.0**-100
DIGITS = range(10)  # numbers of digits after the decimal point


def coarse_grids(errors: Errors) -> Finding:
    """Return the number of results on each coarser grid whose rounded exact values are not on the grid."""
    figures: dict[str, float] = {}
    evidence: list[Evidence] = []
    named: list[Defect] = []
    own = errors.fmt if errors.fmt.significand_bits <= errors.accumulator.significand_bits else errors.accumulator
    bits, chosen = own.significand_bits, errors.alone
    value, got = errors.value[chosen], errors.got[chosen]
    partial = np.minimum(errors.magnitude, 3 * np.sqrt(errors.kappa * (np.square(errors.value) + errors.squares)))
    largest = last_place(np.maximum(partial[chosen], np.abs(value)), own)  # subnormal numbers have fewer bits
    rounded = _rounded(value, bits)
    for grid, fmt in GRIDS:
        if grid >= bits:
            continue
        away = np.abs(value - _rounded(value, grid)) > largest  # right results of nearer values may be on the grid
        eligible = away & (_rounded(rounded, grid) != rounded) & (np.abs(got) >= SMALL)
        count = int(np.count_nonzero((_rounded(got, grid) == got) & eligible))
        expected = float(np.minimum(1, largest / _place(value, grid))[eligible].sum())
        threshold = 1.5 * expected + 6 * sqrt(errors.shared * expected) + 8 * errors.shared
        figures[f"on a grid of {grid} bits"] = count
        if count > threshold:
            evidence.append(Evidence(f"results on a grid of {grid} bits", count, threshold))
            every = np.count_nonzero(eligible)
            if fmt and count > MAXIMUM * every and not named:
                was = np.count_nonzero((_rounded(value, grid) == got) & eligible) > MAXIMUM * every
                if not was and (step := multiples(got, value, errors.fmt)):
                    named.append(Defect(MULTIPLES, f"of {step:g}"))
                elif was or count > ALL * every:  # most sums of two coarse partial sums are on the grid, too
                    name = (RESULT if was else ACCUMULATED).format(fmt)
                    named.append(Defect(name, f"{count} of {every} lie on a grid of {grid} bits{_or(fmt)}"))
    return Finding(figures, tuple(evidence), tuple(named))


def multiples(got: F64Array, value: F64Array, fmt: Format) -> float:
    """Return the step if results are the exact values rounded to multiples of a step, else 0.

    >>> from convgrad.formats import F32
    >>> values = np.sqrt(np.array([2.0, 3.0, 5.0, 7.0]))
    >>> multiples(np.rint(values), values, F32), multiples(values.astype(np.float32), values, F32)
    (1.0, 0.0)
    """
    live = got[got != 0]
    if not live.size or not np.isfinite(live).all():
        return 0.0
    fraction, exponent = np.frexp(live)
    whole = np.ldexp(fraction, 53).astype(np.int64)
    lowest = np.ldexp((whole & -whole).astype(np.float64), exponent - 53).min()
    for step in (float(lowest), *(10.0**-digits for digits in DIGITS)):
        coarse = step > last_place(value, fmt)
        if coarse.mean() > MAXIMUM and (to_multiples(step, fmt)(value) == got).mean() > MAXIMUM:
            return step
    return 0.0


def to_multiples(step: float, fmt: Format) -> Callable[[F64Array], F64Array]:
    """Return a function that rounds to multiples of ``step``, and then to a format."""
    return lambda values: round_to(np.rint(values / step) * step, fmt)


def _or(fmt: str) -> str:
    return ", as those of tf32 do" if fmt == "f16" else ""


def _place(values: F64Array, bits: int) -> F64Array:
    place: F64Array = np.ldexp(1.0, np.frexp(values)[1] - bits)
    return place


def _rounded(values: F64Array, bits: int) -> F64Array:
    place = _place(values, bits)
    rounded: F64Array = np.rint(values / place) * place
    return rounded
