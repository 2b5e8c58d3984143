"""Recognition of rounded partial sums: their format, their approximate number, and whether a running sum is rounded.

Suppose that K partial sums of n/K terms are each rounded once, to a format of unit roundoff v. The mean square error of
the result is

    0.17 v^2 (alpha S^2 + beta (Q - S^2/n))

with alpha = 1/K and beta = 1 - 1/K. Alpha and beta are fitted to the squares of all errors. If the partial sums are
added to a running sum that is rounded after each addition, alpha is about 1/2 + K/3.
"""

from __future__ import annotations

import numpy as np

from convgrad.array_types import F64Array
from convgrad.formats import BF16, F16, F64, Format
from convgrad.verify.judge.errors import Errors
from convgrad.verify.judge.model import last_place
from convgrad.verify.judge.names import ACCUMULATED, PARTIALS
from convgrad.verify.verdict import Defect

MEAN_SQUARE = 0.17  # mean square of a rounding error, divided by (unit roundoff times the number)^2
FEWEST, MANY = 64, 10_000  # numbers of elements that a fit needs, and that a number of sums needs in a narrow result
ROUNDS = 6
RUNNING, TENS, UNKNOWN = "a running sum", "tens of them", "too few elements to show their number"
FULL = 8.0  # alpha of a running sum of some 20 partial sums; if alpha is larger, every addition was rounded
NEXT_TO_NONE, SPARED = 0.1, 0.25  # an error below this share of the expected is almost 0; limit of such elements
PRECISION = 0.25  # required precision of alpha and beta, as a share of a rounding's mean square
UNSURE = ", estimated from their sizes"
SHARP = 0.1  # largest relative difference between the expected and the observed size of errors
QUANTILES = (-1.47, -0.79, -0.37, 0.0, 0.37, 0.79, 1.47)  # equally likely values of a standard normal distribution
CONSPIRING = 4.0  # if kappa is larger, partial sums are not typical of exchangeable terms


def rounded_partials(errors: Errors) -> Defect | None:
    """Return the defect of rounded partial sums if the errors show one, else None."""
    chosen = errors.alone
    if np.count_nonzero(chosen) < FEWEST or errors.kappa > CONSPIRING:
        return None
    square = np.square(errors.got - errors.value)[chosen]
    if errors.narrow:
        square = square - np.square(last_place(errors.got, errors.fmt)[chosen]) / 12  # without the last rounding
    of_total, of_spread = np.square(errors.value[chosen]), errors.spread[chosen]
    alpha, beta = _fit(square, of_total, of_spread)
    above = far_above(errors)
    if not (errors.narrow or above) and _spared(square, alpha * of_total + beta * of_spread):
        return None
    for fmt in (BF16, F16):
        if fmt.significand_bits >= errors.accumulator.significand_bits or not _is_measurable(errors, fmt):
            continue
        scale = MEAN_SQUARE * fmt.unit**2
        if errors.narrow and fmt is BF16:
            terms, many = float(np.median(errors.terms[chosen])), bool(np.count_nonzero(chosen) > MANY)
            defect = None if above else _of_narrow(alpha / scale, beta / scale, terms, many)
        else:
            words = _once_of_large(errors, square, of_total, fmt) if above else _words(alpha / scale, beta / scale)
            defect = Defect(PARTIALS.format(fmt), words) if words else None
        if defect:
            return defect
    return None


def _is_measurable(errors: Errors, fmt: Format) -> bool:
    """Return whether rounding errors of a format are visible above those of a narrow result's last rounding."""
    count = np.count_nonzero(errors.alone)
    return not errors.narrow or bool((errors.fmt.unit / fmt.unit) ** 2 < PRECISION * np.sqrt(count))


def _of_narrow(alpha: float, beta: float, terms: float, many: bool) -> Defect | None:
    """Return the defect of sums in bf16, or None if one chain in f16 fits as well.

    The grid of results, which would separate the two, is lost in the last rounding. A chain of n terms whose additions
    are rounded to f16 has alpha n/3 and beta n/6 in units of f16 errors. In units of bf16 errors, alpha and beta are
    64 times smaller.
    """
    words, chain = _words(alpha, beta), 0.25 * alpha < beta < 1.2 * alpha
    in_f16 = (alpha + beta) * (BF16.unit / F16.unit) ** 2 / (terms / 2)
    if chain and 1 / 3 < in_f16 < 3:
        return None
    if chain and alpha >= FULL:  # about n/3 for n terms; more if the result belongs to other operands
        return Defect(ACCUMULATED.format(BF16), RUNNING) if in_f16 > 3 and alpha < terms else None
    if not words:
        return None
    blocks = f", or {ACCUMULATED.format(F16)} by blocks" if in_f16 < 1 else ""
    return Defect(PARTIALS.format(BF16), f"{words if many else UNKNOWN}{blocks}")


