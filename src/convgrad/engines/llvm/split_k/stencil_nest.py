"""The loop nest of the direct depthwise kernel of weight gradients.

Rows of dst are the outer loop, and groups are the inner loop, so that src and dst are read in the order of memory. The
chains of all groups are in scratch until they are complete.
"""

from __future__ import annotations

from convgrad.engines.llvm import tree
from convgrad.engines.llvm.arguments import Named, going
from convgrad.engines.llvm.emit import Module, Value
from convgrad.engines.llvm.split_k.nest import SplitKNest, combine_after, nest, trees, when_all_ended
from convgrad.engines.llvm.split_k.stencil import depthwise, first_group
from convgrad.plan.recipe import F32_BYTES
from convgrad.plan.split_k.constants import DEPTHWISE_PANELS
from convgrad.plan.split_k.recipe import SplitKSpec
from convgrad.plan.split_k.segments import SEGMENT
from convgrad.plan.split_k.taps import taps_record


def bodies(module: Module, spec: SplitKSpec) -> None:
    """Emit the functions that the nest calls: the kernel and the reduction tree."""
    depthwise(module, spec)
    trees(module, spec)


def task(module: Module, spec: SplitKSpec) -> None:
    """Emit ``task``, which sums the chains of all its groups in all cache blocks, and stores the sums."""
    n = nest(module, spec)
    f, args, t = n.f, n.args, n.task
    sums = f.at(f.scratch, args.sums_at)
    with n.cache_blocks() as block, n.chains(block) as chain, f.when(going(f, args)):
        _segments(n, sums, chain)
        _push(n, sums, chain)
    with f.when(f.compare("eq", args.image_parts, 1) & going(f, args)):
        _store(n, f.at(sums, args.sums_step - spec.tile_bytes), args.sums_step)
    with when_all_ended(n):
        partial, step = f.at(args.partial_sums, t.partial_sums), args.leaves * spec.tile_bytes
        with f.loop(t.groups * t.taps, partial=partial) as iteration:
            n.reduce(iteration.partial)
            iteration.next(partial=f.at(iteration.partial, step))
        _store(n, partial, step)
    f.done()


def _segments(n: SplitKNest, sums: Value, chain: Named) -> None:
    """Emit the sum of a chain for all groups of a task.

    If there are several micro-tiles of taps, only DEPTHWISE_PANELS panels of groups are summed at a time. So their rows
    are still in the first cache for the next micro-tile.
    """
    f, args, t, taps = n.f, n.args, n.task, taps_record(n.spec)
    panel_sums = t.taps * args.sums_step
    one_tile = f.compare("eq", t.taps, 1)
    at_a_time = f.select(one_tile, t.groups, f.value(DEPTHWISE_PANELS))
    parts = f.select(one_tile, f.value(1), (t.groups + (DEPTHWISE_PANELS - 1)) >> (DEPTHWISE_PANELS.bit_length() - 1))
    with f.loop(chain.segments, segment=f.at(args.segments, chain.segment * SEGMENT.bytes)) as segment:
        begins = f.compare("eq", segment.index, 0)
        with f.loop(parts) as part:
            begin = part.index * at_a_time
            panels, there = f.min(t.groups - begin, at_a_time), f.at(sums, begin * panel_sums)
            with f.loop(t.taps, sums=there, tap=f.at(args.taps, t.tap * taps.bytes)) as tap:
                where = {"image": chain.image, "segment": segment.segment, "tap": tap.tap, "group": t.group + begin}
                chain_of = {"chain": tap.sums, "chain_step": panel_sums, "panels": panels, "begins": begins}
                f.call("depthwise", arguments=f.arguments, **chain_of, **where)
                tap.next(sums=f.at(tap.sums, args.sums_step), tap=f.at(tap.tap, taps.bytes))
        segment.next(segment=f.at(segment.segment, SEGMENT.bytes))


def _push(n: SplitKNest, sums: Value, chain: Named) -> None:
    """Emit the push of a chain to the reduction tree, for all groups of a task."""
    f, args, t, size = n.f, n.args, n.task, n.spec.tile_bytes
    with f.loop(t.groups * t.taps, sums=sums, partial=f.at(args.partial_sums, t.partial_sums)) as iteration:
        above = f.at(iteration.sums, size)
        f.call("combine", iteration.sums, above, size, tree.begins(f, chain.number))
        combine_after(n, above, chain, iteration.partial)
        iteration.next(sums=f.at(iteration.sums, args.sums_step), partial=f.at(iteration.partial, args.leaves * size))


def _store(n: SplitKNest, sums: Value, sums_step: Value) -> None:
    """Store the sums of all groups. Groups of the last panel that the previous panel also has are stored once."""
    f, t = n.f, n.task
    with f.loop(t.groups, sums=sums) as panel:
        number = t.group + panel.index
        group = number * n.spec.isa.lanes
        again = group - first_group(f, n.spec, n.args, group)
        n.store(number, f.value(0), f.value(0), f.at(panel.sums, again * F32_BYTES), sums_step)
        panel.next(sums=f.at(panel.sums, t.taps * sums_step))
