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

from contextlib import ExitStack
from itertools import product

from convgrad.engines.llvm import tree
from convgrad.engines.llvm.arguments import Named, columns, going
from convgrad.engines.llvm.emit import Function, Loop, Module, Value
from convgrad.engines.llvm.intrinsics import PAIR_SUMS, MultiplyAdd, high_sum, low_sum
from convgrad.engines.llvm.microkernel import (
    CHAIN_TAGS,
    VECTOR_ROWS,
    Values,
    by_height,
    by_width,
    even_and_odd,
    heights_of,
    multiply_add,
    outer_product,
    sum_names,
)
from convgrad.engines.llvm.pairs import BF16_BYTES, minima_of, pairs_allowed
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
from convgrad.plan.tiling import holds_node, tile_rows
from convgrad.spec.order import SPLIT_TERMS

PARAMETERS = {
    "x": "ptr",
    "y": "ptr",
    "existing": "ptr",  # bits of the terms of each portion
    "sums": "ptr",  # memory for the sums of a chain
    "node": "ptr",  # the sums of the node to which those of the chain are pushed
    "fast": "i64",  # -1 if the data permits tiles or pairs, and zeros where a tap reads padding, else 0
    "portions": "i64",
    "terms": "i64",
    "first": "i1",  # whether the chain is the first of its node
}


