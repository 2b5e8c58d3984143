"""The loop nest of weight gradients by packed panels:

    for cache block of task:
        for group:
            pack A and B
            for panel of B:
                for panel of A:
                    for micro-tile of taps:
                        for chain of cache block:
                            micro-kernel over the segments of the chain, whose sums are pushed to the reduction tree

The sums of all panels stay in scratch until the next cache block. After its last cache block, a task stores the sums.
If several tasks share a part of the weights, the last of these tasks reduces the partial sums of all leaves instead.
"""

from __future__ import annotations

from convgrad.engines.llvm import tree
from convgrad.engines.llvm.arguments import Named, going
from convgrad.engines.llvm.emit import Module, Value
from convgrad.engines.llvm.microkernel import by_width
from convgrad.engines.llvm.pairs import pairs_allowed
from convgrad.engines.llvm.split_k import pack
from convgrad.engines.llvm.split_k.nest import SplitKNest, combine_after, nest, trees, when_all_ended
from convgrad.engines.llvm.split_k.tile import tile
from convgrad.plan.split_k.recipe import SplitKSpec
from convgrad.plan.split_k.segments import SEGMENT
from convgrad.plan.split_k.taps import taps_record


def bodies(module: Module, spec: SplitKSpec) -> None:
    """Emit the functions that the nest calls: packing, the reduction tree, and a micro-kernel of each width."""
    pack.packs(module, spec)
    trees(module, spec)
    for vectors in widths(spec):
        tile(module, spec, vectors)


def widths(spec: SplitKSpec) -> list[int]:
    """Return the widths of the micro-kernels in vectors of B, the full width first.

    The smaller widths are for the last panel of channels, which may be narrower.

    >>> from convgrad.plan.machine import ISAS
    >>> from convgrad.plan.split_k.recipe import OUTER_PRODUCTS, MicroTileShape, SplitKOperand, SplitKSpec
    >>> from convgrad.plan.recipe import CHANNELS
    >>> operand = SplitKOperand(CHANNELS, width=8)
    >>> common = (ISAS["avx2"], "f32", "f32", OUTER_PRODUCTS)
    >>> [widths(SplitKSpec(*common, MicroTileShape(1, v), operand, operand)) for v in (4, 3)]
    [[4, 2, 1], [3, 2, 1]]
    """
    nr = spec.micro_tile.nr
    if spec.groups_in_lanes:
        return [nr]
    return [nr, *(1 << i for i in reversed(range((nr - 1).bit_length())))]


def task(module: Module, spec: SplitKSpec) -> None:
    """Emit ``task``, which runs the loop nest of a task. If each lane is a group, all groups are packed first."""
    n = nest(module, spec)
    f, args, t = n.f, n.args, n.task
    with n.cache_blocks() as block, f.when(going(f, args)):
        if spec.groups_in_lanes:
            for operand in n.operands:
                pack.groups(n, operand, block)
        with f.loop(t.groups, sums=f.at(f.scratch, args.sums_at)) as group:
            packed = tuple(pack.where(n, operand, block, group.index) for operand in n.operands)
            with f.loop(n.b.task.count, sums=group.sums) as b:
                with f.when(going(f, args)):
                    _panel_of_b(n, block, (group.index, b.index), packed, b.sums)
                b.next(sums=f.at(b.sums, n.a.task.count * t.taps * args.panel_sums))
            group.next(sums=b.sums)
    with when_all_ended(n):
        reduce_parts(n)
    f.done()


def _panel_of_b(
    n: SplitKNest, block: Named, numbers: tuple[Value, Value], packed: tuple[Value, ...], sums: Value
) -> None:
    """Emit the sums of a panel of B with all panels of A under all taps of the task.

    ``numbers`` are the number of the group within the task, and the number of the panel within the group.
    """
    f, args, t, (group, b), (a_packed, b_packed) = n.f, n.args, n.task, numbers, packed
    b_panel = pack.panel(n, n.b, b_packed, b)
    group_number, b_number = t.group + group, n.b.task.first + b
    left, first_tap = n.columns_left(group_number, b_number), f.at(args.taps, t.tap * taps_record(n.spec).bytes)
    with f.loop(n.a.task.count, sums=sums) as a:
        a_panel = pack.panel(n, n.a, a_packed, a.index)
        pairs = dict[str, Value]()
        if n.spec.k_per_add == 2:
            exponents = pack.min_exponents(n, n.a, a_packed, a.index), pack.min_exponents(n, n.b, b_packed, b)
            pairs["pairs"] = pairs_allowed(f, n.spec.isa, args, exponents)
        with f.when(going(f, args)), f.loop(t.taps, sums=a.sums, tap=first_tap) as tap:
            number = ((group * n.b.task.count + b) * n.a.task.count + a.index) * t.taps + tap.index
            partial = f.at(f.at(args.partial_sums, t.partial_sums), number * (args.leaves * n.spec.tile_bytes))
            _chains(n, block, (a_panel, b_panel), left, partial, {**pairs, "tap": tap.tap, "node": tap.sums})
            tap.next(sums=f.at(tap.sums, args.sums_step), tap=f.at(tap.tap, taps_record(n.spec).bytes))
        with f.when(f.compare("ne", block.stores, 0)):
            top = f.at(a.sums, args.sums_step - n.spec.tile_bytes)
            n.store(group_number, b_number, n.a.task.first + a.index, top, args.sums_step)
        a.next(sums=f.at(a.sums, t.taps * args.panel_sums))


def _chains(
    n: SplitKNest,
    block: Named,
    panels: tuple[Value, Value],
    left: Value,
    partial: Value,
    arguments: dict[str, Value],
) -> None:
    """Emit the sums of all chains of a cache block under one micro-tile of taps; push each chain to the tree.

    ``arguments`` are the row of the taps, the node of the tree, and whether bf16 pairs are allowed.
    """
    f, args = n.f, n.args
    with n.chains(block) as chain:
        before = chain.image - block.image
        a, b = (
            f.at(panel, before * operand.args.read_image) for panel, operand in zip(panels, n.operands, strict=True)
        )
        segments, begins = f.at(args.segments, chain.segment * SEGMENT.bytes), tree.begins(f, chain.number)
        of_chain = arguments | {
            "arguments": f.arguments,
            "first": begins,
            "x": a,
            "y": b,
            "segments": segments,
            "segment_count": chain.segments,
        }
        if n.spec.chains == 2:
            of_chain["portions"] = chain.portions
        by_width(f, n.spec.isa.lanes, widths(n.spec), left, "tile", of_chain)
        combine_after(n, arguments["node"], chain, partial)


def reduce_parts(n: SplitKNest) -> None:
    """Emit the reduction of the partial sums of all leaves of the task's weights, and store the results."""
    f, args, t = n.f, n.args, n.task
    step = args.leaves * n.spec.tile_bytes
    with f.loop(t.groups, partial=f.at(args.partial_sums, t.partial_sums)) as group:
        with f.loop(n.b.task.count, partial=group.partial) as b:
            with f.loop(n.a.task.count, partial=b.partial) as a:
                with f.loop(t.taps, partial=a.partial) as tap:
                    n.reduce(tap.partial)
                    tap.next(partial=f.at(tap.partial, step))
                where = (t.group + group.index, n.b.task.first + b.index, n.a.task.first + a.index)
                n.store(*where, a.partial, step)
                a.next(partial=tap.partial)
            b.next(partial=a.partial)
        group.next(partial=b.partial)
