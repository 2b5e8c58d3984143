"""Units of a weight gradient in IR: what a thread transforms and sums, block by block, of some channels of both."""

from __future__ import annotations

from convgrad.engines.llvm.claims import claimed, loaded
from convgrad.engines.llvm.emit import Module
from convgrad.engines.llvm.tiles import points, sums, weights
from convgrad.plan.machine import Isa
from convgrad.plan.recipe import F32_BYTES, TERMS
from convgrad.spec.toom_cook import VARIANTS

ADDRESSES = ("src.data", "dst.data", "sums", "back.out", "back.infinite")
_SIDE = tuple(name for name in points.NUMBERS if name not in ("first", "count", "channels"))
NUMBERS = (
    "count", "parts", "across_parts",  # tasks; of a unit; of dst channels
    "down.each", "down.all", "across.each", "across.all",  # src and dst channels of a task, and of all
    "blocks.each", "blocks.all", "stretches.each", "stretches.all", "length",  # of a unit; of a block; tiles of one
    "src_at", "dst_at", "sums_at", "planes_at", "unit",  # in scratch; bytes from a unit's sums to the next
    *(f"sums.{name}" for name in sums.NUMBERS if name not in ("down", "vectors")),
    *(f"src.{name}" for name in _SIDE), *(f"dst.{name}" for name in _SIDE),
    *(f"back.{name}" for name in weights.NUMBERS if name not in ("count", "down", "across", *weights.UNITS)),
)  # fmt: skip


def module(isa: Isa, variant: str, src: str, dst: str, out: str | None) -> str:
    """Return the IR of ``driver(arguments, scratch)``: tasks, by what lies together in src, dst and the output.

    Of one unit, whose sums become weights at once; without an output, of several: sums[unit] are what is made.
    """
    made = Module()
    f = made.function("driver", public=True, arguments="ptr", scratch="ptr")
    a, of = loaded(f, ADDRESSES, NUMBERS), VARIANTS[variant]
    with claimed(f, isa, a, a.count) as number:
        unit, part = f.divided(number, a.parts)
        i, j = f.divided(part, a.across_parts)
        row, lane = i * a.of("down").each, j * a.of("across").each
        down = f.least(a.of("down").all - row, a.of("down").each)
        across = f.least(a.of("across").all - lane, a.of("across").each)
        here, there, own, planes = (f.at(f.scratch, at) for at in (a.src_at, a.dst_at, a.sums_at, a.planes_at))
        if out is None:
            own = f.at(f.at(f.at(a.sums, unit * a.unit), row * a.of("sums").row), lane * F32_BYTES)
        src_data = f.at(a.of("src").data, row * a.of("src").channel)
        dst_data = f.at(a.of("dst").data, lane * a.of("dst").channel)
        vectors = across + (isa.lanes - 1) >> isa.lanes.bit_length() - 1
        of_sums = a.of("sums").but(down=down, vectors=vectors)
        begin = unit * a.of("blocks").each
        count = f.least(a.of("blocks").all - begin, a.of("blocks").each)
        with f.loop(count, first=begin * a.of("stretches").each) as block:
            stretches = f.least(a.of("stretches").all - block.first, a.of("stretches").each)
            of_src = a.of("src").but(data=src_data, out=here, channels=down, first=block.first)
            of_dst = a.of("dst").but(data=dst_data, out=there, channels=across, first=block.first)
            with f.loop(stretches) as stretch:
                points.row(f, isa, of, True, src, of_src, planes, stretch.index)
            with f.loop(stretches) as stretch:
                points.row(f, isa, of, False, dst, of_dst, planes, stretch.index)
            more = f.compare("ne", block.index, 0)
            sums.chains(f, isa, of_sums, here, there, own, stretches * a.length, more)
            block.next(first=block.first + stretches)
        if out is not None:
            back = a.of("back")
            to = f.at(f.at(back.out, row * back.out_row), lane * back.out_lane)
            back = back.but(sums=own, out=to, down=down, across=across)
            with f.loop(vectors if out == TERMS else down) as each:
                weights.some(f, isa, of, out, back, each.index)
    return str(made)
