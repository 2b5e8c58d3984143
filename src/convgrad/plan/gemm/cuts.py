"""The ways to cut a GEMM: into output blocks, and into parts of groups and of output channels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from math import ceil, prod

from convgrad.plan import constants as shared
from convgrad.plan.cost import Division
from convgrad.plan.forward_nest import Along, ForwardNest
from convgrad.plan.gemm import constants
from convgrad.plan.gemm.spec import GemmSpec
from convgrad.plan.machine import LINE_BYTES, Machine
from convgrad.plan.recipe import CHANNELS, F32_BYTES, SPATIAL
from convgrad.plan.regions import Parts
from convgrad.plan.tree import levels_of


def panels_of(view: ForwardNest, spec: GemmSpec) -> int:
    """Return the number of panels of B per group."""
    return ceil(view.n / spec.width)


def panel_bytes(view: ForwardNest, spec: GemmSpec) -> int:
    """Return the bytes of a packed panel of B."""
    return view.taps * spec.tap_bytes(view.k) + (LINE_BYTES if spec.k_per_add == 2 else 0)  # min. exponent


def read_bytes(view: ForwardNest, spec: GemmSpec) -> int:
    """Return the bytes of a packed panel of B that micro-tiles read: without padding and minimum exponent."""
    return view.taps * spec.pitch * spec.packed_k_bytes(view.k)


def parts_of(axis: Along, size: int, padded: bool = False) -> Parts:
    """Return the parts of an axis, cut at the bounds of output blocks of ``size`` positions."""
    return (axis.uncut if padded else axis.parts).in_blocks(size).parts


def cuts(view: ForwardNest, machine: Machine, spec: GemmSpec, threads: int, tiled_axis: int) -> Iterator[Division]:
    """Yield ways to cut groups, panels of B and output blocks, and to pack A: by each output block, or once."""
    may_pack_once, keys = _may_pack_once(view, spec), set()
    for cut in _cuts(view, machine, spec, threads, tiled_axis):
        key = (cut.parts, *cut.loops.values())
        if key in keys:
            continue
        keys.add(key)
        packings = packed_times(cut) if may_pack_once else 1
        if packings <= 2:  # with more packings, packing once is always faster
            yield cut._replace(loops={**cut.loops, "packed_once": False})
        if packings > 1:
            yield cut._replace(loops={**cut.loops, "packed_once": True})


def packed_times(cut: Division) -> int:
    """Return how often an output block packs its part of A: for each part of the panels, and each set of panels."""
    (_, parts, _), (_, panels, _) = cut.parts, cut.counts
    at_once: int = cut.loops["panels"]
    return parts * -(-panels // (parts * at_once))


def _may_pack_once(view: ForwardNest, spec: GemmSpec) -> bool:
    """Return whether a kernel packs A by positions, positions form few lines, and the copy is not too large."""
    lines = view.groups * prod(axis.inputs for axis in view.outer_axes)
    copy = view.groups * prod(axis.inputs for axis in view.axes) * spec.packed_row_bytes(view.channels)
    return spec.packs_once and lines <= constants.PACK_ONCE_LINES and copy <= shared.MAX_SCRATCH_BYTES


def _cuts(view: ForwardNest, machine: Machine, spec: GemmSpec, threads: int, tiled_axis: int) -> Iterator[Division]:
    """Yield the ways to cut. Most micro-tiles run along the axis ``tiled_axis``."""
    panels, panel_bytes = panels_of(view, spec), read_bytes(view, spec)
    fit = max(1, int(machine.l2_bytes * constants.PANELS_SHARE) // max(1, panel_bytes))
    more = fit if spec.a.in_place else max(fit, constants.PANELS_BYTES // max(1, panel_bytes))
    wishes = sorted({1, *(threads << n for n in range(4))})
    choices = product(sorted({min(panels, fit), min(panels, more)}), wishes, sorted({tiled_axis, len(view.axes) - 1}))
    for at_once, wanted, last in choices:
        block = _output_block(view, machine, spec, wanted if wanted <= threads else 2 * wanted, last)
        there = _count(view, block)
        taken = min(there, wanted)
        for others in sorted({1, threads, 4 * threads, ceil(panels / at_once)}):
            groups = min(view.groups, others)
            parts = min(panels, ceil(others / groups))
            near = _near_chains(view, machine, spec, block) if spec.chains == 2 else 0
            loops = {"output_block": block, "panels": min(at_once, ceil(panels / parts)), "pass_chains": near}
            yield Division((view.groups, panels, there), (groups, parts, taken), threads, loops)
    if not spec.b.in_place and panel_bytes > machine.l2_bytes * constants.PANELS_SHARE:
        yield from _in_passes(view, machine, spec, threads)


def _near_chains(view: ForwardNest, machine: Machine, spec: GemmSpec, block: Sequence[int]) -> int:
    """Return how many portions a pass adds if their part of a panel of B is to fit in the first cache; 0 for one pass.

    Micro-tiles of portions have few rows, so they would read the second cache too often.
    """
    portions, leaf = view.taps * ceil(view.k / spec.leaf_terms), spec.pitch * spec.packed_k_bytes(spec.leaf_terms)
    near = max(1, int(machine.l1_bytes * constants.PORTION_PASS_SHARE) // leaf)
    if portions < 2 * near or not spec.holds_node(spec.mr, spec.nr):
        return 0
    many = max_tiles(view, block, spec)
    if many == 1 or many * waiting_bytes(view, spec) > constants.MAX_OPEN_SUMS_BYTES:
        return 0
    return ceil(portions / ceil(portions / near))


def _in_passes(view: ForwardNest, machine: Machine, spec: GemmSpec, threads: int) -> Iterator[Division]:
    """Yield ways to divide the work in passes. A pass adds some chains of a panel of B to all micro-tiles of a region.

    The part of B that a pass reads stays in the second cache. Sums stay in scratch between passes.
    """
    chains = max(
        1, int(machine.l2_bytes * constants.PASS_SHARE) // (spec.leaf_terms // spec.k_per_add * spec.width * F32_BYTES)
    )
    panels = panels_of(view, spec)
    for wanted in (1, threads, 2 * threads):
        block = _whole_block(view, wanted)
        if max_tiles(view, block, spec) * waiting_bytes(view, spec) > constants.MAX_OPEN_SUMS_BYTES:
            continue
        there = _count(view, block)
        of_pass = _near_chains(view, machine, spec, block) or chains
        for parts in sorted({min(panels, threads), min(panels, 2 * threads), panels}):
            loops = {"output_block": block, "panels": 1, "pass_chains": of_pass}
            yield Division((view.groups, panels, there), (1, parts, min(there, wanted)), threads, loops)


def _count(view: ForwardNest, block: Sequence[int]) -> int:
    """Return the number of output blocks of size ``block``."""
    return prod(ceil(axis.extent / size) for axis, size in zip(view.axes, block, strict=True))


def _whole_block(view: ForwardNest, wanted: int) -> tuple[int, ...]:
    """Return a size of output blocks for ``wanted`` or more blocks, if positions suffice. Outer axes are cut first."""
    size = []
    for axis in view.axes:
        parts = min(axis.extent, wanted)
        size.append(ceil(axis.extent / parts))
        wanted = ceil(wanted / parts)
    return tuple(size)


def waiting_bytes(view: ForwardNest, spec: GemmSpec) -> int:
    """Return the bytes of a micro-tile's sums between passes: one set of sums per level of the tree."""
    return levels(view) * spec.tile_bytes


