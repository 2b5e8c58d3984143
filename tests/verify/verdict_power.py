"""Planted defects of the arithmetic of weight gradients: what the verdict says of each, by terms, data and type.

``python -m tests.verify.verdict_power`` prints a table; ``--terms 200,2000`` takes those columns only, ``--defects NAME
...`` those rows, ``--layer`` the gradient of a layer of 8x56x56x64 and 3x3 taps instead. A cell has a letter for
normal, ReLU and positive data: W wrong, D degraded, U undecided, - ok; small where the defect has no name, ! where it
has another.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from campaigns.verdict import filled
from convgrad.formats import BF16, F16, FORMATS, TF32, Format, round_to
from convgrad.functional.call import Prepared
from convgrad.notation import calls, read
from convgrad.spec.operators import find
from convgrad.verify.check import verdict_on
from convgrad.verify.declared import declared
from convgrad.verify.judge.statistics.filters import Filter, coarser
from convgrad.verify.reference import certify
from convgrad.verify.verdict import Verdict
from tests.verify.verdict_orders import nearest, towards_zero

Array = NDArray[Any]
Rounding = Callable[[Array], Array]
KINDS = ("normal", "relu", "positive")
LINES = {
    200: "BWD_W f32 NXC mb8ic48ih5iw5oc48oh5ow5kh1kw1",
    2_000: "BWD_W f32 NXC mb8ic48ih10iw25oc48oh10ow25kh1kw1",
    25_088: "BWD_W f32 NXC mb8ic48ih56oc48oh56kh1",
    200_000: "BWD_W f32 NXC mb8ic24ih100iw250oc24oh100ow250kh1kw1",
}
LAYER = "BWD_W f32 NXC mb8ic64ih56oc64oh56kh3ph1"
LETTERS = {"wrong": "W", "degraded": "D", "undecided": "U", "ok": "-"}


@dataclass(frozen=True, eq=False)
class Layer:
    """A weight gradient on some data, and its own right result in f32."""

    prepared: Prepared
    right: Array

    def of(self, src: Array, dst: Array) -> Array:
        """Return what convgrad computes of other operands, in the caller's layout."""
        operands = tuple(np.ascontiguousarray(a, np.float32) for a in (src, dst))
        return self.prepared._replace(operands=operands).execute()

    def parts(self, number: int) -> list[Array]:
        """Return the partial sums over so many stretches of images and rows, in f32."""
        src, dst = self.prepared.operands
        positions = dst.shape[0] * int(np.prod(dst.shape[2:]))
        part = (np.arange(positions) * number // positions).reshape(dst.shape[0], 1, *dst.shape[2:])
        return [self.of(src, np.where(part == one, dst, np.float32(0))) for one in range(number)]

    def rows(self) -> tuple[Array, Array] | None:
        """Return src and dst as [term, channel] where the taps are one; None where chains would take too long."""
        src, dst = (np.moveaxis(a, 1, -1) for a in self.prepared.operands)
        if self.prepared.problem.output_shape[:2] != (1, 1):
            return None
        return src.reshape(-1, src.shape[-1]).astype(np.float64), dst.reshape(-1, dst.shape[-1]).astype(np.float64)


def to_bits(bits: int) -> Rounding:
    """Return rounding of float64 to so many bits, as a difference of two sums: quick, where nothing overflows."""
    factor = 2.0 ** (53 - bits) + 1
    return lambda values: values * factor - (values * factor - values)


def cut(values: Array) -> Array:
    """Return float64 truncated to the 24 bits of f32, by its pattern."""
    return (values.view(np.int64) & ~np.int64(2**29 - 1)).view(np.float64)


def chain(layer: Layer, adding: Rounding, multiplying: Rounding | None = None, block: int = 0) -> Array | None:
    """Return one chain a block of so many terms, blocks joined by a chain, with this arithmetic; None if too long."""
    rows = layer.rows()
    if rows is None:
        return None
    x, y = rows
    total: Array | None = None
    for first in range(0, len(x), block or len(x)):
        part = np.zeros((x.shape[1], y.shape[1]))
        for a, b in zip(x[first : first + (block or len(x))], y[first : first + (block or len(x))], strict=True):
            product = np.multiply.outer(a, b)
            part = adding(part + (product if multiplying is None else multiplying(product)))
        total = part if total is None else adding(total + part)
    assert total is not None
    return total.reshape(layer.right.shape).astype(np.float32)


def partials(number: int, fmt: Format, running: bool = False) -> Callable[[Layer], Array]:
    """Return what sums partial sums rounded to a format, in f32 or in the format too."""

    def planted(layer: Layer) -> Array:
        total = np.zeros(layer.right.shape)
        for part in layer.parts(number):
            total = nearest(total + round_to(part.astype(np.float64), fmt))
            total = round_to(total, fmt) if running else total
        return total.astype(np.float32)

    return planted


def operands(fmt: Format, truncated: bool) -> Callable[[Layer], Array]:
    """Return what rounds the operands first."""
    one = Filter(fmt, truncated)
    return lambda layer: layer.of(*(coarser(a.astype(np.float64), one) for a in layer.prepared.operands))


def result(fmt: Format) -> Callable[[Layer], Array]:
    """Return what rounds the result to a format on the way."""
    return lambda layer: round_to(layer.right.astype(np.float64), fmt).astype(np.float32)


def one_element(share: float) -> Callable[[Layer], Array]:
    """Return what scales one element of median size."""

    def planted(layer: Layer) -> Array:
        got = layer.right.copy()
        at = np.unravel_index(np.argsort(np.abs(got), axis=None)[got.size // 2], got.shape)
        got[at] *= np.float32(1 + share)
        return got

    return planted


def one_channel(change: Callable[[Array], Array]) -> Callable[[Layer], Array]:
    """Return what changes one destination channel, the last axis of XIO."""

    def planted(layer: Layer) -> Array:
        got = layer.right.copy()
        got[..., 3] = change(got[..., 3])
        return got

    return planted


def scaled(share: float) -> Callable[[Array], Array]:
    return lambda values: (values.astype(np.float64) * (1 + share)).astype(np.float32)


def last_truncated(layer: Layer) -> Array:
    """The exact sums truncated to f32, where the exact sums are had in float64."""
    reference = certify(layer.prepared.problem, layer.prepared.operands)
    in_layout = reference.value.transpose(np.argsort(layer.prepared.problem.output_order))
    return towards_zero(in_layout).astype(np.float32)


DEFECTS: Mapping[str, tuple[Callable[[Layer], Array | None], str]] = {
    "bf16 partials 2": (partials(2, BF16), "partial sums rounded to bf16"),
    "bf16 partials 8": (partials(8, BF16), "partial sums rounded to bf16"),
    "bf16 partials 64": (partials(64, BF16), "partial sums rounded to bf16"),
    "bf16 running sum of 8": (partials(8, BF16, True), "partial sums rounded to bf16|sums accumulated in bf16"),
    "f16 partials 2": (partials(2, F16), "partial sums rounded to f16"),
    "f16 partials 8": (partials(8, F16), "partial sums rounded to f16"),
    "f16 partials 64": (partials(64, F16), "partial sums rounded to f16"),
    "tf32 operands": (operands(TF32, False), "operands rounded to tf32"),
    "tf32 operands, truncated": (operands(TF32, True), "operands truncated to tf32"),
    "bf16 operands": (operands(BF16, False), "operands rounded to bf16"),
    "bf16 operands, truncated": (operands(BF16, True), "operands truncated to bf16"),
    "f16 operands": (operands(F16, False), "operands rounded to tf32"),  # the same but for range
    "result to bf16": (result(BF16), "result rounded to bf16"),
    "result to f16": (result(F16), "result rounded to f16|output rounded twice"),
    "additions truncated": (lambda layer: chain(layer, cut), "additions truncated"),
    "products truncated": (lambda layer: chain(layer, nearest, cut), "products truncated"),
    "last rounding truncated": (last_truncated, "last rounding truncated"),
    "one element 17 %": (one_element(0.17), "single elements off"),
    "one element 1e-3": (one_element(1e-3), "single elements off"),
    "one element 1e-4": (one_element(1e-4), "single elements off"),
    "one element 1e-5": (one_element(1e-5), "single elements off"),
    "one channel 1e-4": (one_channel(scaled(1e-4)), "one destination channel off"),
    "one channel 1e-5": (one_channel(scaled(1e-5)), "one destination channel off"),
    "one channel to bf16": (
        one_channel(lambda a: round_to(a.astype(np.float64), BF16).astype(np.float32)),
        "one destination channel off",
    ),
    "all 1e-5 too large": (lambda layer: scaled(1e-5)(layer.right), "scaled by a constant"),
    "bf16 accumulation": (lambda layer: chain(layer, to_bits(8)), "sums accumulated in bf16"),
    "f16 accumulation": (lambda layer: chain(layer, to_bits(11)), "sums accumulated in f16"),
    "tf32 accumulation of blocks": (lambda layer: chain(layer, to_bits(11), block=256), "sums accumulated in f16"),
    "none: convgrad": (lambda layer: layer.right, ""),
}


def told_as(wanted: str, verdict: Verdict) -> bool:
    """Tell whether a name that is wanted, of several one, is that of the defect, or one said to fit as well."""
    said = [f"{defect.name} ({defect.detail})" for defect in verdict.found]
    return any(name in one for name in wanted.split("|") for one in said)


def layer_of(line: str, kind: str, seed: int = 0) -> Layer:
    """Return the weight gradient of a line on a kind of data."""
    call = calls(read(line))[0]
    prepared = filled(find(call.operator), call.shapes, dict(call.attributes), call.format, kind, seed)
    return Layer(prepared, prepared.execute())


def rows_of(lines: Sequence[str], names: Sequence[str]) -> dict[str, dict[tuple[str, str], str]]:
    """Return a letter per kind of data, by defect, line and type of result."""
    table: dict[str, dict[tuple[str, str], str]] = {name: {} for name in names}
    for line in lines:
        for kind in KINDS:
            layer = layer_of(line, kind)
            reference = certify(layer.prepared.problem, layer.prepared.operands)
            for name in names:
                plant, wanted = DEFECTS[name]
                planted = plant(layer)
                for fmt in ("f32", "bf16"):
                    letter = " "
                    if planted is not None:
                        got = round_to(planted.astype(np.float64), FORMATS[fmt]).astype(FORMATS[fmt].dtype)
                        how = declared("ConvolutionBackwardWeights", FORMATS["f32"])
                        verdict = verdict_on(got, layer.prepared, how, None, reference)
                        letter = LETTERS[verdict.outcome]
                        told = [f"{d.name} ({d.detail})" for d in verdict.found]
                        shown = [f"{e.statistic} {e.value:.3g}" for e in verdict.evidence[:3]]
                        print(f"{line} {kind} {fmt} {name}: {verdict.outcome}; {told}; {shown}", file=sys.stderr)
                        letter = (
                            letter
                            if not wanted or told_as(wanted, verdict)
                            else letter.lower() + "!" * bool(verdict.found)
                        )
                    table[name][line, fmt] = table[name].get((line, fmt), "") + letter
    return table


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Judge planted defects, and print what is seen of them.")
    parser.add_argument("--terms", default=",".join(map(str, LINES)))
    parser.add_argument("--layer", action="store_true")
    parser.add_argument("--defects", nargs="*", default=list(DEFECTS), choices=list(DEFECTS), metavar="NAME")
    options = parser.parse_args(arguments)
    lines = [LAYER] if options.layer else [LINES[int(terms)] for terms in options.terms.split(",")]
    table = rows_of(lines, options.defects)
    columns = [(line, fmt) for fmt in ("f32", "bf16") for line in lines]
    print("| defect | " + " | ".join(f"{fmt} {line.split()[-1]}" for line, fmt in columns) + " |")
    print("|---" * (1 + len(columns)) + "|")
    for name, cells in table.items():
        print(f"| {name} | " + " | ".join(cells[column] for column in columns) + " |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
