"""Random problems by tiles, of all roles, against their bounds: one to three axes, tiles that hang over, pads.

``python -m campaigns winograd --problems 20000`` computes so many by kernels, of normal numbers and of numbers of
mixed scales, and holds them to the bound in its three forms (docs/numerics.md), with sums in f64 as what is exact. What
is beyond is printed; the exit code is then 1. The last line has, for each form, how many problems are beyond, and of
their largest shares of the bound the median and the largest.

``--executed`` holds the results of every instruction set that runs here to the executed order, bit by bit, instead: of
images of at most 8x8 positions.

``python -m campaigns winograd --long --problems 10000`` does both with long sums: of 1,000 to 70,000 channels or
tiles, over images of at most 4x4 positions. ``--wide`` does both with rows of 140 to 700 positions and wide padding.
"""

from __future__ import annotations

import json
import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import numpy as np

from campaigns.command import parser_of
from convgrad.engines.llvm import isas
from convgrad.engines.llvm.winograd.run import tiled
from convgrad.engines.numpy import execute
from convgrad.formats import F32, F64
from convgrad.plan.machine import ISAS, Machine
from convgrad.spec.geometry import Axis, Conv
from convgrad.spec.operators import SolvesFor, solving_for
from convgrad.spec.ordered import evaluate_in_order
from convgrad.spec.problem import Problem, canonical_shapes, posed
from convgrad.spec.winograd.algorithms import MIN_CHANNELS, algorithms
from convgrad.spec.winograd.bound import BOUNDS, result_bound
from tests.support.engine_helpers import HOST, Array, empty, lying

CHANNELS = (32, 40, 64)
FEW = (1, 3, 8, 17, 33)  # channels, where sums are long
KERNELS = ((3, 3), (3, 3), (3, 3), (5, 5), (3,), (5,), (1, 3), (3, 1), (3, 5), (7, 3), (3, 3, 3), (3, 1, 1), (1, 3, 3))
LONG = (1_000, 70_000)  # terms of a long sum
WEIGHTS = {"NXC": "XIO", "NCX": "OIX"}
ROLES: tuple[SolvesFor, ...] = ("weights", "dst", "src")


def drawn(rng: np.random.Generator, largest: int = 19) -> Problem:
    """Return a problem: extents of 1 to 19, or less, pads of 0 to 2 at each end, one group or two."""
    axes = axes_of(rng, largest, KERNELS[rng.integers(len(KERNELS))])
    layout = ("NXC", "NCX")[rng.integers(2)]
    src, dst = (int(each) for each in rng.choice(CHANNELS, 2))
    groups = int(rng.choice((1, 1, 1, 2)))
    conv = Conv(int(rng.integers(1, 6)), groups, groups * src, groups * dst, axes)
    return posed_by_tiles(rng, conv, layout, ROLES[rng.integers(3)])


def drawn_small(rng: np.random.Generator) -> Problem:
    """Return a problem with extents of at most 8."""
    return drawn(rng, 8)


