"""A forward or a data gradient as its loops see it: axes of the output, images first, each cut into parts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from math import prod

from convgrad.plan.forward.recipe import ForwardSpec
from convgrad.plan.regions import Part, Parts, parts, phases, uncut
from convgrad.plan.tables import Strides
from convgrad.spec.geometry import Axis, Conv
from convgrad.spec.order import Order

FEWEST_AXES = 4  # images and three of space: kernels of fewer are those of four, with axes of one position

OPERAND = {"dst": "src", "src": "dst"}  # what a role reads beside the weights


@dataclass(frozen=True, eq=False)
class Along:
    """One axis of the output: its positions cut into parts; bytes from a position, from a tap to the next."""

    extent: int  # positions of the output
    met: int  # positions of the operand
    kernel: int
    parts: Parts
    data: int
    out: int
    weights: int
    even: bool  # every position meets one tap, and the operand's position of the same number
    phases: tuple[Part, ...]  # parts with all taps, existing or not

    def joined(self, inner: Along) -> Along | None:
        """Return this axis and an inner one as one; None where positions do not lie so."""
        if not (self.even and inner.even and self.out == inner.out * inner.extent):
            return None
        if self.data != inner.data * inner.extent:
            return None
        extent = self.extent * inner.extent
        whole = Part(range(extent), range(1), 0, 1, 1)
        return replace(inner, extent=extent, met=extent, parts=Parts.of([whole]), phases=(whole,))


def even(extent: int, data: int, out: int) -> Along:
    """An axis of so many positions, each of which meets the one of its number."""
    whole = Part(range(extent), range(1), 0, 1, 1)
    return Along(extent, extent, 1, Parts.of([whole]), data, out, 0, True, (whole,))


_ONE = even(1, 0, 0)


@dataclass(frozen=True)
class ForwardNest:
    """out[n, g, r, q] = sum over taps k and terms c of data[n, g, c, met(q, k)] * weights[g, r, c, k].

    Strides are in bytes: from a group, an item to the next of the output (results), of the data (terms), and of the
    weights from a group, a result, a term.
    """

    solves_for: str
    groups: int
    results: int  # of a group
    terms: int  # of a group and a tap
    axes: tuple[Along, ...]
    data: tuple[int, int]
    out: tuple[int, int]
    weights: tuple[int, int, int]
    bias: int  # bytes from one to the next
    order: Order
    merged: int = 1  # groups whose results are those of one: each meets the terms of its own

    @cached_property
    def taps(self) -> int:
        """Taps of the kernel."""
        return prod(axis.kernel for axis in self.axes)

    @cached_property
    def positions(self) -> int:
        """Output positions of all images."""
        return prod(axis.extent for axis in self.axes)

    @cached_property
    def tap_step(self) -> int | None:
        """Bytes of weights from any tap to the next, row-major; None where they are not evenly apart."""
        several = [axis for axis in self.axes if axis.kernel > 1]
        if not several:
            return 0
        even = all(outer.weights == inner.weights * inner.kernel for outer, inner in pairwise(several))
        return several[-1].weights if even else None

    @cached_property
    def channels(self) -> int:
        """Channels of the data of a group, or of those that are merged."""
        return self.merged * self.terms

    def seen(self, spec: ForwardSpec) -> ForwardNest:
        """Return the view of a kernel, whose rows may be results, whose lanes may be groups."""
        if spec.window:
            return self.with_merged_groups
        if not spec.transposed_gemm:
            return self
        other = self.transposed_gemm
        assert other is not None, "kernels exchange rows and lanes where a view can"
        return other

    @cached_property
    def with_merged_groups(self) -> ForwardNest:
        """Return the same sums with the results of all groups as one's; the last axis is cut into phases only."""
        *outer, last = self.axes
        alone = replace(last, parts=Parts.of(uncut(last.phases, last.met)))
        group, item, term = self.weights
        return replace(
            self, groups=1, results=self.groups * self.results, merged=self.groups,
            axes=(*outer, alone), weights=(group, group if self.results == 1 else item, term),
        )  # fmt: skip

    @cached_property
    def transposed_gemm(self) -> ForwardNest | None:
        """Return the same sums with results as positions and positions as results, those of an image a group.

        There is one tap, or nothing; positions of an image are one axis.
        """
        real = [axis for axis in self.axes if axis.extent > 1]
        if self.groups > 1 or not all(axis.even for axis in self.axes) or not 0 < len(real) <= 2:
            return None
        *images, positions = real
        groups, data, out = (images[0].extent, images[0].data, images[0].out) if images else (1, 0, 0)
        _, by_result, by_term = self.weights
        results = even(self.results, by_result, self.out[1])
        return replace(
            self, groups=groups, results=positions.extent, axes=(*(_ONE,) * (FEWEST_AXES - 1), results),
            data=(0, by_term), out=(out, positions.out), weights=(data, positions.data, self.data[1]),
        )  # fmt: skip

    @cached_property
    def met_taps(self) -> int:
        """Pairs of an output position and a tap that it meets."""
        return prod(axis.parts.meetings for axis in self.axes)

    @cached_property
    def multiply_adds(self) -> int:
        """Multiply-adds of existing taps."""
        return self.met_taps * self.groups * self.results * self.terms


def forward_nest(
    conv: Conv, order: Order, solves_for: str, strides: Mapping[str, Strides], out: Strides
) -> ForwardNest:
    """Return the view of a problem on arrays of these strides in bytes: those of the operands, by name, and of out."""
    data, weights = strides[OPERAND[solves_for]], strides["weights"]
    ends = (conv.dst_channels // conv.groups, conv.src_channels // conv.groups)
    by_result, by_term = weights[0], weights[1]
    group = ends[0] * weights[0]
    if solves_for == "src":
        ends, by_result, by_term = ends[::-1], by_term, by_result
    results, terms = ends
    images = Axis(conv.batch, conv.batch, 1)
    steps = zip((images, *conv.axes), (0, *weights[2:]), (data[0], *data[2:]), (out[0], *out[2:]), strict=True)
    axes = [_along(axis, solves_for, *each) for axis, *each in steps]
    return ForwardNest(
        solves_for, conv.groups, results, terms, _simplified(axes),
        (terms * data[1], data[1]), (results * out[1], out[1]), (group, by_result, by_term),
        strides["bias"][0] if "bias" in strides else 0, order,
    )  # fmt: skip


def _along(axis: Axis, solves_for: str, weights: int, data: int, out: int) -> Along:
    extent, met = (axis.dst, axis.src) if solves_for == "dst" else (axis.src, axis.dst)
    even = axis.kernel == 1 and axis.stride == 1 and axis.pad_begin == 0 and extent == met
    return Along(extent, met, axis.kernel, parts(axis, solves_for), data, out, weights, even, phases(axis, solves_for))


def _simplified(axes: list[Along]) -> tuple[Along, ...]:
    """Join neighbours that lie as one axis, drop those of one position, and put such in front up to the fewest."""
    found: list[Along] = []
    for axis in axes:
        if axis.even and axis.extent == 1:
            continue
        joined = found[-1].joined(axis) if found else None
        if joined is not None:
            found[-1] = joined
        else:
            found.append(axis)
    return (*(_ONE,) * (FEWEST_AXES - len(found)), *found)
