"""The loop nest of a forward or a data gradient: the axes of the output, images first, each cut into parts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from math import prod

from convgrad.cached import cached_property
from convgrad.plan.recipe import MAX_STRIDE
from convgrad.plan.regions import AxisPart, Parts, parts, phases, uncut
from convgrad.plan.tables import Strides
from convgrad.spec.geometry import Axis, Conv
from convgrad.spec.order import FAN_IN, SumOrder

Steps = tuple[Axis, int, int, int]  # an axis, and its byte strides in the weights, the data and the output
Channels = tuple[int, int, int]  # the number of output channels, and their byte strides in the weights and the output
MIN_AXES = 4  # images and three spatial axes; a nest with fewer axes gets axes of one position in front

OPERAND = {"dst": "src", "src": "dst"}  # the operand other than the weights, by the tensor solved for


@dataclass(frozen=True, eq=False)
class Along:
    """One axis of the output: its positions, cut into parts, and byte strides of positions and taps."""

    extent: int  # the number of output positions
    inputs: int  # the number of input positions
    kernel: int  # the number of taps
    parts: Parts
    data: int  # bytes from an input position to the next
    out: int  # bytes from an output position to the next
    weights: int  # bytes from a tap to the next
    identity: bool  # whether there is one tap, and positions of output and input with the same number meet
    phases: Parts  # the axis as parts that are not cut where taps become absent

    @cached_property
    def uncut(self) -> Parts:
        """The positions in parts that are not cut where taps become absent, so that taps may read padding."""
        return uncut(self.phases, self.inputs)

    @cached_property
    def padded_inputs(self) -> int:
        """The number of input positions, with the padding that taps read."""
        (first,), (end,) = self.uncut.in_blocks(self.extent).reached
        return max(self.inputs, int(end - first))

    def merged(self, inner: Along) -> Along | None:
        """Return this axis and the next inner axis as one axis, or None if their strides do not allow it."""
        if not (self.identity and inner.identity and self.out == inner.out * inner.extent):
            return None
        if self.data != inner.data * inner.extent:
            return None
        extent = self.extent * inner.extent
        whole = Parts.of([AxisPart(range(extent), range(1), 0, 1, 1)])
        return replace(inner, extent=extent, inputs=extent, parts=whole, phases=whole)


def identity(extent: int, data: int, out: int) -> Along:
    """Return an axis with one tap, where each output position meets the input position with the same number."""
    whole = Parts.of([AxisPart(range(extent), range(1), 0, 1, 1)])
    return Along(extent, extent, 1, whole, data, out, 0, True, whole)


ONE_POSITION = identity(1, 0, 0)


@dataclass(frozen=True)
class ForwardNest:
    """out[g, n, m] = sum over taps t and k of data[g, k, input(m, t)] * weights[g, n, k, t].

    m is an output position of all images, and input(m, t) is the input position that it meets. Strides are in bytes.
    """

    solves_for: str
    groups: int
    n: int  # output channels per group
    k: int  # input channels per group
    axes: tuple[Along, ...]
    data: tuple[int, int]  # bytes from a group, from a k to the next
    out: tuple[int, int]  # bytes from a group, from an n to the next
    weights: tuple[int, int, int]  # bytes from a group, from an n, from a k to the next
    bias: int  # bytes from an n to the next
    order: SumOrder
    merged: int = 1  # groups that are merged into one, which has their total n, and the k of each

    @cached_property
    def taps(self) -> int:
        """The number of taps of the convolution."""
        return prod(axis.kernel for axis in self.axes)

    @cached_property
    def positions(self) -> int:
        """The number of output positions of all images."""
        return prod(axis.extent for axis in self.axes)

    @cached_property
    def tap_step(self) -> int | None:
        """The bytes of weights from a tap to the next, row-major; None if taps have no common stride."""
        several = [axis for axis in self.axes if axis.kernel > 1]
        if not several:
            return 0
        dense = all(outer.weights == inner.weights * inner.kernel for outer, inner in pairwise(several))
        return several[-1].weights if dense else None

    @cached_property
    def channels(self) -> int:
        """The number of input channels of a group, or of all merged groups."""
        return self.merged * self.k

    @cached_property
    def with_merged_groups(self) -> ForwardNest:
        """Return the same sums as one group with the n of all groups. The last axis has phases instead of parts."""
        *outer, last_axis = self.axes
        alone = replace(last_axis, parts=last_axis.uncut)
        group, n, k = self.weights
        return replace(
            self,
            groups=1,
            n=self.groups * self.n,
            merged=self.groups,
            axes=(*outer, alone),
            weights=(group, group if self.n == 1 else n, k),
        )

    def in_groups(self, n: int) -> ForwardNest:
        """Return the same sums of one group as groups of ``n`` output channels each, which all read the same data."""
        assert self.groups == 1, "there is one group"
        assert self.n % n == 0, "output channels are divided evenly"
        _, by_n, by_k = self.weights
        return replace(
            self,
            groups=self.n // n,
            n=n,
            data=(0, self.data[1]),
            out=(n * self.out[1], self.out[1]),
            weights=(n * by_n, by_n, by_k),
        )

    @cached_property
    def transposed_gemm(self) -> ForwardNest | None:
        """Return the same sums with output channels as M, the positions of an image as N, and images as groups.

        Return None if there are several taps, groups of several images, or if the positions of an image are not one
        axis. Groups of one image stay groups.
        """
        real = [axis for axis in self.axes if axis.extent > 1]
        if not all(axis.identity for axis in self.axes) or not 0 < len(real) <= 2:
            return None
        *images, positions = real
        group, by_n, by_k = self.weights
        if self.groups == 1:
            groups, group, data, out = (images[0].extent, 0, images[0].data, images[0].out) if images else (1, 0, 0, 0)
        elif not images and not self.bias:
            groups, data, out = self.groups, self.data[0], self.out[0]
        else:
            return None
        channels = identity(self.n, by_n, self.out[1])
        return replace(
            self,
            groups=groups,
            n=positions.extent,
            axes=(*(ONE_POSITION,) * (MIN_AXES - 1), channels),
            data=(group, by_k),
            out=(out, positions.out),
            weights=(data, positions.data, self.data[1]),
        )

    @cached_property
    def outer_axes(self) -> tuple[Along, ...]:
        """The axes without the inner axes whose input positions are contiguous together, as one line."""
        at = len(self.axes) - 1
        step = self.axes[at].data * self.axes[at].inputs
        while at and (self.axes[at - 1].inputs == 1 or self.axes[at - 1].data == step):
            at -= 1
            step *= self.axes[at].inputs
        return self.axes[:at]

    @cached_property
    def existing_taps(self) -> int:
        """The number of pairs of an output position and an existing tap."""
        return prod(axis.parts.meetings for axis in self.axes)

    @cached_property
    def multiply_adds(self) -> int:
        """The number of multiply-adds, without those of absent taps."""
        return self.existing_taps * self.groups * self.n * self.k


def transposed(view: ForwardNest) -> ForwardNest:
    """Return the nest of the transposed GEMM, which exists."""
    assert view.transposed_gemm is not None, "transposed kernels are proposed where the nest can be transposed"
    return view.transposed_gemm


def forward_nest(
    conv: Conv, order: SumOrder, solves_for: str, strides: Mapping[str, Strides], out: Strides
) -> ForwardNest:
    """Return the simplified nest of a problem, for the byte strides of its operands, by name, and of its output.

    Strides are those of the canonical axes. One from a group to the next may follow, if channels have no common stride.
    """
    rank, (data, weights) = 2 + len(conv.axes), (strides[OPERAND[solves_for]], strides["weights"])
    n, k = conv.dst_channels // conv.groups, conv.src_channels // conv.groups
    by_n, by_k, (group,) = weights[0], weights[1], weights[rank:] or (n * weights[0],)
    if solves_for == "src":
        n, k, by_n, by_k = k, n, by_k, by_n
    images = Axis(conv.batch, conv.batch, 1)
    steps = list(
        zip((images, *conv.axes), (0, *weights[2:rank]), (data[0], *data[2:rank]), (out[0], *out[2:rank]), strict=True)
    )
    channels, (group_out,) = (n, by_n, out[1]), out[rank:] or (n * out[1],)
    (group_data,) = data[rank:] or (k * data[1],)
    foldable = solves_for == "src" and conv.groups == 1 and "bias" not in strides
    if foldable and FAN_IN % order.blocks_a_line == 0:
        channels, steps = _with_taps(channels, steps)
    n, by_n, by_n_out = channels
    if solves_for == "dst":
        steps = [*map(_read_positions, steps[:-1]), steps[-1]]
        if steps[-1][0].stride <= MAX_STRIDE:
            steps[-1] = _read_positions(steps[-1])
    axes = [_along(axis, solves_for, *step) for axis, *step in steps]
    return ForwardNest(
        solves_for,
        conv.groups,
        n,
        k,
        _simplified(axes),
        (group_data, data[1]),
        (group_out, by_n_out),
        (group, by_n, by_k),
        strides["bias"][0] if "bias" in strides else 0,
        order,
    )


def _with_taps(channels: Channels, steps: list[Steps]) -> tuple[Channels, list[Steps]]:
    """Make src positions output channels where dst has one position, and return the axes that remain.

    There, each src position meets a tap of its own, as in the last layer of a classifier. Channels and taps must have a
    common stride in the weights and in the output. No other axis may have taps: the places of chains in the tree would
    depend on the position.
    """
    folded = [step for step in steps[1:] if _meets_a_tap_each(step[0])]
    dense = [channels] * (channels[0] > 1) + [(axis.src, weights, out) for axis, weights, _, out in folded]
    dense.sort(key=lambda step: -step[1])
    even = all(a[1] == b[0] * b[1] and a[2] == b[0] * b[2] for a, b in pairwise(dense))
    left = [step for step in steps if step not in folded]
    if not (folded and even) or any(axis.kernel > 1 for axis, *_ in left):
        return channels, steps
    return (prod(step[0] for step in dense), *dense[-1][1:]), left


def _meets_a_tap_each(axis: Axis) -> bool:
    """Return whether there is one dst position, and the src position with each number meets the tap of that number."""
    return axis.dst == 1 and axis.kernel == axis.src > 1 and axis.dilation == 1 and axis.pad_begin == 0


def _read_positions(steps: Steps) -> Steps:
    """Replace an axis with one tap and a stride by an axis of the input positions that are met: only these are packed.

    On the last axis, packing reads positions that are at most MAX_STRIDE elements apart.
    """
    axis, weights, data, out = steps
    if axis.kernel > 1 or axis.pad_begin or axis.src <= (axis.dst - 1) * axis.stride:
        return steps
    return Axis(axis.dst, axis.dst, 1), weights, data * (axis.stride if axis.dst > 1 else 1), out


def _along(axis: Axis, solves_for: str, weights: int, data: int, out: int) -> Along:
    extent, inputs = (axis.dst, axis.src) if solves_for == "dst" else (axis.src, axis.dst)
    alone = axis.kernel == 1 and axis.stride == 1 and axis.pad_begin == 0 and extent == inputs
    return Along(
        extent, inputs, axis.kernel, parts(axis, solves_for), data, out, weights, alone, phases(axis, solves_for)
    )


def _simplified(axes: list[Along]) -> tuple[Along, ...]:
    """Drop axes of one position, merge neighbouring axes if strides allow it, and add axes in front up to MIN_AXES."""
    merged_axes: list[Along] = []
    for axis in axes:
        if axis.identity and axis.extent == 1:
            continue
        merged = merged_axes[-1].merged(axis) if merged_axes else None
        if merged is not None:
            merged_axes[-1] = merged
        else:
            merged_axes.append(axis)
    return (*(ONE_POSITION,) * (MIN_AXES - len(merged_axes)), *merged_axes)
