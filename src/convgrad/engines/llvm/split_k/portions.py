"""Weight gradients by portions of 32 positions, which tiles of AMX or vectors multiply:

    for cache block of task:
        for group:
            pack dst
            for tap:
                pack src at the positions that the tap reads
                for panel of B:
                    for panel of A:
                        for chain of cache block:
                            multiply the portions of the chain, and push the sums to the reduction tree

The sums of all panels and taps stay in scratch until the task has its last cache block. They are ordered as [group]
[panel of B][panel of A][tap][level of the tree].
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from convgrad.engines.llvm import tree
from convgrad.engines.llvm.arguments import Named, columns, going
from convgrad.engines.llvm.emit import Function, Loop, Module, Value
from convgrad.engines.llvm.intrinsics import PAIR_SUMS, MultiplyAdd, high_sum, low_sum
from convgrad.engines.llvm.microkernel import (
    CHAIN_TAGS,
    Values,
    by_height,
    by_width,
    even_and_odd,
    heights_of,
    multiply_add,
    outer_product,
    sum_names,
)
from convgrad.engines.llvm.pairs import BF16_BYTES, pairs_allowed
from convgrad.engines.llvm.split_k import pack_cells
from convgrad.engines.llvm.split_k import pack_portions as pack
from convgrad.engines.llvm.split_k.gemm_nest import reduce_parts, widths
from convgrad.engines.llvm.split_k.nest import SplitKNest, combine_after, nest, trees, when_all_ended
from convgrad.engines.llvm.tiles import TILES, TileProduct
from convgrad.plan.machine import LINE_BYTES
from convgrad.plan.recipe import F32_BYTES
from convgrad.plan.split_k.portions import PORTIONS_CHAIN, own_parts
from convgrad.plan.split_k.recipe import SplitKSpec
from convgrad.plan.tables import placed
from convgrad.plan.tiling import SIDE, tile_rows
from convgrad.spec.order import SPLIT_TERMS

SEVERAL_ROWS = 4  # of a micro-tile of vectors


def bodies(module: Module, spec: SplitKSpec) -> None:
    """Emit the functions that the nest calls: packing, the reduction tree, and a micro-kernel of each width."""
    pack.lists(module, spec)
    (pack.of_tiles if spec.tiles else pack_cells.packs)(module, spec)
    trees(module, spec)
    for vectors in widths(spec):
        for rows in heights_of(spec.micro_tile.mr, SEVERAL_ROWS) if spec.tiles else ():
            by_vectors(module, spec, rows, vectors)
        (tile if spec.tiles else vector_tile)(module, spec, vectors)


# -- the loop nest --


def task(module: Module, spec: SplitKSpec) -> None:
    """Emit ``task``, which runs the loop nest of a task."""
    n = nest(module, spec)
    f, args, t = n.f, n.args, n.task
    own = {name: f.at(f.at(f.scratch, args.own_at), at) for name, at in placed(own_parts(spec))[0].items()}
    f.store(f.value(0), own["configured"])
    widest = f.max(n.a.args.channels, n.b.args.channels)
    with f.loop((widest * BF16_BYTES + (2 * LINE_BYTES - 1)) >> 6, to=own["zeros"]) as line:
        f.store(f.zeros(f"<{LINE_BYTES} x i8>"), line.to)
        line.next(to=f.at(line.to, LINE_BYTES))
    with n.cache_blocks() as block, f.when(going(f, args)):
        with f.loop(t.groups, sums=f.at(f.scratch, args.sums_at)) as group:
            for x in n.operands:
                if not x.operand.moves:
                    pack.panels(n, x, block, group.index, own, None)
            with f.loop(t.taps, sums=group.sums) as tap:
                with f.when(going(f, args)):
                    for x in n.operands:
                        if x.operand.moves:
                            pack.panels(n, x, block, group.index, own, t.tap + tap.index)
                    _panels(n, block, group.index, tap, own)
                tap.next(sums=f.at(tap.sums, args.sums_step))
            panels = n.b.task.count * n.a.task.count
            group.next(sums=f.at(group.sums, panels * t.taps * args.panel_sums))
        with f.when(f.compare("ne", block.stores, 0) & going(f, args)):
            _store(n)
    if spec.tiles:
        TILES[spec.isa.tiles](f).release()
    with when_all_ended(n):
        reduce_parts(n)
    f.done()


def _panels(n: SplitKNest, block: Named, group: Value, tap: Loop, own: Values) -> None:
    """Emit the sums of all panels of the task under a tap."""
    f, args, t = n.f, n.args, n.task
    packed = [f.at(f.scratch, x.args.at) for x in n.operands]
    number = group * n.b.task.count * n.a.task.count * t.taps + tap.index
    of_panels = {"sums": tap.sums, "number": number}
    with f.loop(n.b.task.count, y=packed[1], **of_panels) as b:
        left = n.columns_left(t.group + group, n.b.task.first + b.index)
        with f.loop(n.a.task.count, x=packed[0], **{name: b.carried[name] for name in of_panels}) as a:
            flags = {"finite": pack.finite(n, a.x, b.y)}
            if n.spec.k_per_add == 2:
                minima = (pack.minima(f, n.a, a.x), pack.minima(f, n.b, b.y))
                flags["pairs"] = pairs_allowed(f, n.spec.isa, args, minima) & flags["finite"]
            partial = f.at(f.at(args.partial_sums, t.partial_sums), a.number * (args.leaves * n.spec.tile_bytes))
            existing = f.at(args.existing, (t.tap + tap.index) * args.portions * pack.BITS_BYTES)
            with f.loop(
                block.chains, x=a.x, y=b.y, chain=f.at(args.chains, block.chain * PORTIONS_CHAIN.bytes)
            ) as iteration:
                chain = columns(f, iteration.chain, PORTIONS_CHAIN)
                of_chain = {
                    "arguments": f.arguments,
                    "x": iteration.x,
                    "y": iteration.y,
                    **flags,
                    "portions": chain.portions,
                    "terms": chain.terms,
                    "existing": f.at(existing, chain.portion * pack.BITS_BYTES),
                    "node": a.sums,
                    "first": tree.begins(f, chain.number),
                }
                if n.spec.tiles:
                    of_chain |= {name: own[name] for name in ("sums", "configured")}
                by_width(f, n.spec.isa.lanes, widths(n.spec), left, "tile", of_chain)
                combine_after(n, a.sums, chain, partial)
                iteration.next(
                    x=f.at(iteration.x, chain.portions * pack.portion_bytes(n.spec, n.spec.a)),
                    y=f.at(iteration.y, chain.portions * pack.portion_bytes(n.spec, n.spec.b)),
                    chain=f.at(iteration.chain, PORTIONS_CHAIN.bytes),
                )
            a.next(x=f.at(a.x, n.a.args.panel), sums=f.at(a.sums, t.taps * args.panel_sums), number=a.number + t.taps)
        b.next(y=f.at(b.y, n.b.args.panel), **{name: a.carried[name] for name in of_panels})


def _store(n: SplitKNest) -> None:
    """Store the sums of all panels of the task."""
    f, args, t = n.f, n.args, n.task
    with f.loop(t.groups, sums=f.at(f.scratch, args.sums_at)) as group:
        with f.loop(n.b.task.count, sums=group.sums) as b:
            with f.loop(n.a.task.count, sums=b.sums) as a:
                top = f.at(a.sums, args.sums_step - n.spec.tile_bytes)
                where = (t.group + group.index, n.b.task.first + b.index, n.a.task.first + a.index)
                n.store(*where, top, args.sums_step)
                a.next(sums=f.at(a.sums, t.taps * args.panel_sums))
            b.next(sums=a.sums)
        group.next(sums=b.sums)


# -- the micro-kernels --


def tile(module: Module, spec: SplitKSpec, vectors: int) -> None:
    """Emit ``tile<vectors>``, which computes the sums of a chain and pushes them to ``node``.

    Tiles flush denormals to zero, and add zero times dst where a tap reads padding. If ``pairs`` is 0, the data does
    not permit this, and vectors add the terms that exist. ``sums`` is memory for the sums of a chain.
    """
    f = module.function(
        f"tile{vectors}",
        False,
        arguments="ptr",
        x="ptr",
        y="ptr",
        finite="i64",
        pairs="i64",
        portions="i64",
        terms="i64",
        existing="ptr",
        node="ptr",
        first="i1",
        sums="ptr",
        configured="ptr",
    )
    to, pitch = f.select(f.first, f.node, f.sums), spec.width * F32_BYTES
    with f.when(f.compare("ne", f.pairs, 0)):
        _by_tiles(f, spec, vectors, to)
    with f.otherwise():

        def some(first: Value, rows: int) -> None:
            of_rows = {"x": f.at(f.x, first * LINE_BYTES), "sums": f.at(to, first * pitch)}
            same = {name: f.parameters[name] for name in ("y", "portions", "terms", "existing")}
            f.call(f"by_vectors{rows}_{vectors}", **of_rows, **same)

        by_height(f, spec.micro_tile.mr, SEVERAL_ROWS, some)
    added = f.select(f.first, f.value(0), f.value(spec.micro_tile.mr))
    with f.loop(added, child=f.sums, parent=f.node) as line:
        places = [f.at(line.parent, v * LINE_BYTES) for v in range(vectors)]
        values = [f.load(f"<{SIDE} x float>", line.child, v * LINE_BYTES) for v in range(vectors)]
        tree.push(f, values, places, Value(f, "i1", "false"))
        line.next(child=f.at(line.child, pitch), parent=f.at(line.parent, pitch))
    f.done()


def vector_tile(module: Module, spec: SplitKSpec, vectors: int) -> None:
    """Emit ``tile<vectors>`` for vectors, which computes the sums of a chain and pushes them to ``node``.

    Rows of cells are added to both chains in turn. If ``pairs`` is 0, halves of pairs are added one by one. If
    ``finite`` is 0, only the terms that exist are added.
    """
    flags = {"finite": "i64", "pairs": "i64"} if spec.k_per_add == 2 else {"finite": "i64"}
    of_memory = {"x": "ptr", "y": "ptr", "portions": "i64", "terms": "i64", "existing": "ptr", "node": "ptr"}
    f = module.function(f"tile{vectors}", False, arguments="ptr", **of_memory, first="i1", **flags)
    kind, vector_bytes = f"<{spec.isa.lanes} x float>", spec.isa.lanes * F32_BYTES
    names = [name for tag in CHAIN_TAGS for name in sum_names(spec.micro_tile.mr, vectors, tag)]
    zeros, half = {name: f.zeros(kind) for name in names}, len(names) // 2
    memory = f.alloca(kind, half)
    blocks = [f.at(memory, n * vector_bytes) for n in range(half)]
    for place in blocks:
        f.store(f.zeros(kind), place)
    single = (high_sum, low_sum) if spec.k_per_add == 2 else (multiply_add,)
    fast = PAIR_SUMS[spec.isa.pairs] if spec.k_per_add == 2 else multiply_add
    turns, allowed = f.value(SPLIT_TERMS // (2 * spec.k_per_add)), f.pairs if spec.k_per_add == 2 else f.finite
    begin = {"x": f.x, "y": f.y, "existing": f.existing, "left": f.terms}
    with f.loop(f.portions, **begin) as portion:
        state = {"a": portion.x, "b": portion.y, **zeros}
        state = _turns(f, spec, vectors, turns & allowed, state, ((fast,), None))
        bits = pack.within(f, portion.left) & f.load("i64", portion.existing)
        state = _turns(f, spec, vectors, turns & (f.value(-1) - allowed), state, (single, bits))
        sums = even_and_odd(f, [state[name] for name in names])
        for value, place in zip(sums, blocks, strict=True):
            f.store(f.add(f.load(kind, place), value), place)
        portion.next(
            x=f.at(portion.x, pack.portion_bytes(spec, spec.a)),
            y=f.at(portion.y, pack.portion_bytes(spec, spec.b)),
            existing=f.at(portion.existing, pack.BITS_BYTES),
            left=portion.left - SPLIT_TERMS,
        )
    shape = product(range(spec.micro_tile.mr), range(vectors))
    node = [f.at(f.node, (r * spec.micro_tile.nr + v) * vector_bytes) for r, v in shape]
    tree.push(f, [f.load(kind, place) for place in blocks], node, f.first)
    f.done()


def _turns(
    f: Function,
    spec: SplitKSpec,
    vectors: int,
    count: Value,
    state: Values,
    how: tuple[Sequence[MultiplyAdd], Value | None],
) -> Values:
    """Emit a loop that adds a row of cells to each chain, and return the new state.

    ``how`` are the multiply-adds of a cell, and bits or None. Terms without a bit are skipped.
    """
    adds, bits = how
    lanes, shape, word = spec.isa.lanes, spec.micro_tile, "float" if spec.k_per_add == 1 else "i32"
    with f.loop(count, **state, **({} if bits is None else {"bits": bits})) as turn:
        for chain in range(2):
            a, b = f.at(turn.a, chain * shape.mr * F32_BYTES), f.at(turn.b, chain * spec.width * F32_BYTES)
            columns = [f.load(f"<{lanes} x {word}>", b, v * lanes * F32_BYTES) for v in range(vectors)]
            for n, add in enumerate(adds):
                exists = None if bits is None else f.compare("ne", turn.bits & (1 << (chain + 2 * n)), 0)
                rows = (f.splat(f.load(word, a, r * F32_BYTES), lanes) for r in range(shape.mr))
                outer_product(turn.following, rows, columns, add, CHAIN_TAGS[chain], exists)
        turn.next(a=f.at(turn.a, 2 * shape.mr * F32_BYTES), b=f.at(turn.b, 2 * spec.width * F32_BYTES))
        if bits is not None:
            turn.next(bits=turn.bits >> (2 * spec.k_per_add))
    return {name: turn.carried[name] for name in state}


def _by_tiles(f: Function, spec: SplitKSpec, vectors: int, to: Value) -> None:
    """Multiply all portions by tiles, and store the sums at ``to``."""
    heights, pitch = tile_rows(spec.micro_tile.mr), spec.width * F32_BYTES
    tiles = TileProduct(f, spec.isa.tiles, heights, vectors)
    tiles.configure(f.configured)
    tiles.zero()
    with f.loop(f.portions, x=f.x, y=f.y) as portion:
        rows = [f.at(portion.x, sum(heights[:n]) * LINE_BYTES) for n in range(len(heights))]
        tiles.multiply(rows, f.value(LINE_BYTES), portion.y, spec.micro_tile.nr * LINE_BYTES)
        portion.next(
            x=f.at(portion.x, pack.portion_bytes(spec, spec.a)), y=f.at(portion.y, pack.portion_bytes(spec, spec.b))
        )
    tiles.store(to, pitch)


def by_vectors(module: Module, spec: SplitKSpec, rows: int, vectors: int) -> None:
    """Emit ``by_vectors<rows>_<vectors>``, which computes the sums of some rows from the terms that exist."""
    name = f"by_vectors{rows}_{vectors}"
    f = module.function(name, False, x="ptr", y="ptr", sums="ptr", portions="i64", terms="i64", existing="ptr")
    kind, shape = f"<{SIDE} x float>", list(product(range(rows), range(vectors)))
    totals, chains = ({f"{tag}{r}_{v}": f.zeros(kind) for r, v in shape} for tag in ("total", "chain"))
    odd = {f"odd{r}_{v}": f.zeros(kind) for r, v in shape}
    begin = {"x": f.x, "y": f.y, "existing": f.existing, "left": f.terms}
    with f.loop(f.portions, **begin, **totals) as portion:
        bits = pack.within(f, portion.left) & f.load("i64", portion.existing)
        with f.loop(pack.PAIRS, a=portion.x, b=portion.y, bits=bits, **chains, **odd) as pair:
            ys = [f.load(pack.WORDS, pair.b, v * LINE_BYTES) for v in range(vectors)]
            xs = [f.splat(f.load("i32", pair.a, r * LINE_BYTES), SIDE) for r in range(rows)]
            for chain, bit, add in (("chain", 1, low_sum), ("odd", 2, high_sum)):
                exists = f.compare("ne", pair.bits & bit, 0)
                for r, v in shape:
                    before = pair.carried[f"{chain}{r}_{v}"]
                    pair.next(**{f"{chain}{r}_{v}": f.select(exists, add(f, before, xs[r], ys[v]), before)})
            step = spec.micro_tile.nr * LINE_BYTES
            pair.next(a=f.at(pair.a, F32_BYTES), b=f.at(pair.b, step), bits=pair.bits >> 2)
        for r, v in shape:
            both = f.add(pair.carried[f"chain{r}_{v}"], pair.carried[f"odd{r}_{v}"])
            portion.next(**{f"total{r}_{v}": f.add(portion.carried[f"total{r}_{v}"], both)})
        portion.next(
            x=f.at(portion.x, pack.portion_bytes(spec, spec.a)),
            y=f.at(portion.y, pack.portion_bytes(spec, spec.b)),
            existing=f.at(portion.existing, pack.BITS_BYTES),
            left=portion.left - SPLIT_TERMS,
        )
    for r, v in shape:
        f.store(portion.carried[f"total{r}_{v}"], f.sums, r * spec.width * F32_BYTES + v * LINE_BYTES)
    f.done()
