"""The errors of a result and the variance that the declared arithmetic gives them: the input of all statistics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from convgrad.array_types import Array, F64Array
from convgrad.cached import cached_property
from convgrad.formats import F64, Format
from convgrad.spec.layouts import from_canonical
from convgrad.spec.order import last_additions
from convgrad.spec.problem import Problem
from convgrad.verify.declared import DeclaredResult
from convgrad.verify.judge.alone import alone
from convgrad.verify.judge.conspire import conspiracies
from convgrad.verify.judge.lost import Curve, curve
from convgrad.verify.judge.model import ROUNDING, cell, last_place, partial_sums, tree
from convgrad.verify.judge.sample import Sample, sampled, take
from convgrad.verify.judge.shared import repeats, shared
from convgrad.verify.reference import Reference
from convgrad.verify.terms import Index

Mask = NDArray[np.bool_]

LOST = 1.5  # multiple of the sampled loss that counts as deviation; as bias, twice the loss is allowed
GRAIN = 0.25  # largest last place of a sum, as a share of a term; beyond, additions lose whole terms


@dataclass(frozen=True, eq=False)
class Errors:
    """The errors of a result, as canonical arrays; entries of elements that are not ``judged`` have no meaning.

    ``judged`` is a mask of the elements with finite values, nonzero terms, and sums that may round. ``value`` is the
    exact sum, and ``plain`` the exact sum without the old contents. ``error`` is got - value. If the output is narrower
    than the accumulator, ``error`` is the smallest error before the last rounding that explains the result, mostly 0.
    ``doubt`` bounds the error that all elements may have in common. ``variance`` is the variance of ``error`` by the
    model. ``z`` is ``error`` divided by its standard deviation. ``kappas`` has the kappa of each sampled element (see
    ``conspire.py``), and ``kappa`` is the value that all elements use.
    """

    problem: Problem
    operands: Sequence[Array]
    accumulator: Format
    got: F64Array
    value: F64Array
    plain: F64Array
    magnitude: F64Array
    squares: F64Array
    terms: F64Array
    doubt: F64Array
    judged: Mask
    error: F64Array
    variance: F64Array
    sample: Sample
    kappas: F64Array
    kappa: float
    curve: Curve
    origin: Index  # index of the first element, if the arrays are a part of a result

    @property
    def fmt(self) -> Format:
        """The result's format."""
        return self.problem.output_format

    @property
    def narrow(self) -> bool:
        """Whether the result was rounded from a wider accumulator."""
        return self.fmt.significand_bits < self.accumulator.significand_bits

    @cached_property
    def deviation(self) -> F64Array:
        """The standard deviation of each error: the square root of ``variance``."""
        return np.sqrt(self.variance)

    @cached_property
    def z(self) -> F64Array:
        """The errors divided by their standard deviations; 0 for elements that are not judged."""
        return np.where(self.judged, self.error / self.deviation, 0.0)

    @cached_property
    def alone(self) -> Mask:
        """A mask of the judged elements; one element of each set of equal significands is kept."""
        return alone(self.value, self.judged)

    @cached_property
    def shared(self) -> float:
        """The mean number of elements with one common error, because their sums share products; at least 1."""
        chosen = self.alone
        leaning = float(np.square(self.plain[chosen] / self.magnitude[chosen]).mean()) if chosen.any() else 0.0
        return shared(self.problem, self.operands, float(self.terms[chosen].sum()), min(leaning, 1.0), self.bits_seen)

    @property
    def bits_seen(self) -> int:
        """The number of a product's significand bits that sums' last places show, for the median sampled product."""
        places = tuple(np.transpose(self.sample.at))
        grid = np.sqrt(12 * self.variance[places] / self.terms[places])
        steps = np.abs(self.sample.products.reshape(grid.size, -1)) / grid[:, None]
        if not steps.any():  # the sums have only bias or old contents
            return F64.significand_bits
        return int(np.clip(np.ceil(np.log2(np.median(steps[steps > 0]))), 1, F64.significand_bits))

    @property
    def spread(self) -> F64Array:
        """Q - S^2/n, the scale of the variance of partial sums."""
        return np.maximum(self.squares - np.square(self.value) / self.terms, 0)

    @cached_property
    def observed(self) -> float:
        """The variance of z sign(value), which is the ratio of the observed variance to the model's."""
        towards = (self.z * np.sign(self.value))[self.alone]
        return max(float(towards.var()), 1e-30) if towards.size else 1.0

    @cached_property
    def allowance(self) -> F64Array:
        """The bias that rounding to nearest may cause, in standard deviations.

        The bias is the larger of twice the sampled loss and 2 V / rms(product), the loss of a flat density of products.
        """
        observed = self.observed * self.variance
        lost = 2 * self.curve.of(2 * np.sqrt(12 * observed / self.terms), self.magnitude, self.terms)
        flat = 2 * observed / rms_term(self.squares, self.terms)
        allowed: F64Array = (np.maximum(lost, flat) + self.doubt) / self.deviation
        return allowed

    def only(self, mask: Mask) -> Errors:
        """Return a copy in which only those judged elements are judged that a mask selects."""
        return replace(self, judged=self.judged & mask)

    def against(self, other: F64Array) -> Errors:
        """Return the errors of the same result relative to ``other`` instead of the exact values."""
        return replace(self, error=np.where(self.judged, _error(self.got, other, self.fmt, self.narrow), 0.0))

    def own_share(self, at: Sequence[Index]) -> F64Array:
        """Return the ratios of elements' own kappas to ``kappa``, at least 1, to test suspicious elements again."""
        return np.maximum(_kappas(take(self.problem, self.operands, at).products) / self.kappa, 1.0)

    def place(self, index: Index) -> str:
        """Return an element's place in the caller's layout, in words."""
        whole = [at + first for at, first in zip(index, self.origin, strict=True)]
        return f"element {from_canonical(whole, self.problem.layouts[-1])}"