def far_above(errors: Errors) -> bool:
    """Return whether values are far larger than the variation of their partial sums, as in positive data."""
    of_total, of_spread = np.square(errors.value[errors.alone]), errors.spread[errors.alone]
    return bool(np.median(of_total / np.maximum(of_total + of_spread, 1e-300)) > 0.95)


def _fit(square: F64Array, of_total: F64Array, of_spread: F64Array) -> tuple[float, float]:
    """Return alpha and beta by least squares, repeatedly weighted by the inverse of the fitted squared errors."""
    weight, fitted = np.ones_like(square), np.zeros(2)
    for _ in range(ROUNDS):
        columns = np.stack([of_total, of_spread], 1) * weight[:, None]
        fitted = np.maximum(np.linalg.lstsq(columns, square * weight, rcond=None)[0], 0)
        expected = fitted[0] * of_total + fitted[1] * of_spread
        if not expected.any():
            break
        weight = 1 / np.maximum(expected, 1e-3 * float(expected.mean()))
    return float(fitted[0]), float(fitted[1])


def _spared(square: F64Array, expected: F64Array) -> bool:
    """Return whether so many elements have almost no error that a defect must affect only the other elements."""
    return bool(np.mean(square < NEXT_TO_NONE**2 * expected) > SPARED)


def _words(alpha: float, beta: float) -> str:
    if abs(alpha + beta - 1) < 0.3 and beta > 0.2:  # if beta is 0, the result itself was rounded
        return _about((alpha + beta) / max(alpha, 1e-3))
    if 0.6 < alpha < FULL and 0.25 < beta / alpha < 1.2:
        return RUNNING
    return ""


def _once_of_large(errors: Errors, square: F64Array, of_total: F64Array, fmt: Format) -> str:
    """Return the number of partial sums in words, for values far above their spread, where only alpha is visible.

    K partial sums of p bits have alpha = 4^-p / K, and their total has p + log2 K bits. Alpha and the number of bits
    together determine p.
    """
    alpha = float(square.mean() / of_total.mean()) / MEAN_SQUARE
    if errors.narrow or alpha <= 0:
        return ""
    significand = np.abs(np.frexp(errors.got[errors.alone])[0]) * 2.0**F64.significand_bits
    whole = significand.astype(np.int64)
    used = F64.significand_bits - np.log2((whole & -whole).astype(np.float64))
    bits, number = -np.log2(alpha) - float(np.median(used)), 4.0**-fmt.significand_bits / alpha
    if abs(bits - fmt.significand_bits) >= 1.5 or not 1.3 < number < np.median(errors.terms):
        return ""
    parts = next((parts for parts in (2, 4, 8) if _as_equal_parts(errors, square, fmt, parts)), 0)
    return _about(parts) if parts else _about(number) + UNSURE


def _as_equal_parts(errors: Errors, square: F64Array, fmt: Format, parts: int) -> bool:
    """Return whether errors are as large as the rounding errors of this number of about equal partial sums."""
    chosen = errors.alone
    value, varied = np.abs(errors.value[chosen]) / parts, np.sqrt(errors.spread[chosen] * (1 - 1 / parts) / parts)
    places = [float(np.square(last_place(value + quantile * varied, fmt)).mean()) for quantile in QUANTILES]
    return abs(12 * float(square.mean()) / (parts * float(np.mean(places))) - 1) < SHARP


# Estimates of K vary by a factor of 2, and more for large K, so verdicts give K in words.
_DETECTED: tuple[tuple[float, str], ...] = (
    (3.0, "about 2 of them"),
    (5.5, "about 4 of them"),
    (14.0, "about 8 of them"),
)


def _about(number: float) -> str:
    return next((words for maximum, words in _DETECTED if number < maximum), TENS)
