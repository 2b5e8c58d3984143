"""The plan of a problem on a GPU: the kernels that are launched one after another, and their memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

from convgrad.plan.cuda.nest import AXES, Product, count_of_products, products_of
from convgrad.plan.cuda.recipe import (
    COLUMNS,
    ROWS,
    SINGLE_THREADS,
    WARP,
    LevelSpec,
    PackSpec,
    SingleSpec,
    Spec,
    StoreSpec,
    TileSpec,
)
from convgrad.plan.cuda.tables import ABSENT, DEPTH, Leaves, chains_of, level_table, nodes_of, pack_table, table_of
from convgrad.plan.cuda.vectors import (
    WIDTH,
    along_of,
    along_of_c,
    term_step,
    width_of_a,
    width_of_b,
    width_of_c,
    width_of_partials,
)
from convgrad.plan.passes import ONES, PASSES
from convgrad.plan.reach import conv_of
from convgrad.plan.tables import Strides
from convgrad.spec.order import FAN_IN, order_of
from convgrad.spec.problem import Problem, canonical_shapes

TILES = ((128, 128), (128, 64), (64, 128), (64, 64))
MIN_COLUMNS, MIN_ROWS = 16, 16  # of a tile; products with fewer are computed output by output
MAX_ELEMENTS = 1 << 31  # of an array: offsets have 32 bits
MAX_TERMS = 1 << 26  # of a product: its table has 2 GiB, and takes 45 seconds and 11 GB of CPU memory to make
MAX_PRODUCTS = 4096  # each takes a millisecond to plan and some microseconds to launch
MAX_GRID = 65535  # blocks along the second and third axis of a grid
MAX_SHARED = 99 << 10  # bytes of shared memory of a block, on all GPUs of compute capability 8.0 or later
PACK_ROWS = 256  # the fewest rows for which weights are packed
SCRATCH_ALIGN = 256
# The unit of predicted times is a multiply-add of a multiprocessor. The numbers were fitted by hand to an H100.
START = 4 * DEPTH  # the start and end of a block take as long as this many terms
PARTIAL = 64  # writing and reading a partial sum takes as long as this many multiply-adds
SLOW_WARPS = 6
SINGLE_BLOCKS, SINGLE_FACTOR = 8, 8  # blocks at once, and the cost of a multiply-add, if a thread computes one output


@dataclass(frozen=True)
class Launch:
    """A launch of a kernel; byte offsets of its numbers in the table, and of the sums that it reads and writes."""

    spec: Spec
    grid: tuple[int, int, int]
    table: int
    reads: int = 0  # only of a level of the reduction tree
    writes: int = 0
    is_packed: bool = False  # whether B is packed, at the begin of scratch memory


@dataclass(frozen=True, eq=False)
class DevicePlan:
    """The launches of a problem in their order, the table that they read, and the bytes of scratch memory."""

    launches: tuple[Launch, ...]
    table: bytes
    scratch_bytes: int
    operands: tuple[str, str]  # the tensors that are A and B; A may be ONES


def refusal(problem: Problem, strides: Sequence[Strides] = ()) -> str:
    """Return why no GPU kernel computes a problem that CPU kernels compute, or the empty string if one does.

    ``strides`` are those of operands and output, in bytes; by default, those of dense arrays.
    """
    if problem.algorithm:
        return "kernels for GPUs compute direct sums only; leave out max_error"
    if problem.operand_format.name not in ("f32", "bf16", "f16"):
        return f"kernels for GPUs have operands of f32, bf16 and f16; got {problem.operand_format}"
    if problem.solves_for not in PASSES:
        return f"there is no kernel for GPUs that solves for {problem.solves_for}"
    shapes = canonical_shapes(problem)
    if any(len(shape) > 2 + AXES for shape in shapes):
        return "kernels for GPUs have at most three spatial axes"
    sizes = [problem.operand_format.itemsize] * (len(shapes) - 1) + [problem.output_format.itemsize]
    spans = []
    for shape, steps, size in zip(shapes, strides, sizes, strict=False):
        axes = [(extent - 1, abs(step)) for extent, step in zip(shape, steps, strict=True) if extent > 1]
        if any(step % size for _, step in axes):
            return "strides must be multiples of the size of an element"
        spans.append(1 + sum(reach * step for reach, step in axes) // size)
    return _too_large(problem, max(*map(prod, shapes), *spans))


def _too_large(problem: Problem, elements: int) -> str:
    """Return why a problem whose largest array spans this many elements is too large, or the empty string."""
    if elements >= MAX_ELEMENTS:
        return "an array spans 2^31 elements or more"
    if any(axis.src + axis.pad_begin + max(axis.pad_end, 0) >= -ABSENT for axis in conv_of(problem).axes):
        return "a spatial axis of src has 2^30 positions or more, padding included"
    if (products := count_of_products(problem)) > MAX_PRODUCTS:
        return f"the strides cut a result into {products} parts, more than {MAX_PRODUCTS}"
    order = order_of(problem)
    over_images = problem.solves_for in ("weights", "bias")
    terms = order.unit_terms if over_images else order.terms  # the units of a sum over images repeat
    if terms > MAX_TERMS:
        return f"a sum has {terms} terms, more than {MAX_TERMS}"
    nodes = order.units * -(-order.blocks // FAN_IN)
    if nodes > MAX_GRID:
        hint = "; use a smaller batch" if over_images else ""
        return f"a sum has more than {MAX_GRID} nodes of {FAN_IN} chains{hint}"
    return ""


def plan(problem: Problem, strides: tuple[Strides, ...], processors: int, aligned: bool = True) -> DevicePlan:
    """Return the plan for operands and output with these byte strides, on a GPU with this many multiprocessors.

    ``aligned`` is whether all addresses are multiples of the size of WIDTH elements of the operands and of the output.
    """
    planner = _Planner(problem, processors, aligned)
    for product in products_of(problem, strides):
        planner.add(product)
    a, b = PASSES[problem.solves_for].operands.values()
    return DevicePlan(tuple(planner.launches), bytes(planner.table), planner.scratch_bytes, (a, b))


@dataclass
class _Planner:
    """The launches of a problem, while they are being planned."""

    problem: Problem
    processors: int
    aligned: bool
    launches: list[Launch] = field(default_factory=list)
    table: bytearray = field(default_factory=bytearray)
    scratch_bytes: int = 0

    def add(self, product: Product) -> None:
        """Add the launches of a product. Products run one after another and use the same scratch memory."""
        packed = 0
        if self._packs(product):
            blocks = -(-len(product.terms) * product.columns.extent // SINGLE_THREADS)
            size = self.problem.operand_format.itemsize
            packed = _aligned(size * product.groups * len(product.terms) * product.columns.extent)
            pack = PackSpec(operands=self.problem.operand_format.name)
            self._launch(Launch(pack, (blocks, product.groups, 1), 0), pack_table(product))
            product = product.with_packed_b()
        spec, leaves = self._kernel(product)
        tiles, step = 1, 0
        if isinstance(spec, TileSpec):
            tiles = -(-product.columns.extent // spec.columns)
            step = term_step(product, leaves) if spec.terms_a > 1 else 0
        numbers = table_of(product, leaves, tiles, step)
        self._launch(Launch(spec, _grid(product, spec, leaves), 0, writes=packed, is_packed=packed > 0), numbers)
        self.scratch_bytes = max(self.scratch_bytes, packed, self._add_levels(product, leaves, packed))

    def _launch(self, launch: Launch, numbers: bytes) -> None:
        self.launches.append(replace(launch, table=len(self.table)))
        self.table += numbers

    def _packs(self, product: Product) -> bool:
        """Return whether B is packed: weights whose columns are not neighbours, and whose terms make no vectors."""
        if "weights" not in self.problem.operands or product.columns.a == 1 or not len(product.terms):
            return False
        if product.rows < PACK_ROWS or not _tiled(product):
            return False
        return width_of_b(product, chains_of(product), along_of(product, COLUMNS)) == 1

    def _store(self, product: Product, partial: bool) -> StoreSpec:
        """Return the last steps of a kernel: of results, or of partial sums."""
        along, problem = along_of_c(product), self.problem
        if partial:
            return StoreSpec(output="f32", along=along, width=width_of_partials(product, along), partial=True)
        return StoreSpec(
            output=problem.output_format.name,
            along=along,
            width=width_of_c(product, along) if self.aligned else 1,
            bias=problem.operand_format.name if "bias" in problem.operands else "",
            accumulate=problem.accumulate,
            activation=problem.activation,
        )

    def _kernel(self, product: Product) -> tuple[TileSpec | SingleSpec, Leaves]:
        """Return the specification and the leaves with the least predicted time."""
        candidates: list[tuple[float, int, TileSpec | SingleSpec, Leaves]] = []
        operands = PASSES[self.problem.solves_for].operands
        chains = chains_of(product)
        for nodes in (False, True) if product.chains > 1 else (False,):
            leaves = nodes_of(chains) if nodes else chains
            if len(leaves.rows) > MAX_GRID:
                continue
            store = self._store(product, partial=len(leaves.rows) > 1)
            common: dict[str, Any] = {
                "operands": self.problem.operand_format.name,
                "checked": max(product.checked, int(leaves.padded)),
                "ones": ONES in operands.values(),
                "nodes": nodes,
                "split": product.split,
                "portions": leaves.portions,
            }
            if _tiled(product):
                a, b = along_of(product, ROWS), along_of(product, COLUMNS)
                common |= {"along_a": a, "along_b": b, "store": store}
                if self.aligned:
                    common |= {"width_a": width_of_a(product, leaves, a), "width_b": width_of_b(product, leaves, b)}
                if a == ROWS and common.get("width_a", 1) == 1 and term_step(product, leaves):
                    common["terms_a"] = WIDTH
                tiles = (TileSpec(rows=r, columns=c, **common) for r, c in TILES)
                specs: list[TileSpec | SingleSpec] = [spec for spec in tiles if spec.shared_bytes <= MAX_SHARED]
            else:
                specs = [SingleSpec(store=replace(store, width=1), **common)]
            times = [_time(product, leaves, spec, self.processors) for spec in specs]
            candidates += [(time, at, spec, leaves) for at, (time, spec) in enumerate(zip(times, specs, strict=True))]
        _, _, spec, leaves = min(candidates, key=lambda candidate: candidate[:2])
        return spec, leaves

    def _add_levels(self, product: Product, leaves: Leaves, first: int) -> int:
        """Add the launches that add the leaves' sums, which are at ``first``, and return the end of scratch memory.

        First, the leaves of each unit are added, level by level, and then the units. Levels read and write two parts
        of scratch memory in turn.
        """
        units, count, size = leaves.units, leaves.per_unit, 4 * product.outputs
        if units * count == 1:
            return first
        second = first + _aligned(size * units * count)
        reads, writes, end = first, second, second
        while units * count > 1:
            if count == 1:
                units, count = 1, units
            nodes = -(-count // FAN_IN)
            spec = LevelSpec(store=replace(self._store(product, partial=units * nodes > 1), width=1))
            grid = (-(-product.outputs // SINGLE_THREADS), nodes, units)
            self._launch(Launch(spec, grid, 0, reads, writes), level_table(product, count))
            end = max(end, writes + size * units * nodes)
            count, reads, writes = nodes, writes, reads
        return end


def _aligned(size: int) -> int:
    return -(-size // SCRATCH_ALIGN) * SCRATCH_ALIGN


def _tiled(product: Product) -> bool:
    """Return whether blocks compute tiles of a product."""
    return product.columns.extent >= MIN_COLUMNS and product.rows >= MIN_ROWS and product.groups <= MAX_GRID


def _grid(product: Product, spec: TileSpec | SingleSpec, leaves: Leaves) -> tuple[int, int, int]:
    """Return the grid of a product's kernel."""
    if isinstance(spec, TileSpec):
        tiles = -(-product.rows // spec.rows) * -(-product.columns.extent // spec.columns)
        return tiles, product.groups, len(leaves.rows)
    return -(-product.outputs // SINGLE_THREADS), 1, len(leaves.rows)


def _time(product: Product, leaves: Leaves, spec: TileSpec | SingleSpec, processors: int) -> float:
    """Return the predicted time of a product in multiply-adds of a multiprocessor.

    A multiprocessor that runs few warps is slower: with w warps, its speed is w / (w + SLOW_WARPS). The longest leaf
    may run alone at the end.
    """
    partial = PARTIAL * product.outputs * len(leaves.rows) / processors if spec.store.partial else 0
    lengths = DEPTH * (leaves.rows[:, 1] - leaves.rows[:, 0])
    terms, blocks = float(lengths.mean()) + START, prod(_grid(product, spec, leaves))
    outputs = spec.rows * spec.columns if isinstance(spec, TileSpec) else SINGLE_THREADS * SINGLE_FACTOR
    resident = spec.resident if isinstance(spec, TileSpec) else SINGLE_BLOCKS
    rounds, left = divmod(blocks, processors * resident)
    time = 0.0
    for count, blocks_each in ((rounds, resident), (1, -(-left // processors))):
        warps = blocks_each * spec.threads // WARP
        time += count * blocks_each * outputs * terms * (1 + SLOW_WARPS / warps) if warps else 0
    alone = outputs * (1 + SLOW_WARPS * WARP / spec.threads)
    return time + partial + alone * float(lengths.max() - lengths.mean())


def in_order(plan: DevicePlan) -> Iterator[str]:
    """Yield a line of text for each launch."""
    for launch in plan.launches:
        yield f"{launch.spec.name} {'x'.join(map(str, launch.grid))}"
