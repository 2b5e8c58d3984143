"""Running a forward or a data gradient by Toom-Cook: points of one operand, then chunks of the other, to the end."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from convgrad.engines.addresses import address_of, array_at
from convgrad.engines.engine import Strides
from convgrad.engines.llvm.winograd import chunks, kernel
from convgrad.engines.llvm.winograd.stage import (
    Array,
    Stage,
    Tiled,
    Transform,
    by_axis,
    contiguous_axis,
    driver,
    points_of,
    points_stage,
    written,
)
from convgrad.engines.llvm.winograd.sums import level_bytes
from convgrad.plan.machine import LINE_BYTES, Isa, Machine
from convgrad.plan.recipe import CHANNELS_IN, CHANNELS_OUT, F32_BYTES, SPATIAL, STRIDED
from convgrad.plan.recipe import TAPS as BY_TAPS
from convgrad.plan.tables import placed
from convgrad.plan.tree import levels_of
from convgrad.plan.winograd.positions import PositionsPlan, plan
from convgrad.plan.winograd.recipe import PANEL, of_panel, of_point, of_weights, pitch
from convgrad.spec.problem import Problem
from convgrad.spec.tiles import BLOCK
from convgrad.spec.toom_cook import AXES, MET, TAPS, VARIANTS, Variant


@dataclass(frozen=True)
class TiledPositions(Tiled):
    """A forward or a data gradient in a variant."""

    begin: int  # bytes of what tiles meet to the first position that counts
    points: Stage  # of all weights, or of all tiles
    chunks: Stage

    def by_tiles(
        self, operands: Sequence[int], out: int, where: Mapping[str, int], infinite: ctypes.c_int64, held: object
    ) -> None:
        """Compute positions."""
        threads, given = self.plan.threads, dict(zip(self.problem.operands, operands, strict=True))
        met, biases = given[MET[self.problem.solves_for]] + self.begin, self._biases(given.get("bias"))
        points, held = where["points"], (held, biases)
        own = {"back.out": out, "back.bias": address_of(biases), "back.infinite": ctypes.addressof(infinite)}
        if self.chosen.by_rows:
            self.points.run(threads, held, data=given["weights"], out=points)
            self.chunks.run(threads, held, **own, **{"met.data": met, "weights": points})
        else:
            self.points.run(threads, held, data=met, out=points)
            self.chunks.run(threads, held, **own, **{"kernel.data": given["weights"], "met": points})

    @property
    def chosen(self) -> PositionsPlan:
        """The plan."""
        assert isinstance(self.plan, PositionsPlan)
        return self.plan

    @property
    def memory_bytes(self) -> int:
        """What running it takes: points that threads share, and scratch of each."""
        return self.plan.shared_bytes + self.plan.threads * self.chunks.scratch_bytes

    def _biases(self, bias: int | None) -> Array:
        """Return dense biases of all results: 0 where there are none."""
        results = self.chosen.forward.dst_channels
        if bias is None:
            return np.zeros(results, np.float32)
        return array_at(
            bias, (results,), self.strides[self.problem.operands.index("bias")], np.dtype(np.float32)
        ).copy()


def tiled(problem: Problem, strides: Strides, machine: Machine, threads: int) -> TiledPositions:
    """Return the prepared call of a forward or a data gradient that has a variant, for canonical arrays that lie so."""
    variant, isa = VARIANTS[problem.variant], machine.isa
    chosen = plan(problem, machine, threads)
    conv, given = chosen.forward, dict(zip(problem.operands, strides, strict=False))
    tensor, reverse = MET[problem.solves_for], problem.solves_for == "src"
    met = points_of(
        isa, variant, True, given[tensor], conv.src_channels, [axis.src for axis in conv.axes],
        [axis.pad_begin for axis in conv.axes], variant.covering(conv), chosen.tiles,
    )  # fmt: skip
    weights = _weights(isa, chosen, given["weights"], reverse)
    back = _positions(variant, isa, chosen, written(problem, strides))
    settled, places, scratch_bytes = _common(isa, variant, chosen, (met, weights, back))
    settled |= places | {f"back.{name}": number for name, number in back.settled.items()}
    times = chosen.points_ms, chosen.time_ms
    if chosen.by_rows:
        names: tuple[str, ...] = (*kernel.ADDRESSES, *kernel.NUMBERS)
        made = driver(isa, kernel.module, variant.name, weights.contiguous, reverse)
        points = Stage(made, names, weights.settled, weights.planes_bytes, *times)
        own = driver(isa, chunks.rows_module, variant.name, met.contiguous, back.contiguous)
        names = (*chunks.ROWS_ADDRESSES, *chunks.ROWS_NUMBERS)
        settled |= {f"met.{name}": number for name, number in met.settled.items()}
    else:
        points = points_stage(isa, variant, True, met, *times, first=0, count=chosen.all_rows)
        own = driver(isa, chunks.results_module, variant.name, weights.contiguous, reverse, back.contiguous)
        names = (*chunks.RESULTS_ADDRESSES, *chunks.RESULTS_NUMBERS)
        settled |= {f"kernel.{name}": number for name, number in weights.settled.items()} | {"rows": chosen.all_rows}
    stage = Stage(own, names, settled, scratch_bytes, chosen.chunks_ms, chosen.time_ms)
    return TiledPositions(problem, strides, machine, chosen, met.begin, points, stage)


def _common(
    isa: Isa, variant: Variant, chosen: PositionsPlan, transforms: Sequence[Transform]
) -> tuple[dict[str, int], dict[str, int], int]:  # fmt: skip
    """Return what chunks are told of their sums and of how many there are; where what is theirs lies in scratch."""
    conv, met, across = chosen.forward, transforms[0].settled, variant.covering(chosen.forward)[1]
    levels = levels_of(-(-conv.src_channels // BLOCK))
    lie = {
        "points": variant.points, "point": of_point(chosen.tiles, chosen.results), "row": pitch(chosen.results),
        "rows.point": met["point"], "rows.step": met["tile"], "rows.term": F32_BYTES,
        "lanes.point": of_weights(conv.src_channels, chosen.results, isa),
        "lanes.panel": of_panel(conv.src_channels, isa), "lanes.term": PANEL * isa.lanes * F32_BYTES,
    }  # fmt: skip
    settled = {
        "count": chosen.tasks, "each": chosen.each, "all": chosen.every, "terms": conv.src_channels, "levels": levels,
        "tiles": across if chosen.by_rows else chosen.all_rows * across, "results": conv.dst_channels,
    } | {f"sums.{name}": number for name, number in lie.items()}  # fmt: skip
    places, scratch_bytes = placed({
        "points_at": chosen.chunk_bytes, "sums_at": chosen.sums_bytes,
        "room_at": levels * level_bytes(isa),
        "planes_at": max(each.planes_bytes for each in transforms),
    })  # fmt: skip
    return settled, places, scratch_bytes


def _weights(isa: Isa, chosen: PositionsPlan, strides: Sequence[int], reverse: bool) -> Transform:
    """Return what makes points of weights."""
    result, term, *taps = (strides[1], strides[0], *strides[2:]) if reverse else strides
    terms = chosen.forward.src_channels
    by_taps = BY_TAPS if taps == [TAPS * F32_BYTES, F32_BYTES] else STRIDED
    contiguous = CHANNELS_OUT if result == F32_BYTES else CHANNELS_IN if term == F32_BYTES else by_taps
    settled = {
        "count": -(-terms // isa.lanes), "results": chosen.results, "terms": terms, "result": result, "term": term,
        "point": of_weights(terms, chosen.results, isa), "panel": of_panel(terms, isa), **by_axis("tap", taps),
    }  # fmt: skip
    return Transform(
        contiguous, settled, TAPS**AXES * isa.lanes**2 * F32_BYTES if contiguous == CHANNELS_IN else LINE_BYTES
    )


def _positions(variant: Variant, isa: Isa, chosen: PositionsPlan, strides: Sequence[int]) -> Transform:
    """Return what makes positions of the sums of points."""
    image, channel, *steps = strides
    conv, grid, contiguous = chosen.forward, variant.covering(chosen.forward), contiguous_axis(channel, steps[-1])
    sizes = [axis.dst for axis in conv.axes]
    columns = max(grid[1] * variant.tile, -(-sizes[-1] // isa.lanes) * isa.lanes)
    settled = {
        "channels": chosen.results, "columns": columns, "image": image, "channel": channel,
        "point": of_point(chosen.tiles, chosen.results), "tile": pitch(chosen.results),
        **by_axis("grid", grid), **by_axis("size", sizes), **by_axis("step", steps),
    }  # fmt: skip
    return Transform(
        contiguous, settled, variant.tile * columns * isa.lanes * F32_BYTES if contiguous == SPATIAL else LINE_BYTES
    )