def levels(view: ForwardNest) -> int:
    """Return the number of levels of the reduction tree, or 1 if there is only one chain."""
    return max(1, levels_of(view.order.blocks) + levels_of(view.order.units))


def max_tiles(view: ForwardNest, block: Sequence[int], spec: GemmSpec) -> int:
    """Return the maximum number of micro-tiles of a region, if output blocks have the size ``block``.

    If a plan has passes, scratch has room for the sums of so many micro-tiles. ``micro_tiles`` in
    `engines/llvm/gemm/region.py` gives each micro-tile of a pass its own sums.
    """
    of_regions = _max_tiles(view, block, spec, False)
    return max(of_regions, _max_tiles(view, block, spec, True)) if spec.padded else of_regions


def _max_tiles(view: ForwardNest, block: Sequence[int], spec: GemmSpec, padded: bool) -> int:
    axes = [parts_of(axis, size, padded) for axis, size in zip(view.axes, block, strict=True)]
    positions = prod(block)
    along = [  # 7 may take more than 8
        max(spec.tiling(count, beside=size < positions)[1] for count, _ in parts.counted)
        for size, parts in zip(block, axes, strict=True)
    ]
    longest = prod(parts.max_count for parts in axes)
    return max(longest // parts.max_count * many for parts, many in zip(axes, along, strict=True))


def _output_block(view: ForwardNest, machine: Machine, spec: GemmSpec, wanted: int, last_axis: int) -> tuple[int, ...]:
    """Return a size of output blocks whose A and outputs fit in the cache, and for which there are ``wanted`` blocks.

    The axis ``last_axis``, along which most micro-tiles run, is cut after the other axes and in whole micro-tiles.
    """
    share = constants.SPATIAL_BLOCK_SHARE if spec.a.contiguous == SPATIAL else constants.OUTPUT_BLOCK_SHARE
    size, have = [axis.extent for axis in view.axes], 1
    several = [axis for axis, extent in enumerate(size) if extent > 1]
    lines_axis, in_line = _scattered_axes(view, spec, several, last_axis)
    for axis in sorted(several, key=last_axis.__eq__):
        extent, unit = size[axis], spec.mr if axis == last_axis else 1
        reached, outputs = reached_bytes(view, size), prod(size) * F32_BYTES
        if spec.collects:
            reached += outputs * spec.pitch
        elif spec.out == CHANNELS:
            reached = max(reached, outputs * view.n)  # else panels would write to lines that left the cache
        room = max(1, int(machine.l2_bytes * share * (2 if axis == last_axis and have > 1 else 1)))
        if in_line and axis in (lines_axis, last_axis):
            reached += outputs * view.n
            room = max(1, int(machine.l2_bytes * constants.SCATTERED_LINE_SHARE))
        elif axis == lines_axis and reached + outputs * view.n > room:
            unit = _scattered_lines(view, machine, size, axis)
            reached += outputs * view.n
            room = max(1, int(machine.l2_bytes * constants.SCATTERED_BLOCK_SHARE))
        pieces = max(1.0, reached / room, wanted / have)
        if axis == last_axis and reached <= shared.MAX_OUTPUT_BLOCK_BYTES:
            pieces = min(pieces, extent / (constants.MIN_OUTPUT_BLOCK_TILES * spec.mr))
        whole = max(1, int(extent / max(1.0, pieces)))
        if whole < extent:
            size[axis] = ceil(ceil(extent / ceil(extent / whole)) / unit) * unit
            have *= ceil(extent / size[axis])
    return tuple(size)


def _scattered_axes(
    view: ForwardNest, spec: GemmSpec, several: Sequence[int], last_axis: int
) -> tuple[int | None, bool]:
    """Return the axis along which output blocks have few lines, if panels of B use parts of positions; see GemmSpec.

    Also return whether blocks may have parts of lines, because neighbouring lines have no input in common: their axis
    has one tap, or is that of the images. More lines per block would then read no line less often.
    """
    if view.merged == 1 or not spec.scatters_panels:  # panels of one group use whole positions
        return None, False
    lines = max((axis for axis in several if axis != last_axis), default=None)
    return lines, lines is None or view.axes[lines].kernel == 1


def _scattered_lines(view: ForwardNest, machine: Machine, size: Sequence[int], axis: int) -> int:
    """Return the minimum lines of a block along ``axis``: one step, or more so that lines of A are read less often."""
    along = view.axes[axis]
    step, lines = along.parts.step, max(constants.SCATTERED_BLOCK_LINES, along.kernel // 2)
    several = ceil(lines / step) * step
    block = [*size[:axis], min(along.extent, several), *size[axis + 1 :]]
    reached = reached_bytes(view, block) + prod(block) * F32_BYTES * view.n
    fits = reached <= machine.l2_bytes * constants.SCATTERED_LINE_SHARE
    return several if fits or along.kernel > constants.SCATTERED_LINE_TAPS else step


def reached_bytes(view: ForwardNest, size: Sequence[int]) -> int:
    """Return the estimated bytes of A that an output block reads, as f32."""
    return prod(_reach(axis, s) for axis, s in zip(view.axes, size, strict=True)) * view.channels * F32_BYTES


def _reach(axis: Along, size: int) -> int:
    """Return the estimated number of input positions from the first to the last that ``size`` output positions read."""
    between = (size - 1) * axis.parts.by_position // axis.parts.step
    return min(axis.inputs, between + axis.parts.reach + 1)