def bodies(module: Module, spec: SplitKSpec) -> None:
    """Emit the functions that the nest calls: packing, the reduction tree, and a micro-kernel of each width."""
    pack.lists(module, spec)
    (pack.of_tiles if spec.amx_tiles else pack_cells.packs)(module, spec)
    trees(module, spec)
    for vectors in widths(spec):
        for rows in heights_of(spec.micro_tile.mr, _height(spec)):
            by_vectors(module, spec, rows, vectors)
        tile(module, spec, vectors)


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
    if spec.amx_tiles:
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
            fast = pack.finite(n, a.x, b.y)
            if n.spec.k_per_add == 2:
                minima = (minima_of(f, a.x, n.a.args.panel), minima_of(f, b.y, n.b.args.panel))
                fast = pairs_allowed(f, n.spec.isa, args, minima) & fast
            partial = f.at(f.at(args.partial_sums, t.partial_sums), a.number * (args.leaves * n.spec.tile_bytes))
            existing = f.at(args.existing, (t.tap + tap.index) * args.portions * pack.BITS_BYTES)
            with f.loop(
                block.chains, x=a.x, y=b.y, chain=f.at(args.chains, block.chain * PORTIONS_CHAIN.bytes)
            ) as iteration:
                chain = columns(f, iteration.chain, PORTIONS_CHAIN)
                of_chain = {
                    "x": iteration.x,
                    "y": iteration.y,
                    "fast": fast,
                    "portions": chain.portions,
                    "terms": chain.terms,
                    "existing": f.at(existing, chain.portion * pack.BITS_BYTES),
                    "node": a.sums,
                    "first": tree.begins(f, chain.number),
                    "sums": own["sums"],
                    "configured": own["configured"],
                }
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

    ``configured`` is the address of the configuration of the thread's tiles, as a number.
    """
    more = {"configured": "ptr"} if spec.amx_tiles else {}
    f = module.function(f"tile{vectors}", False, **PARAMETERS, **more)
    pitch = spec.width * F32_BYTES

    def some(first: Value, rows: int) -> None:
        of_rows = {"x": f.at(f.x, first * _a_steps(spec)[0]), "node": f.at(f.node, first * pitch)}
        f.call(f"by_vectors{rows}_{vectors}", **f.parameters | of_rows)

    with ExitStack() as otherwise:
        if spec.amx_tiles:
            with f.when(f.compare("ne", f.fast, 0)):
                _by_tiles(f, spec, vectors)
            otherwise.enter_context(f.otherwise())
        by_height(f, spec.micro_tile.mr, _height(spec), some)
    f.done()


def _by_tiles(f: Function, spec: SplitKSpec, vectors: int) -> None:
    """Multiply all portions by tiles, and store the sums."""
    heights = tile_rows(spec.micro_tile.mr)
    tiles = TileProduct(f, spec.isa.tiles, heights, vectors)
    tiles.configure(f.configured)
    tiles.zero()
    with f.loop(f.portions, x=f.x, y=f.y) as portion:
        rows = [f.at(portion.x, sum(heights[:n]) * LINE_BYTES) for n in range(len(heights))]
        tiles.multiply(rows, f.value(LINE_BYTES), portion.y, spec.micro_tile.nr * LINE_BYTES)
        portion.next(**_next_portion(f, spec, portion))
    pitch, vector_bytes = spec.width * F32_BYTES, spec.isa.lanes * F32_BYTES
    tiles.store(f.sums, pitch)
    with f.loop(spec.micro_tile.mr, child=f.sums, parent=f.node) as row:
        places = [f.at(row.parent, v * vector_bytes) for v in range(vectors)]
        values = [f.load(f"<{spec.isa.lanes} x float>", row.child, v * vector_bytes) for v in range(vectors)]
        tree.push(f, values, places, f.first)
        row.next(child=f.at(row.child, pitch), parent=f.at(row.parent, pitch))


def by_vectors(module: Module, spec: SplitKSpec, rows: int, vectors: int) -> None:
    """Emit ``by_vectors<rows>_<vectors>``, which computes the sums of some rows of A by vectors.

    If ``fast`` is 0, only the terms that exist are added, one by one. If the two chains of a portion fill the
    registers, the sums of portions are added up in memory.
    """
    f = module.function(f"by_vectors{rows}_{vectors}", False, **PARAMETERS)
    kind, shape, nr = f"<{spec.isa.lanes} x float>", (rows, vectors), spec.micro_tile.nr
    offsets = [(r * nr + v) * spec.isa.lanes * F32_BYTES for r, v in product(range(rows), range(vectors))]
    in_registers = holds_node(spec.isa, rows, vectors)
    begin = {f"block{number}": f.zeros(kind) for number in range(len(offsets))}
    if not in_registers:
        for offset, nothing in zip(offsets, begin.values(), strict=True):
            f.store(nothing, f.sums, offset)
        begin = {}
    zeros = {name: f.zeros(kind) for tag in CHAIN_TAGS for name in sum_names(rows, vectors, tag)}
    with f.loop(f.portions, x=f.x, y=f.y, existing=f.existing, left=f.terms, **begin) as portion:
        state = {"a": portion.x, "b": portion.y, **zeros}
        if not spec.amx_tiles:
            state = _turns(f, spec, shape, f.fast, state)
        bits = pack.within(f, portion.left) & f.load("i64", portion.existing)
        state = _turns(f, spec, shape, f.value(-1) - f.fast, state, bits)
        sums = even_and_odd(f, [state[name] for name in zeros])
        if in_registers:
            portion.next(**{name: f.add(portion.carried[name], value) for name, value in zip(begin, sums, strict=True)})
        else:
            for value, offset in zip(sums, offsets, strict=True):
                f.store(f.add(f.load(kind, f.sums, offset), value), f.sums, offset)
        portion.next(
            **_next_portion(f, spec, portion),
            existing=f.at(portion.existing, pack.BITS_BYTES),
            left=portion.left - SPLIT_TERMS,
        )
    block = [portion.carried[name] for name in begin] or [f.load(kind, f.sums, offset) for offset in offsets]
    tree.push(f, block, [f.at(f.node, offset) for offset in offsets], f.first)
    f.done()


def _next_portion(f: Function, spec: SplitKSpec, portion: Loop) -> Values:
    """Return the addresses of the next portion in A and B."""
    x, y = (f.at(at, pack.portion_bytes(spec, operand)) for at, operand in ((portion.x, spec.a), (portion.y, spec.b)))
    return {"x": x, "y": y}


def _height(spec: SplitKSpec) -> int:
    """Return the most rows of a micro-tile of vectors."""
    return VECTOR_ROWS if spec.amx_tiles else spec.micro_tile.mr


def _a_steps(spec: SplitKSpec) -> tuple[int, int]:
    """Return the bytes from a channel of A to the next, and from a cell of a channel to the next."""
    return (LINE_BYTES, F32_BYTES) if spec.amx_tiles else (F32_BYTES, spec.micro_tile.mr * F32_BYTES)


def _adds(spec: SplitKSpec, singly: bool) -> list[list[tuple[int, MultiplyAdd, int]]]:
    """Return the multiply-adds of each cell of a turn: the chain, the multiply-add, and the number of the term.

    A cell for tiles has a term of each chain. For vectors, a turn has a cell of each chain, with one term or a pair.
    """
    if spec.amx_tiles:
        return [[(0, low_sum, 0), (1, high_sum, 1)]]
    adds: list[MultiplyAdd] = [multiply_add]
    if spec.k_per_add == 2:
        adds = [high_sum, low_sum] if singly else [PAIR_SUMS[spec.isa.pairs]]
    return [[(chain, add, chain + 2 * n) for n, add in enumerate(adds)] for chain in range(2)]


def _turns(
    f: Function, spec: SplitKSpec, shape: tuple[int, int], enabled: Value, state: Values, bits: Value | None = None
) -> Values:
    """Emit a loop over the cells of a portion, and return the new state. If ``enabled`` is 0, nothing is added.

    With ``bits``, terms are added one by one, and those without a bit are skipped.
    """
    (rows, vectors), lanes, word = shape, spec.isa.lanes, "float" if spec.k_per_add == 1 else "i32"
    cells, (row_step, cell_step), b_step = _adds(spec, bits is not None), _a_steps(spec), spec.width * F32_BYTES
    terms = len(cells) * spec.k_per_add
    with f.loop(enabled & (SPLIT_TERMS // terms), **state, **({} if bits is None else {"bits": bits})) as turn:
        for number, adds in enumerate(cells):
            a, b = f.at(turn.a, number * cell_step), f.at(turn.b, number * b_step)
            columns_of_b = [f.load(f"<{lanes} x {word}>", b, v * lanes * F32_BYTES) for v in range(vectors)]
            for chain, add, term in adds:
                exists = None if bits is None else f.compare("ne", turn.bits & (1 << term), 0)
                rows_of_a = (f.splat(f.load(word, a, r * row_step), lanes) for r in range(rows))
                outer_product(turn.following, rows_of_a, columns_of_b, add, CHAIN_TAGS[chain], exists)
        turn.next(a=f.at(turn.a, len(cells) * cell_step), b=f.at(turn.b, len(cells) * b_step))
        if bits is not None:
            turn.next(bits=turn.bits >> terms)
    return {name: turn.carried[name] for name in state}
