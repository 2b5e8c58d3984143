"""Sums kept in a narrow format: told by how errors grow with the sum and with what it was added up from.

Rounding a partial sum s to a format of unit u errs by about sqrt(0.17) u |s| (the mean over a uniform position in half
a unit, of sizes spread evenly over a binade). Where K partial sums of exchangeable terms are each rounded once, with S
the sum, Q the sum of the squared products and n their number,

    E e^2 = 0.17 u^2 (a S^2 + b (Q - S^2/n)),   a = 1/K, b = 1 - 1/K;

a running sum of K partial sums that is rounded each time has a about K/3 and b about K/6. Given the partial sums,
|e| <= u sum |s| has e^2 at most K/0.17 times its mean, and normal partial sums of N elements reach 2 ln N times theirs.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from convgrad.formats import BF16, F16
from convgrad.verify.diagnose.sums import F64Array, Scene
from convgrad.verify.verdict import Defect

_ROUNDING = 0.17
_GRID = 4.0  # how coarse the format must be beside integers for their rounding to look like that of other numbers
_LEAST = 32  # elements, to fit two numbers and see that their scatter is that of roundings


def partial_sums(scene: Scene) -> Iterator[Defect]:
    """Yield the format that partial sums were rounded to, and about how many there were."""
    one, actual = scene.reference, scene.actual
    value, squares, terms = one.value.ravel(), one.squares.ravel(), np.maximum(one.nonzero.ravel(), 1)
    usable = np.isfinite(actual) & np.isfinite(value) & (one.magnitude.ravel() > 0)
    if np.count_nonzero(usable) < _LEAST or not scene.beyond.any():
        return
    actual, value, squares, terms = actual[usable], value[usable], squares[usable], terms[usable]
    total, errors = value**2, (actual - value) ** 2
    spread = np.maximum(squares - total / terms, 0)
    mean = float(np.mean(total + spread))
    if not (0 < mean < np.inf and np.isfinite(errors / mean).all()):
        return
    total, spread, errors = (array / mean for array in (total, spread, errors))
    wide = scene.problem.output_format.significand_bits >= scene.accumulator.significand_bits
    own = 0.0 if wide else _ROUNDING * scene.problem.output_format.unit**2
    a, b = _fitted(errors, total, spread, own)
    model = a * total + b * spread + own * total
    share = errors / np.maximum(model, 1e-300)
    if not (share.max() <= 4 / _ROUNDING * np.log(value.size) and np.median(share) > 0.1):
        return
    narrow = np.median(total / np.maximum(total + spread, 1e-300)) > 0.95  # sums far above their spread: only a is seen
    most = float(np.median(terms))
    size = float(np.sqrt(mean * np.median(total + spread)))
    for read in (_once, _running):
        for fmt in (BF16, F16):
            coarse = not one.integral or size * fmt.unit > _GRID  # else integers fit, and are not rounded
            if fmt.significand_bits < scene.accumulator.significand_bits and coarse:
                words = read(a / (_ROUNDING * fmt.unit**2), b / (_ROUNDING * fmt.unit**2), most, bool(narrow))
                if words:
                    yield Defect(f"partial sums rounded to {fmt}", words)
                    return


def _once(alpha: float, beta: float, most: float, narrow: bool) -> str:
    """Return how many partial sums were rounded once each, in words; "" where that is not what happened."""
    if narrow:
        return f"about {_about(1 / alpha)}, if each was rounded once" if 1 / most < alpha < 1.2 else ""
    counted = (alpha + beta) / max(alpha, 1e-3)
    return f"about {_about(counted)}" if abs(alpha + beta - 1) < 0.3 and beta > 0.25 and counted <= 2 * most else ""


def _running(alpha: float, beta: float, most: float, narrow: bool) -> str:
    """Return of how many partial sums a running sum was rounded each time, in words; "" where it was not."""
    likely = 0.6 < alpha <= most / 2 and 0.25 < beta / alpha < 1.2 and not narrow
    return f"a running sum of about {_about(3 * alpha)}" if likely else ""


def _fitted(errors: F64Array, total: F64Array, spread: F64Array, own: float) -> tuple[float, float]:
    """Return a and b of errors = a total + b spread, neither negative, each weighed by its own variance."""
    weights, rest = np.ones_like(errors), errors - own * total
    a = b = 0.0
    for _ in range(6):
        rows = np.stack([total, spread], 1) * weights[:, None]
        a, b = (max(float(x), 0.0) for x in np.linalg.lstsq(rows, rest * weights, rcond=None)[0])
        model = (a + own) * total + b * spread
        if not model.any():
            break
        weights = 1 / np.maximum(model, 1e-3 * model.mean())
    return a, b


def _about(count: float) -> str:
    return f"{count:.0f}" if count < 12 else "tens" if count < 150 else "hundreds"
