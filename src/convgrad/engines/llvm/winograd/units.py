"""Units of a weight gradient in IR: what a thread transforms and sums, block by block, of some channels of both."""

from __future__ import annotations

from convgrad.engines.llvm.arguments import Named
from convgrad.engines.llvm.claims import claimed, loaded
from convgrad.engines.llvm.emit import Function, Module, Value
from convgrad.engines.llvm.winograd import points, sums, weights
from convgrad.plan.machine import Isa
from convgrad.plan.recipe import F32_BYTES
from convgrad.plan.recipe import TAPS as BY_TAPS
from convgrad.spec.toom_cook import VARIANTS, Variant

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
    a = loaded(f, ADDRESSES, NUMBERS)
    with claimed(f, isa, a, a.count) as number:
        _task(f, isa, VARIANTS[variant], (src, dst, out), a, number)
    return str(made)


def _task(
    f: Function, isa: Isa, variant: Variant, contiguous: tuple[str, str, str | None], a: Named, number: Value
) -> None:  # fmt: skip
    """A unit of tiles, of some channels of src (rows of the sums) and of dst (their lanes)."""
    src, dst, out = contiguous
    unit, part = f.divided(number, a.parts)
    i, j = f.divided(part, a.across_parts)
    row, lane = i * a.of("down").each, j * a.of("across").each
    down, across = (
        f.min(channels.all - first, channels.each) for channels, first in ((a.of("down"), row), (a.of("across"), lane))
    )
    vectors = across + (isa.lanes - 1) >> isa.lanes.bit_length() - 1
    own = f.at(f.scratch, a.sums_at)
    if out is None:
        own = f.at(f.at(f.at(a.sums, unit * a.unit), row * a.of("sums").row), lane * F32_BYTES)
    of_src = a.of("src").but(data=f.at(a.of("src").data, row * a.of("src").channel), channels=down)
    of_dst = a.of("dst").but(data=f.at(a.of("dst").data, lane * a.of("dst").channel), channels=across)
    of_sums = a.of("sums").but(down=down, vectors=vectors)
    _blocks(f, isa, variant, (src, dst), a, unit * a.of("blocks").each, (of_src, of_dst, of_sums), own)
    if out is not None:
        back = a.of("back")
        to = f.at(f.at(back.out, row * back.out_row), lane * back.out_lane)
        back = back.but(sums=own, out=to, down=down, across=across)
        with f.loop(vectors if out == BY_TAPS else down) as each:
            weights.some(f, isa, variant, out, back, each.index)


def _blocks(
    f: Function, isa: Isa, variant: Variant, contiguous: tuple[str, str], a: Named, begin: Value,
    of: tuple[Named, Named, Named], own: Value,
) -> None:  # fmt: skip
    """The blocks of a unit, in order: points of src and of dst, then a chain each, added to those before."""
    (of_src, of_dst, of_sums), stretches = of, a.of("stretches")
    here, there, planes = (f.at(f.scratch, at) for at in (a.src_at, a.dst_at, a.planes_at))
    count = f.min(a.of("blocks").all - begin, a.of("blocks").each)
    with f.loop(count, first=begin * stretches.each) as block:
        some = f.min(stretches.all - block.first, stretches.each)
        for made, out, lie in ((of_src, here, contiguous[0]), (of_dst, there, contiguous[1])):
            points_of = made.but(out=out, first=block.first)
            with f.loop(some) as stretch:
                points.row(f, isa, variant, made is of_src, lie, points_of, planes, stretch.index)
        more = f.compare("ne", block.index, 0)
        sums.chains(f, isa, of_sums, here, there, own, some * a.length, more)
        block.next(first=block.first + some)