def drawn_long(rng: np.random.Generator) -> Problem:
    """Return a problem with long sums and few results: extents of 1 to 4, one group or two of few channels."""
    axes, layout = axes_of(rng, 4, (3, 3)), ("NXC", "NCX")[rng.integers(2)]
    role, terms = ROLES[rng.integers(3)], int(math.exp(rng.uniform(*map(math.log, LONG))))
    groups, batch = int(rng.choice((1, 1, 1, 2))), int(rng.integers(1, 3))
    src, dst = (int(each) for each in rng.choice(FEW, 2))
    if role == "weights":
        batch = -(-terms // math.prod(-(-axis.dst // 2) for axis in axes))  # of tiles of 2x2
    elif role == "dst":
        src = terms // groups
    else:
        dst = terms // groups
    return posed_by_tiles(rng, Conv(batch, groups, groups * src, groups * dst, axes), layout, role)


def drawn_wide(rng: np.random.Generator) -> Problem:
    """Return a problem with one or two rows of so many tiles that they are cut into parts; some parts are padding."""
    inner = axes_of(rng, 3, (3,) if rng.integers(2) else ())
    begin, end = (int(rng.integers(0, most + 1)) for most in (300, 100))
    size = int(rng.integers(max(1, 140 - begin - end), 300))
    axes = (*inner, Axis(size, size + begin + end - 2, 3, pad_begin=begin, pad_end=end))
    src, dst = (int(each) for each in rng.choice((32, 33), 2))
    return posed_by_tiles(rng, Conv(1, 1, src, dst, axes), ("NXC", "NCX")[rng.integers(2)], ROLES[rng.integers(3)])


def axes_of(rng: np.random.Generator, largest: int, kernel: Sequence[int]) -> tuple[Axis, ...]:
    """Return axes of these taps: extents of 1 to the largest, or less of three axes; pads of 0 to 2, below the taps."""
    axes, largest = [], largest if len(kernel) < 3 else min(largest, 7)
    for taps in kernel:
        begin, end = (int(each) for each in rng.integers(0, min(3, taps), 2))
        size = int(rng.integers(max(1, taps - begin - end), largest + 1))
        axes.append(Axis(size, size + begin + end - (taps - 1), taps, pad_begin=begin, pad_end=end))
    return tuple(axes)


def posed_by_tiles(rng: np.random.Generator, conv: Conv, layout: str, role: SolvesFor) -> Problem:
    """Return the problem of a convolution, by tiles of any size."""
    layouts = {"src": layout, "dst": layout, "weights": WEIGHTS[layout]}
    one = posed(solving_for(role, False), conv, layouts, F32, F32)  # type: ignore[arg-type]
    enough = MIN_CHANNELS * conv.groups
    names = [*algorithms(replace(conv, src_channels=enough, dst_channels=enough))]
    return replace(one, algorithm=names[rng.integers(len(names))])


def values(shape: Sequence[int], layout: str, mixed: bool, rng: np.random.Generator) -> Array:
    """Return a canonical operand in a layout."""
    made = rng.standard_normal(shape, np.float32)
    if mixed:
        made *= np.float32(10) ** rng.integers(-8, 9, shape).astype(np.float32)
    return lying(made, layout)


def main(arguments: Sequence[str] | None = None) -> int:
    """Compute problems, and say what came of them."""
    parser = parser_of("winograd", "Hold random problems by tiles to their bounds.", problems=1000, first=0)
    parser.add_argument("--executed", action="store_true", help="compare bits with the executed order")
    parser.add_argument("--long", action="store_true", help="do both for sums of 1,000 to 70,000 terms")
    parser.add_argument("--wide", action="store_true", help="do both for rows of 140 to 700 positions, with wide pads")
    options = parser.parse_args(arguments)
    numbers = range(options.first, options.first + options.problems)
    if options.long:
        return max(bits(numbers, drawn_long), bounds(numbers, drawn_long))
    if options.wide:
        return max(bits(numbers, drawn_wide), bounds(numbers, drawn_wide))
    return bits(numbers, drawn_small) if options.executed else bounds(numbers, drawn)


def bits(numbers: Iterable[int], draw: Callable[[np.random.Generator], Problem]) -> int:
    """Hold problems to the executed order, and say what came of them."""
    begun, done, wrong = time.monotonic(), Counter[str](), 0
    for number in numbers:
        rng = np.random.default_rng([21, number])
        one, threads = draw(rng), int(rng.integers(1, 4))
        *shapes, _ = canonical_shapes(one)
        operands = [values(shape, lies, False, rng) for shape, lies in zip(shapes, one.layouts, strict=False)]
        expected = evaluate_in_order(one, operands)
        for name in HOST:
            out = empty(one)
            tiled(one, (*[each.strides for each in operands], out.strides), Machine(ISAS[name]), threads).execute(
                operands, out
            )
            if out.tobytes() != expected.tobytes():
                wrong += 1
                print(f"problem {number}: other bits on {name}: {one}", flush=True)
        done.update([one.solves_for, one.algorithm, one.layouts[0]])
    told = {"problems": done.total() // 3, "wrong": wrong, **done, "seconds": round(time.monotonic() - begun)}
    print(json.dumps(told | {"instruction_sets": HOST}))
    return int(wrong > 0)


def bounds(numbers: Sequence[int], draw: Callable[[np.random.Generator], Problem]) -> int:
    """Hold problems to their bounds, and say what came of them."""
    isa = isas.isa()
    assert isa is not None
    machine, begun = Machine(isa), time.monotonic()
    done, beyond = Counter[str](), Counter[str]()
    shares: dict[str, list[float]] = {bound: [] for bound in BOUNDS}
    for number in numbers:
        rng = np.random.default_rng([20, number])
        one, mixed = draw(rng), bool(rng.integers(2))
        *shapes, result = canonical_shapes(one)
        operands = [values(shape, lies, mixed, rng) for shape, lies in zip(shapes, one.layouts, strict=False)]
        out, exact = empty(one), np.empty(result)
        lies = (*[each.strides for each in operands], out.strides)
        tiled(one, lies, machine, int(rng.integers(1, 3))).execute(operands, out)
        wide = replace(one, algorithm="", operand_format=F64, output_format=F64)
        execute(wide, [each.astype(np.float64) for each in operands], exact)
        off = np.abs(out - exact)
        done.update([one.solves_for, one.algorithm, one.layouts[0], "mixed" if mixed else "normal"])
        for bound in BOUNDS:
            share = float((off / result_bound(one, operands, bound=bound)).max())
            shares[bound].append(share)
            if not share <= 1:
                beyond[bound] += 1
                print(f"problem {number}: {share:.3g} of the bound by {bound}: {one}", flush=True)
    told = {
        bound: {"beyond": beyond[bound], "median": float(np.median(each)), "largest": max(each)}
        for bound, each in shares.items()
    }
    seconds = round(time.monotonic() - begun)
    print(json.dumps({"problems": len(numbers), **done, **told, "seconds": seconds, "instruction_set": str(isa)}))
    return int(beyond.total() > 0)