def rms_term(squares: F64Array, terms: F64Array) -> F64Array:
    """Return the root mean square of each element's products."""
    size: F64Array = np.sqrt(np.maximum(squares / terms, np.finfo(np.float64).tiny))
    return size


class Moments(NamedTuple):
    """The exact sum of each element, the sum of its squared products, and the number of its nonzero products."""

    value: F64Array
    squares: F64Array
    terms: F64Array


def errors_of(result: DeclaredResult, reference: Reference, origin: Sequence[int] = ()) -> Errors | None:
    """Return the errors of a result; None if all elements are exact, not finite, or sums of zeros.

    Squares of large f64 terms may overflow: elements with such terms are not judged.
    """
    problem, operands, old = result.problem, result.operands, result.old
    accumulator = result.declared.accumulation
    actual = result.got.astype(np.float64)
    exact = reference.integral & (reference.magnitude <= 2.0**accumulator.significand_bits)
    finite = np.isfinite(actual) & np.isfinite(reference.value) & np.isfinite(reference.squares)
    judged = finite & (reference.magnitude > 0) & ~exact
    if not judged.any():
        return None
    value = np.where(judged, reference.value, 0.0)
    squares = np.where(judged, reference.squares, 0.0)
    terms = np.maximum(reference.nonzero, 1).astype(np.float64)
    sample = take(problem, operands, sampled(judged, reference.terms))
    products = sample.products
    kappas = _kappas(products)
    kappa = max(1.0, float(kappas.mean() + 2 * kappas.std() / np.sqrt(kappas.size)))
    added = _added(problem, operands, old, value)
    first = _variance(result, Moments(value, squares, terms), kappa, added)
    grid = np.sqrt(12 * first / terms)
    with np.errstate(divide="ignore", invalid="ignore"):
        grids = (grid * terms / reference.magnitude)[judged]
    losses = curve(products, float(grids.min()), float(grids.max()))
    stagnation = np.where(squares > 0, first * terms / np.maximum(squares, np.finfo(np.float64).tiny), 0.0)
    variance = first * (1 + stagnation) + np.square(LOST * losses.of(grid, reference.magnitude, terms))
    variance += kappa * terms * accumulator.tiny**2 / 12 + np.square(reference.error)
    wide = problem.output_format.significand_bits >= accumulator.significand_bits
    if wide:
        variance += np.square(last_place(value, problem.output_format)) / 12
    return Errors(
        problem=problem,
        operands=operands,
        accumulator=accumulator,
        got=np.where(judged, actual, 0.0),
        value=value,
        plain=value if old is None else value - np.nan_to_num(old.astype(np.float64)),
        magnitude=reference.magnitude,
        squares=squares,
        terms=terms,
        doubt=reference.error + _common(added, value, accumulator),
        judged=judged,
        error=np.where(judged, _error(actual, value, problem.output_format, not wide), 0.0),
        variance=np.maximum(variance, np.finfo(np.float64).tiny),
        sample=sample,
        kappas=kappas,
        kappa=kappa,
        curve=losses,
        origin=tuple(origin) or (0,) * actual.ndim,
    )


def _kappas(products: F64Array) -> F64Array:
    """Return the kappa of each element: its variance divided by that of distinct terms in exchangeable order."""
    return conspiracies(products) * repeats(products)


def grain(errors: Errors) -> F64Array:
    """Return each sum's last place, divided by the rms of its products; above ``GRAIN``, additions lose whole terms."""
    size = np.sqrt(np.square(errors.value) + errors.squares)
    share: F64Array = errors.accumulator.unit * size / rms_term(errors.squares, errors.terms)
    return np.where(errors.judged, share, 0.0)


def _variance(result: DeclaredResult, moments: Moments, kappa: float, added: F64Array | float) -> F64Array:
    """Return the variance V of the model; if no order is declared, bias and old contents may be added first."""
    (value, squares, terms), declared = moments, result.declared
    a, b = tree(declared, terms)
    total = np.maximum(np.abs(value), np.abs(value - added))
    energy = kappa * partial_sums(a, b, total, np.maximum(squares - np.square(value) / terms, 0)) + squares
    last = last_additions(result.problem)
    if last:
        any_order = declared.height is None and not declared.blocks
        energy = energy + last * np.square(value) + (terms * np.square(added) if any_order else 0.0)
    variance: F64Array = ROUNDING * declared.accumulation.unit**2 * energy
    return variance


def _added(problem: Problem, operands: Sequence[Array], old: Array | None, value: F64Array) -> F64Array | float:
    added: F64Array | float = 0.0
    if "bias" in problem.operands:
        bias = np.nan_to_num(operands[problem.operands.index("bias")].astype(np.float64))
        added = bias.reshape(1, -1, *[1] * (value.ndim - 2))
    return added if old is None else added + np.nan_to_num(old.astype(np.float64))


def _common(added: F64Array | float, value: F64Array, accumulator: Format) -> F64Array:
    """Return the rounding error of adding a bias to a sum.

    All elements of a channel whose sums have the same last place have the same error.
    """
    grid = last_place(value, accumulator)
    lost: F64Array = np.abs(np.rint(added / grid) * grid - added)
    return lost


def _error(actual: F64Array, value: F64Array, fmt: Format, narrow: bool) -> F64Array:
    """Return the errors of results; for a narrow format, the smallest errors before the last rounding."""
    if not narrow:
        return actual - value
    low, high = cell(actual, fmt)
    implied: F64Array = np.where(value < low, low - value, np.where(value > high, high - value, 0.0))
    return implied
