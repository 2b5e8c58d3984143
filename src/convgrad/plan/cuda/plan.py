"""The plan of a problem on a GPU: the kernels that are launched one after another, and their memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from convgrad.plan.cuda.nest import Product, products_of
from convgrad.plan.cuda.recipe import (
    COLUMNS,
    ROWS,
    SINGLE_THREADS,
    TERMS,
    LevelSpec,
    ProductSpec,
    SingleSpec,
    Spec,
    Store,
    TileSpec,
)  # fmt: skip
from convgrad.plan.cuda.tables import DEPTH, Leaves, leaves_of, level_table, table_of
from convgrad.plan.passes import ONES, PASSES
from convgrad.plan.tables import Ints, Strides
from convgrad.spec.order import FAN_IN
from convgrad.spec.problem import Problem, canonical_shapes

WIDTH = 4  # elements that a thread loads at once, if they are neighbours
TILES = ((128, 128), (128, 64), (64, 128), (64, 64))
MIN_COLUMNS, MIN_ROWS = 16, 16  # of a tile; products with fewer are computed output by output
MAX_ELEMENTS = 1 << 31  # of an array: offsets have 32 bits
MAX_GRID = 65535  # blocks along the second and third axis of a grid
# Predicted times are in multiply-adds of a multiprocessor. The numbers are estimates; they affect no bit.
PARALLEL = 2  # blocks of a multiprocessor at once
ALONE = 0.7  # speed of one block of a multiprocessor, with two blocks as 1
START = 4 * DEPTH  # terms of the time in which a block begins and ends
PARTIAL = 64  # multiply-adds in the time in which a partial sum is written and read


@dataclass(frozen=True)
class Launch:
    """A launch of a kernel. Offsets are in bytes: of its numbers in the table, of sums that it reads and writes."""

    spec: Spec
    grid: tuple[int, int, int]
    table: int
    reads: int = 0  # in scratch memory; only of a level of the reduction tree
    writes: int = 0  # in scratch memory


@dataclass(frozen=True, eq=False)
class DevicePlan:
    """The launches of a problem in their order, the table that they read, and the bytes of scratch memory."""

    launches: tuple[Launch, ...]
    table: bytes
    scratch_bytes: int
    operands: tuple[str, str]  # the tensors that are A and B; A may be ONES


def refusal(problem: Problem) -> str:
    """Return why no GPU kernel computes a problem that CPU kernels compute, or the empty string if one does."""
    if problem.algorithm:
        return "kernels for GPUs compute direct sums only; leave out max_error"
    if problem.operand_format.name not in ("f32", "bf16", "f16"):
        return f"kernels for GPUs have operands of f32, bf16 and f16; got {problem.operand_format}"
    if problem.solves_for not in PASSES:
        return f"there is no kernel for GPUs that solves for {problem.solves_for}"
    shapes = canonical_shapes(problem)
    if len(shapes[-1]) > 5 or any(len(shape) > 5 for shape in shapes):
        return "kernels for GPUs have at most three spatial axes"
    return "an array has 2^31 elements or more" if max(map(prod, shapes)) >= MAX_ELEMENTS else ""


def plan(problem: Problem, strides: tuple[Strides, ...], processors: int, aligned: bool = True) -> DevicePlan:
    """Return the plan for operands and output with these byte strides, on a GPU with this many multiprocessors.

    ``aligned`` is whether the addresses of the operands are multiples of the size of WIDTH elements.
    """
    launches: list[Launch] = []
    table, scratch = bytearray(), 0
    for product in products_of(problem, strides):
        spec, leaves = _kernel(problem, product, processors, aligned)
        columns = spec.columns if isinstance(spec, TileSpec) else product.columns.extent
        tiles = -(-product.columns.extent // columns)
        launches.append(Launch(spec, _grid(product, spec, leaves), len(table)))
        table += table_of(product, leaves, tiles)
        made, needed = _levels(problem, product, leaves, len(table))
        for launch, numbers in made:
            launches.append(launch)
            table += numbers
        scratch = max(scratch, needed)
    operands = PASSES[problem.solves_for].operands
    names = ("src", "dst") if problem.solves_for in ("weights", "bias") else (_data(problem), "weights")
    return DevicePlan(tuple(launches), bytes(table), scratch, (operands[names[0]], operands[names[1]]))


def _data(problem: Problem) -> str:
    return "src" if problem.solves_for == "dst" else "dst"


def _store(problem: Problem, partial: bool) -> Store:
    """Return the last steps of a kernel: of results, or of partial sums."""
    if partial:
        return Store(output="f32", partial=True)
    bias = problem.operand_format.name if "bias" in problem.operands else ""
    return Store(
        output=problem.output_format.name, bias=bias, accumulate=problem.accumulate, activation=problem.activation
    )


def _kernel(problem: Problem, product: Product, processors: int, aligned: bool) -> tuple[TileSpec | SingleSpec, Leaves]:
    """Return the specification and the leaves with the least predicted time."""
    found: list[tuple[float, int, TileSpec | SingleSpec, Leaves]] = []
    tiled = product.columns.extent >= MIN_COLUMNS and product.rows >= MIN_ROWS
    for nodes in (False, True) if product.chains > 1 else (False,):
        leaves = leaves_of(product, nodes)
        if len(leaves.rows) > MAX_GRID:
            continue
        partial = len(leaves.rows) > 1
        common: dict[str, Any] = {
            "operands": problem.operand_format.name, "checked": product.checked,
            "ones": PASSES[problem.solves_for].operands.get("src") == ONES, "nodes": nodes,
            "store": _store(problem, partial),
        }  # fmt: skip
        if tiled:
            ways: dict[str, Any] = {"along_a": _along(product, ROWS), "along_b": _along(product, COLUMNS)}
            if aligned:
                ways["width_a"], ways["width_b"] = _widths(product, leaves, ways["along_a"], ways["along_b"])
            specs: list[TileSpec | SingleSpec] = [TileSpec(rows=r, columns=c, **ways, **common) for r, c in TILES]
        else:
            specs = [SingleSpec(along=_fastest_output(product), **common)]
        found += [(_time(product, leaves, spec, processors), at, spec, leaves) for at, spec in enumerate(specs)]
    assert found, "a node has 16 chains, and images beyond the grid's limit are refused"
    _, _, spec, leaves = min(found, key=lambda one: one[:2])
    return spec, leaves


def _along(product: Product, other: str) -> str:
    """Return the index of an operand with the smaller stride: terms, or rows of A or columns of B."""
    terms = product.terms.a if other == ROWS else product.terms.b
    if other == COLUMNS:
        step = abs(product.columns.a)
    else:
        step = next((abs(loop.a) for loop in reversed(product.loops) if loop.extent > 1), 0)
    return TERMS if 0 < _typical(terms) < step else other


def _widths(product: Product, leaves: Leaves, along_a: str, along_b: str) -> tuple[int, int]:
    """Return how many neighbouring elements of A and of B a thread can load at once, if addresses are aligned."""
    terms = leaves.terms.reshape(-1, WIDTH, leaves.terms.shape[1])
    there = terms[:, :, 1] >= 0
    whole = bool((there == there[:, :1]).all())  # a vector has all its terms or none
    terms = terms[there[:, 0]] if whole else terms[:0]
    firsts = terms[:, :1]
    inner = next((loop for loop in reversed(product.loops) if loop.extent > 1), product.inner)
    outside = [loop.a for loop in product.loops if loop.extent > 1 and (along_a == TERMS or loop is not inner)]
    a = [*outside, *product.group_steps[:1] * (product.groups > 1), *product.repeat_steps[:1] * (product.repeats > 1)]
    b = [*product.group_steps[1:2] * (product.groups > 1), *product.repeat_steps[1:] * (product.repeats > 1)]
    if along_a == TERMS:
        fits_a = whole and bool((terms[:, :, 0] - firsts[:, :, 0] == np.arange(WIDTH)).all())
        fits_a = fits_a and bool((terms[:, :, 2:] == firsts[:, :, 2:]).all() and (firsts[:, :, 0] % WIDTH == 0).all())
    else:
        same = inner.step == 0 or product.checked == 0  # all elements of a vector exist, or none
        fits_a = same and inner.a == 1 and inner.extent % WIDTH == 0 and not (product.terms.a % WIDTH).any()
    if along_b == TERMS:
        b.append(product.columns.a)
        fits_b = whole and bool((terms[:, :, 1] - firsts[:, :, 1] == np.arange(WIDTH)).all())
        fits_b = fits_b and not (firsts[:, :, 1] % WIDTH).any()
    else:
        fits_b = product.columns.a == 1 and product.columns.extent % WIDTH == 0
        fits_b = fits_b and not (product.terms.b % WIDTH).any()
    fits = (fits_a and not any(one % WIDTH for one in a), fits_b and not any(one % WIDTH for one in b))
    return (WIDTH if fits[0] else 1, WIDTH if fits[1] else 1)


def _typical(offsets: Ints) -> int:
    """Return the median distance of neighbouring terms."""
    return int(np.median(np.abs(np.diff(offsets)))) if len(offsets) > 1 else 0


def _fastest_output(product: Product) -> str:
    """Return the index of C along which neighbouring outputs are closer in memory."""
    row = next((abs(loop.c) for loop in reversed(product.loops) if loop.extent > 1), 0)
    across = abs(product.columns.c) if product.columns.extent > 1 else abs(product.group_steps[2])
    return ROWS if 0 < row < across else COLUMNS


def _grid(product: Product, spec: ProductSpec, leaves: Leaves) -> tuple[int, int, int]:
    """Return the grid of a product's kernel."""
    if isinstance(spec, TileSpec):
        tiles = -(-product.rows // spec.rows) * -(-product.columns.extent // spec.columns)
        return tiles, product.groups, len(leaves.rows)
    return -(-product.outputs // SINGLE_THREADS), 1, len(leaves.rows)


def _time(product: Product, leaves: Leaves, spec: ProductSpec, processors: int) -> float:
    """Return the predicted time of a product in multiply-adds of a multiprocessor."""
    partial = PARTIAL * product.outputs * len(leaves.rows) / processors if spec.store.partial else 0
    terms = DEPTH * leaves.longest + START
    if not isinstance(spec, TileSpec):
        waves = -(-product.outputs * len(leaves.rows) // (processors * 8 * SINGLE_THREADS))
        return 8 * SINGLE_THREADS * terms * waves + partial
    blocks = prod(_grid(product, spec, leaves))
    rounds, rest = divmod(blocks, processors * PARALLEL)
    last = 0.0 if not rest else 1 / ALONE if rest <= processors else PARALLEL
    return (rounds * PARALLEL + last) * spec.rows * spec.columns * terms + partial


def _levels(problem: Problem, product: Product, leaves: Leaves, at: int) -> tuple[list[tuple[Launch, bytes]], int]:
    """Return the launches that add the leaves' sums with their numbers, which begin at ``at``, and the scratch bytes.

    First, the leaves of each unit are added, level by level, and then the units. Levels read and write two parts of
    scratch memory in turn.
    """
    made: list[tuple[Launch, bytes]] = []
    units, each = leaves.units, leaves.each
    if units * each == 1:
        return [], 0
    size = 4 * product.outputs
    places, after = (0, size * units * each), 0
    while units * each > 1:
        if each == 1:
            units, each = 1, units
        numbers, nodes = level_table(product, each), -(-each // FAN_IN)
        spec = LevelSpec(store=_store(problem, partial=units * nodes > 1))
        grid = (-(-product.outputs // SINGLE_THREADS), nodes, units)
        reads, writes = places
        made.append((Launch(spec, grid, at, reads, writes), numbers))
        after, at, each, places = after or size * units * nodes, at + len(numbers), nodes, (writes, reads)
    return made, size * leaves.units * leaves.each + after


def in_order(made: DevicePlan) -> Iterator[str]:
    """Yield a line of text for each launch."""
    for launch in made.launches:
        yield f"{launch.spec.name} {'x'.join(map(str, launch.grid))}"
