"""The specifications of a GPU's kernels. Kernels are compiled once per specification."""

from __future__ import annotations

from dataclasses import dataclass

from convgrad.plan.cuda.tables import DEPTH

ROWS, COLUMNS, TERMS = "rows", "columns", "terms"  # the index along which neighbouring threads load an operand
SINGLE_THREADS = 256
THREADS = 512  # minimum per multiprocessor for tiles, which limits a thread to 128 registers
SPLIT_THREADS = 384  # the same if chains are split: a thread has twice as many sums, and at least 168 registers
SHARED_BYTES = 227 << 10  # shared memory of an H100's multiprocessor
PER_THREAD = 8  # rows and columns of a thread in a tile
WARP, WARP_ROWS, WARP_COLUMNS = 32, 32, 64  # threads of a warp, and its part of a tile
PAD = 4  # floats between the rows of a tile in shared memory, which keeps threads in different banks


@dataclass(frozen=True, kw_only=True)
class StoreSpec:
    """The last steps of a kernel that stores results. ``partial`` results are stored in scratch memory as they are.

    If ``along`` is ROWS, results are numbered by row, which varies fastest, column and group; if it is COLUMNS, by
    column, group and row. Partial results are stored in this order.
    """

    output: str  # number format
    along: str  # ROWS or COLUMNS
    width: int = 1  # neighbouring results that a thread of a tile stores at once
    partial: bool = False
    bias: str = ""  # the number format of the bias, if there is one
    accumulate: bool = False
    activation: str = ""


@dataclass(frozen=True, kw_only=True)
class ProductSpec:
    """The specification of a kernel that computes sums of products."""

    operands: str  # number format
    checked: int  # leading axes on which elements of A may not exist
    ones: bool  # whether all elements of A are 1, so that A has no memory
    nodes: bool  # whether leaves may have several chains
    store: StoreSpec
    split: bool = False  # whether a chain has portions, whose even and odd terms have sums of their own
    portions: bool = False  # whether chains may have several portions

    @property
    def levels(self) -> int:
        """The levels of sums above the innermost ones: of the portions of a chain, and of the chains of a node."""
        return self.portions + self.nodes


@dataclass(frozen=True, kw_only=True)
class TileSpec(ProductSpec):
    """A block computes a tile of rows and columns. Its threads share the operands."""

    rows: int
    columns: int
    along_a: str  # ROWS or TERMS
    along_b: str  # COLUMNS or TERMS
    width_a: int = 1  # neighbouring elements of A that a thread loads at once, along ``along_a``
    width_b: int = 1
    terms_a: int = 1  # neighbouring terms of A that a thread loads one by one; either all exist or none
    name = "tile"

    @property
    def threads(self) -> int:
        """The threads of a block."""
        return self.rows * self.columns // PER_THREAD**2

    @property
    def resident(self) -> int:
        """The blocks that a multiprocessor must be able to run at once."""
        threads = SPLIT_THREADS if self.split else THREADS
        return min(threads // self.threads, SHARED_BYTES // self.shared_bytes)

    @property
    def stage_floats(self) -> int:
        """The floats of a step's operands in shared memory."""
        return DEPTH * (self.rows + PAD + self.columns + PAD)

    @property
    def shared_bytes(self) -> int:
        """The shared memory of a block: two steps, offsets and positions of rows, a flag, and sums of levels."""
        sums = PER_THREAD**2 * self.threads * self.levels
        return 4 * (2 * self.stage_floats + 5 * self.rows + 4 + sums)


@dataclass(frozen=True, kw_only=True)
class SingleSpec(ProductSpec):
    """A thread computes one output. The numbers of outputs are those of ``store``."""

    name = "single"
    threads = SINGLE_THREADS
    shared_bytes = 0


@dataclass(frozen=True, kw_only=True)
class LevelSpec:
    """A thread adds the children of one node of the reduction tree, for one output."""

    store: StoreSpec
    name = "level"
    threads = SINGLE_THREADS
    shared_bytes = 0


@dataclass(frozen=True, kw_only=True)
class PackSpec:
    """A thread copies an element of B to its place in packed memory."""

    operands: str  # number format
    name = "pack"
    threads = SINGLE_THREADS
    shared_bytes = 0


Spec = TileSpec | SingleSpec | LevelSpec | PackSpec
