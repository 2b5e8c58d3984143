"""The nest of strips: rows of dst as they lie, all groups of a row, then the next.

The chains of a block wait in scratch while the other groups have their turn, so that memory is read as it lies.
"""

from __future__ import annotations

from convgrad.engines.llvm import tree
from convgrad.engines.llvm.arguments import Named, columns, going
from convgrad.engines.llvm.backward_weights.nest import Nest, combine_after, nest, trees, when_all_ended
from convgrad.engines.llvm.backward_weights.stencil import first_group, strip
from convgrad.engines.llvm.emit import Module, Value
from convgrad.plan.backward_weights.lines import LINE
from convgrad.plan.backward_weights.recipe import KernelSpec
from convgrad.plan.backward_weights.slices import INDEX
from convgrad.plan.backward_weights.taps import TAP
from convgrad.plan.constants import DEPTHWISE_PANELS
from convgrad.plan.recipe import F32_BYTES
from convgrad.plan.tree import CHAIN


def bodies(module: Module, spec: KernelSpec) -> None:
    """Emit what the nest calls beside what all nests do."""
    strip(module, spec)
    trees(module, spec)


def task(module: Module, spec: KernelSpec) -> None:
    """Emit ``task``: its groups in all chunks, block by block; then the sums of each become output."""
    n = nest(module, spec)
    f, a, t = n.f, n.a, n.t
    sums = f.at(f.scratch, a.sums_at)
    with n.cache_blocks() as c:
        index, chain = f.at(a.line_index, c.index * INDEX.bytes), f.at(a.chains, c.chain * CHAIN.bytes)
        with f.loop(c.chains, entry=index, chain=chain, image=c.image, images=c.images) as block:
            with f.when(going(f, a)):
                _lines(n, sums, block.entry, block.image, f.min(block.images, a.chain_images))
                _combined(n, sums, columns(f, block.chain, CHAIN))
            block.next(
                entry=f.at(block.entry, a.index_step), chain=f.at(block.chain, CHAIN.bytes),
                image=block.image + a.chain_step, images=block.images - a.chain_step,
            )  # fmt: skip
    with f.when(f.compare("eq", a.image_parts, 1) & going(f, a)):
        _finished(n, f.at(sums, a.sums_step - spec.tile_bytes), a.sums_step)
    with when_all_ended(f, a, t):
        kept, step = f.at(a.partial_sums, t.partial_sums), a.units * spec.tile_bytes
        with f.loop(t.groups * t.taps, kept=kept) as each:
            n.reduce(each.kept)
            each.next(kept=f.at(each.kept, step))
        _finished(n, kept, step)
    f.done()


def _lines(n: Nest, sums: Value, entry: Value, first: Value, images: Value) -> None:
    """One block of all groups of a task.

    Under several tiles of taps, few panels of groups at a time: their rows are met again in the first cache.
    """
    f, a, t = n.f, n.a, n.t
    first_line, lines = f.load("i64", entry), f.load("i64", entry, 8)
    panel_sums = t.taps * a.sums_step
    one_tile = f.compare("eq", t.taps, 1)
    together = f.select(one_tile, t.groups, f.value(DEPTHWISE_PANELS))
    pieces = f.select(one_tile, f.value(1), (t.groups + (DEPTHWISE_PANELS - 1)) >> (DEPTHWISE_PANELS.bit_length() - 1))
    with f.loop(images) as image:
        number = first + image.index
        with f.loop(lines, line=f.at(a.lines, first_line * LINE.bytes)) as line:
            begins = f.compare("eq", image.index + line.index, 0)
            with f.loop(pieces) as piece:
                begin = piece.index * together
                panels, there = f.min(t.groups - begin, together), f.at(sums, begin * panel_sums)
                with f.loop(t.taps, sums=there, tap=f.at(a.taps, t.tap * TAP.bytes)) as tap:
                    where = (number, line.line, tap.tap, t.group + begin)
                    f.call("strip", f.arguments, tap.sums, panel_sums, panels, begins, *where)
                    tap.next(sums=f.at(tap.sums, a.sums_step), tap=f.at(tap.tap, TAP.bytes))
            line.next(line=f.at(line.line, LINE.bytes))


def _combined(n: Nest, sums: Value, chain: Named) -> None:
    """Push the chains of a block, of all groups of a task."""
    f, a, t = n.f, n.a, n.t
    with f.loop(t.groups * t.taps, sums=sums, kept=f.at(a.partial_sums, t.partial_sums)) as each:
        above = f.at(each.sums, n.spec.tile_bytes)
        f.call("combine", each.sums, above, n.spec.tile_bytes, tree.begins(f, chain.number))
        combine_after(n, above, chain, each.kept)
        each.next(sums=f.at(each.sums, a.sums_step), kept=f.at(each.kept, a.units * n.spec.tile_bytes))


def _finished(n: Nest, sums: Value, sums_step: Value) -> None:
    """The last panel of groups overlaps the one before: what that one has is not written again."""
    f, t = n.f, n.t
    with f.loop(t.groups, sums=sums) as panel:
        number = t.group + panel.index
        group = number * n.spec.isa.lanes
        again = group - first_group(f, n.spec, n.a, group)
        n.store(number, f.value(0), f.value(0), f.at(panel.sums, again * F32_BYTES), sums_step)
        panel.next(sums=f.at(panel.sums, t.taps * sums_step))
