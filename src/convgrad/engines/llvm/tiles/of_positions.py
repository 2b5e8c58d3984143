"""Running a forward or a data gradient by Toom-Cook: points, their sums by the kernel of a 1x1 forward, positions."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from convgrad.engines.addresses import address_of, array_at
from convgrad.engines.llvm.execute import Executable, Lies, tabled
from convgrad.engines.llvm.tiles import kernel, positions
from convgrad.engines.llvm.tiles.stage import Array, Stage, Tiled, by_axis, driver, points_of, together, written
from convgrad.plan.data.recipe import TAPS as BY_TAPS
from convgrad.plan.machine import LINE_BYTES, Isa, Machine
from convgrad.plan.recipe import F32_BYTES, ITEMS, NEITHER, TERMS
from convgrad.plan.tiles.positions import PositionsPlan, plan
from convgrad.plan.tiles.recipe import pitch
from convgrad.spec.problem import Problem
from convgrad.spec.toom_cook import MET, TAPS, VARIANTS, Variant


@dataclass(frozen=True)
class TiledPositions(Tiled):
    """A forward or a data gradient in a variant."""

    chunks: tuple[tuple[int, int, Executable], ...]  # rows of tiles at a time: the first, how many, and their sums
    blocks: range  # the first of the results that are computed at a time
    points: Stage  # of what tiles meet,
    begin: int  # and bytes to the first position that counts
    kernel: Stage
    positions: Stage
    by_result: tuple[int, int]  # bytes of weights, and of the output, from one to the next

    def by_tiles(
        self, operands: Sequence[int], out: int, where: Mapping[str, int], infinite: ctypes.c_int64, held: object
    ) -> None:
        """Compute positions."""
        threads, given = self.plan.threads, dict(zip(self.problem.operands, operands, strict=True))
        data, (of_weights, of_out) = given[MET[self.problem.solves_for]] + self.begin, self.by_result
        biases = self._biases(given.get("bias"))
        held, told = (held, biases), ctypes.addressof(infinite)
        for block in self.blocks:
            self.kernel.run(threads, held, data=given["weights"] + block * of_weights, out=where["weights"])
            for first, count, sums in self.chunks:
                if not block or len(self.chunks) > 1:
                    self.points.run(threads, held, data=data, out=where["met"], first=first, count=count)
                sums.at([where["met"], where["weights"]], where["sums"], held)
                bias = address_of(biases) + block * F32_BYTES
                self.positions.run(
                    threads, held, sums=where["sums"], out=out + block * of_out, bias=bias, infinite=told,
                    first=first, count=count,
                )  # fmt: skip

    def _biases(self, bias: int | None) -> Array:
        """Return dense biases of all results: 0 where there are none."""
        results = self.plan.forward.dst_channels  # type: ignore[attr-defined]
        if bias is None:
            return np.zeros(results, np.float32)
        return array_at(bias, (results,), self.lies[self.problem.operands.index("bias")], np.dtype(np.float32)).copy()


def tiled(problem: Problem, lies: Lies, machine: Machine, threads: int) -> TiledPositions:
    """Return the prepared call of a forward or a data gradient that has a variant, for canonical arrays that lie so."""
    variant, isa = VARIANTS[problem.variant], machine.isa
    chosen = plan(problem, machine, threads)
    conv, strides = chosen.forward, dict(zip(problem.operands, lies, strict=False))
    full, rest = divmod(chosen.all_rows, chosen.rows)
    sums = tabled(chosen.sums, chosen.of_sums, chosen.view)
    chunks = [(chunk * chosen.rows, chosen.rows, sums) for chunk in range(full)]
    if chosen.last is not None:
        chunks.append((full * chosen.rows, rest, tabled(chosen.last, chosen.of_sums, chosen.last_view)))
    points, begin = points_of(
        isa, variant, True, strides[MET[problem.solves_for]], conv.src_channels, [axis.src for axis in conv.axes],
        [axis.pad_begin for axis in conv.axes], variant.covering(conv), chosen.tiles, chosen.times_ms["met"],
    )  # fmt: skip
    to = written(problem, lies)
    reverse = problem.solves_for == "src"
    outer, inner, *taps = strides["weights"]
    by_result, by_term = (inner, outer) if reverse else (outer, inner)
    return TiledPositions(
        problem, lies, machine, chosen, sums, tuple(chunks), range(0, conv.dst_channels, chosen.results), points, begin,
        _kernel(variant, isa, chosen, (by_result, by_term, *taps), reverse), _positions(variant, isa, chosen, to),
        (by_result, to[1]),
    )  # fmt: skip


def _kernel(variant: Variant, isa: Isa, chosen: PositionsPlan, strides: Sequence[int], reverse: bool) -> Stage:
    """Return what makes points of the weights of some results."""
    result, term, *taps = strides
    terms, row = chosen.forward.src_channels, pitch(chosen.results)
    by_taps = BY_TAPS if taps == [TAPS * F32_BYTES, F32_BYTES] else NEITHER
    lies = ITEMS if result == F32_BYTES else TERMS if term == F32_BYTES else by_taps
    settled = {
        "count": -(-terms // isa.lanes), "results": chosen.results, "terms": terms, "result": result, "term": term,
        "point": terms * row, "row": row, **by_axis("tap", taps),
    }  # fmt: skip
    squares = TAPS * TAPS * isa.lanes * isa.lanes * F32_BYTES if lies == TERMS else LINE_BYTES
    names = (*kernel.ADDRESSES, *kernel.NUMBERS)
    return Stage(
        driver(isa, kernel.module, variant.name, lies, reverse), names, settled, squares, chosen.times_ms["weights"]
    )


def _positions(variant: Variant, isa: Isa, chosen: PositionsPlan, strides: Sequence[int]) -> Stage:
    """Return what makes positions of the sums of points."""
    image, channel, *steps = strides
    conv, grid, lies = chosen.forward, variant.covering(chosen.forward), together(channel, steps[-1])
    sizes = [axis.dst for axis in conv.axes]
    columns = max(grid[1] * variant.tile, -(-sizes[-1] // isa.lanes) * isa.lanes)
    tile = pitch(chosen.results)
    settled = {
        "channels": chosen.results, "columns": columns, "image": image, "channel": channel,
        "point": chosen.tiles * tile, "tile": tile,
        **by_axis("grid", grid), **by_axis("size", sizes), **by_axis("step", steps),
    }  # fmt: skip
    planes = variant.tile * columns * isa.lanes * F32_BYTES if lies == TERMS else LINE_BYTES
    names = (*positions.ADDRESSES, *positions.NUMBERS)
    return Stage(driver(isa, positions.module, variant.name, lies), names, settled, planes, chosen.times_ms["sums"])
