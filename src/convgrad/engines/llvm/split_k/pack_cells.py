"""Packing of portions of 32 positions for vectors.

A panel has a row of cells for each position, in f32, or for each pair of positions of one chain. Rows of the even chain
and of the odd one take turns.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product

from convgrad.engines.llvm.emit import Loop, Module, Value
from convgrad.engines.llvm.packing import Cells, Copy
from convgrad.engines.llvm.pairs import BF16_BYTES
from convgrad.engines.llvm.split_k.pack_portions import PACKING, SEGMENTS, Extremes, by_segments
from convgrad.plan.machine import LINE_BYTES
from convgrad.plan.recipe import CHANNELS, F32_BYTES
from convgrad.plan.split_k.portions import ADDRESS_BYTES
from convgrad.plan.split_k.recipe import SplitKOperand, SplitKSpec
from convgrad.spec.order import SPLIT_TERMS


def packs(module: Module, spec: SplitKSpec) -> None:
    """Emit ``pack_a`` and ``pack_b``."""
    for name, operand in (("a", spec.a), ("b", spec.b)):
        (pack_cells if operand.contiguous == CHANNELS else transpose_cells)(module, spec, name, operand)


def pack_cells(module: Module, spec: SplitKSpec, name: str, operand: SplitKOperand) -> None:
    """Emit ``pack_a`` or ``pack_b`` for contiguous channels. The last panel of A may overlap the one before."""
    f, lanes, terms = module.function(f"pack_{name}", False, **PACKING), spec.isa.lanes, 2 * spec.k_per_add
    width, piece = operand.width, min(lanes, 1 << (operand.width.bit_length() - 1))
    starts = sorted({*range(0, width - piece, piece), width - piece})

    def packed(panel: Loop, first: Value, left: Value | None) -> None:
        extremes = Extremes(f, lanes, panel.minima, of_dst=not operand.moves, of_pairs=spec.compact)
        for chain, start in product(range(2), starts):
            places = [f.load("ptr", panel.places, (chain + 2 * n) * ADDRESS_BYTES) for n in range(spec.k_per_add)]
            cells = Cells(f, spec.operand, lanes)
            if spec.compact:
                cells = replace(cells, upper=0, apart=f.distance(places[1], places[0]))
            masks = [] if left is None else cells.masks(left - start)
            values = cells.read(f.at(places[0], first + start * BF16_BYTES), piece, masks)
            f.store(values, panel.to, (chain * width + start) * F32_BYTES)
            words = f.op(f"<{piece} x i32>", f"bitcast {values} to <{piece} x i32>")
            extremes.add(f.shuffle(words, f.zeros(words.type), [min(lane, piece) for lane in range(lanes)]))
        extremes.store()

    with f.loop(SPLIT_TERMS // terms, to=f.to, places=f.addresses) as turn:
        with f.loop(f.panels, to=turn.to, minima=f.minima, places=turn.places) as panel:
            number = panel.index * width
            if name == "a":
                packed(panel, f.offset + f.min(number, f.left - width) * BF16_BYTES, None)
            else:
                first, left = f.offset + number * BF16_BYTES, f.left - number
                with f.when(left >= width):
                    packed(panel, first, None)
                with f.otherwise():
                    packed(panel, first, left)
            panel.next(to=f.at(panel.to, f.step), minima=f.at(panel.minima, f.step))
        turn.next(to=f.at(turn.to, 2 * width * F32_BYTES), places=f.at(turn.places, terms * ADDRESS_BYTES))
    f.done()


def transpose_cells(module: Module, spec: SplitKSpec, name: str, operand: SplitKOperand) -> None:
    """Emit ``pack_a`` or ``pack_b`` for contiguous positions. ``rows`` is memory for rows."""
    f, width = module.function(f"pack_{name}", False, **PACKING, **SEGMENTS, rows="ptr"), operand.width
    cells = Cells(f, spec.operand, spec.isa.lanes, 0 if spec.compact else None, chains=1 + spec.compact)
    with f.loop(f.panels, to=f.to, minima=f.minima) as panel:
        number = panel.index * width
        first = f.min(number, f.left - width) if name == "a" else number
        count = f.min(f.left - first, width)
        by_segments(f, operand, (f.rows, panel.minima), count, f.offset + f.channel * first)
        terms, size = f.value(SPLIT_TERMS), f.value(BF16_BYTES)
        copy = Copy(cells, terms, size, count, f.value(LINE_BYTES), width * F32_BYTES, width)
        copy.along_rows(f.rows, panel.to)
        panel.next(to=f.at(panel.to, f.step), minima=f.at(panel.minima, f.step))
    f.done()
