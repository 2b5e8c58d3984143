"""Defects of arithmetic: scales, signs, bias, old contents, roundings, and flushed subnormal numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from convgrad.array_types import F64Array
from convgrad.formats import BF16, F16, F32, F64, TF32, Format, round_to
from convgrad.verify.diagnose.fit import MAXIMUM, DefectEffect, Rounding
from convgrad.verify.diagnose.make import edited
from convgrad.verify.diagnose.sums import Changed, Scene
from convgrad.verify.judge.model import last_place
from convgrad.verify.judge.names import MULTIPLES, OFFSET, SCALED
from convgrad.verify.judge.statistics.grid import multiples, to_multiples


def scaled(scene: Scene) -> Iterator[DefectEffect]:
    """Yield explanations in which results have a wrong factor: likely factors, then one fitted to wrong elements."""
    geometry = scene.problem.geometry
    counts = {"images": geometry.batch, "positions": geometry.positions}
    counts["images times positions"] = geometry.batch * geometry.positions
    if scene.conv is not None:
        counts |= {"taps": scene.conv.taps, "groups": scene.conv.groups}
    named = [(-1.0, "sign", ""), (2.0, "accumulated twice", "")]
    named += [(float(n), f"accumulated {n} times", "") for n in (3, 4, 8, 16)]
    for what, count in counts.items():
        if count > 1:
            named.append((1 / count, "mean instead of sum", f"divided by the {count} {what}"))
            named.append((float(count), SCALED, f"times the {count} {what}"))
    yield from (_times(scene, factor, name, detail) for factor, name, detail in named)
    factor = _factor(scene)
    if factor is not None and not any(
        abs(factor - named_factor) <= 1e-3 * abs(named_factor) for named_factor, *_ in named
    ):
        yield _times(scene, factor, SCALED, f"times {factor:.6g}", MAXIMUM)


def _times(scene: Scene, factor: float, name: str, detail: str, chosen: float = 0.0) -> DefectEffect:
    def change(value: F64Array, magnitude: F64Array, _: NDArray[np.intp]) -> tuple[F64Array, F64Array]:
        return value * factor, magnitude * abs(factor)

    return DefectEffect(name, detail, Changed(scene.exact, change), chosen=chosen)


def _factor(scene: Scene) -> float | None:
    """Return the factor between wrong results and exact sums by least squares, or None if there is none.

    The factor is a simple fraction if one is within the precision of the fit.
    """
    value, got = scene.exact.value.ravel()[scene.wrong], scene.actual[scene.wrong]
    finite = np.isfinite(value) & np.isfinite(got)
    factor = float(np.sum(got[finite] * value[finite]) / np.sum(value[finite] ** 2))
    if not np.isfinite(factor) or abs(factor) < 1e-30:
        return None
    short = float(Fraction(factor).limit_denominator(64))
    return short if short != 1 and abs(short - factor) <= _sharp(scene) * abs(factor) else factor


def _sharp(scene: Scene) -> float:
    """Return the relative precision of a constant fitted to wrong elements: four deviations of the mean rounding."""
    return max(float(4 * scene.problem.output_format.unit / np.sqrt(scene.wrong.size)), 1e-5)


def added(scene: Scene) -> Iterator[DefectEffect]:
    """Yield explanations with a wrong addend: of bias, old contents or a constant.

    Bias or old contents are omitted, added twice, subtracted, or added without request.
    """
    bias = None
    if "bias" in scene.tensors:
        shape = (1, -1, *[1] * (scene.got.ndim - 2))
        bias = np.broadcast_to(scene.tensors["bias"].astype(np.float64).reshape(shape), scene.got.shape)
    asked = scene.problem.accumulate
    for extra, times, name, detail in (
        (bias, -1, "bias missing", ""),
        (bias, 1, "bias added twice", ""),
        (bias, -2, "bias subtracted", ""),
        (scene.old, -1 if asked else 1, "old contents not added" if asked else "accumulated into old contents", ""),
        (scene.old, 1 if asked else 2, "old contents added twice", ""),
        (scene.old, -2 if asked else -1, "old contents subtracted", ""),
    ):
        if extra is not None:
            yield _plus(scene, times * np.asarray(extra, np.float64), name, detail)
    constant = _constant(scene)
    if constant is not None:
        everywhere = np.broadcast_to(np.float64(constant), scene.got.shape)
        detail = f"{constant:.6g} is added everywhere"
        yield _plus(scene, everywhere, OFFSET, detail, MAXIMUM)


def _plus(scene: Scene, extra: F64Array, name: str, detail: str, chosen: float = 0.0) -> DefectEffect:
    flat = extra.reshape(-1)

    def change(value: F64Array, magnitude: F64Array, where: NDArray[np.intp]) -> tuple[F64Array, F64Array]:
        return value + flat[where], magnitude + np.abs(flat[where])

    return DefectEffect(name, detail, Changed(scene.exact, change, integral=True), chosen=chosen)


def _constant(scene: Scene) -> float | None:
    """Return the weighted mean of got - exact of wrong elements, or None if it is 0 or not finite.

    The mean is rounded to few digits if its precision allows this.
    """
    difference = (scene.actual - scene.exact.value.ravel())[scene.wrong]
    weights = 1 / (scene.exact.magnitude.ravel()[scene.wrong] + scene.problem.output_format.tiny)
    constant = float(np.sum(difference * weights) / np.sum(weights))
    size = float(np.mean(np.abs(scene.actual[scene.wrong])))
    if not np.isfinite(constant) or constant == 0:
        return None
    short = (float(f"{constant:.{digits}g}") for digits in (1, 2, 3, 4))
    return next(
        (rounded for rounded in short if abs(rounded - constant) <= _sharp(scene) * max(size, abs(constant))), constant
    )


# These roundings are monotone, so possible results are between the rounded ends of a bound.
def _truncated(fmt: Format) -> Rounding:
    def rounding(values: F64Array) -> F64Array:
        _, exponent = np.frexp(values)
        place = np.maximum(exponent, fmt.min_exponent + 1) - fmt.significand_bits  # exponent of the last bit
        kept = np.ldexp(np.trunc(np.ldexp(values, -place)), place)
        cut: F64Array = np.where(np.isfinite(values), np.clip(kept, -fmt.largest, fmt.largest), values)
        return cut

    return rounding


def rounded(scene: Scene) -> Iterator[DefectEffect]:
    """Yield explanations with results rounded to a coarser format or grid, rounded twice, truncated, saturated or 0."""
    out = scene.problem.output_format
    exact = Changed(scene.exact, lambda value, magnitude, _: (value, magnitude), integral=True)
    roundings: list[tuple[str, str, Rounding, float]] = [("output truncated", f"to {out}", _truncated(out), 1.0)]
    for fmt in (BF16, F16, TF32, *[F32] * (out is F64)):  # rounding to bf16 through f32 is right
        if fmt.significand_bits < out.significand_bits:
            grain = out.unit / fmt.unit
            roundings.append((f"result rounded to {fmt}", "", _chained(fmt, out), grain))
            roundings.append((f"result truncated to {fmt}", "", _truncated_twice(fmt, out), grain))
        elif fmt is not out:
            roundings.append(("output rounded twice", f"through {fmt}", _chained(fmt, out), 1.0))
    roundings.append(("saturated instead of infinite", f"at {out.largest:g}", _saturated(out), 1.0))
    exact_values = scene.exact.value.ravel()
    step = multiples(scene.actual, exact_values, out) if np.isfinite(exact_values).all() else 0.0
    if step:
        grain = min(1.0, float(np.median(last_place(exact_values, out))) / step)
        roundings.append((MULTIPLES, f"of {step:g}", to_multiples(step, out), grain))
    for name, detail, rounding, grain in roundings:
        yield DefectEffect(name, detail, exact, rounding, grain)
    yield DefectEffect("denormals flushed", "results below the normal numbers are 0", exact, _flushed(out))


def _chained(first: Format, then: Format) -> Rounding:
    return lambda values: round_to(round_to(values, first), then)


def _truncated_twice(first: Format, then: Format) -> Rounding:
    cut = _truncated(first)
    return lambda values: round_to(cut(values), then)


def _saturated(fmt: Format) -> Rounding:
    return lambda values: np.clip(round_to(values, fmt), -fmt.largest, fmt.largest)


def _flushed(fmt: Format) -> Rounding:
    return lambda values: np.where(np.abs(values) < 2.0**fmt.min_exponent, 0.0, round_to(values, fmt))


Convert = Callable[[F64Array], F64Array]


def operands(scene: Scene) -> Iterator[DefectEffect]:
    """Yield explanations with operands rounded or truncated to a narrower format, or subnormal operands taken as 0."""
    own = scene.problem.operand_format
    for fmt in (TF32, BF16, F16, F32):
        if fmt.significand_bits < own.significand_bits:
            yield _converted(scene, f"operands rounded to {fmt}", lambda a, fmt=fmt: round_to(a, fmt))  # type: ignore[misc]
            if fmt not in (F16, F32):
                yield _converted(scene, f"operands truncated to {fmt}", _truncated(fmt))
    if scene.conv is None:
        return
    normal = 2.0**own.min_exponent
    if any(((np.abs(a.astype(np.float64)) < normal) & (a != 0)).any() for a in scene.operands):
        yield _converted(scene, "denormals flushed", lambda a: np.where(np.abs(a) < normal, 0.0, a), "operands")


def swallowed(scene: Scene) -> Iterator[DefectEffect]:
    """Yield the explanation that NaN and infinities in operands are taken as 0."""
    if not all(np.isfinite(a.astype(np.float64)).all() for a in scene.operands):
        detail = "NaN and infinity count as 0"
        yield _converted(scene, "NaN swallowed", lambda a: np.where(np.isfinite(a), a, 0.0), detail)


def _converted(scene: Scene, name: str, convert: Convert, detail: str = "") -> DefectEffect:
    changes = {t: lambda array: convert(np.asarray(array, np.float64)) for t in scene.tensors if t != "bias"}
    return DefectEffect(name, detail, edited(scene, changes))
