"""The specification of kernels of weight and bias gradients, and their plan."""

from __future__ import annotations

from dataclasses import dataclass, field

from convgrad.plan.machine import Isa
from convgrad.plan.recipe import CHANNELS, F32_BYTES, Chosen, Operand

# Names of loop nests: outer products, the direct depthwise kernel, and outer products of portions.
OUTER_PRODUCTS, DEPTHWISE, PORTIONS = "gemm", "depthwise", "portions"
GROUPS = "groups"  # a value of ``SplitKSpec.lanes_hold``: each lane of a vector is a group
Parts = tuple[int, int, int, int, int]


@dataclass(frozen=True)
class MicroTileShape:
    """The sums of a micro-tile, all in registers: ``mr`` channels of A times ``nr`` vectors of B, for each of its taps.

    If lanes are channels, each channel of A is broadcast, and a vector has several channels of B. If lanes are groups,
    a vector has one channel of each lane's group, for A as for B.
    """

    mr: int
    nr: int
    outer_taps: int = 1  # taps of all axes except the innermost
    inner_taps: int = 1  # consecutive taps of the innermost axis

    @property
    def taps(self) -> int:
        """The number of taps of a micro-tile."""
        return self.outer_taps * self.inner_taps

    def __str__(self) -> str:
        taps = f" under {self.outer_taps}x{self.inner_taps} taps" if self.taps > 1 else ""
        return f"{self.mr}x{self.nr}{taps}"


@dataclass(frozen=True)
class SplitKOperand(Operand):
    """A or B of a kernel of weight gradients. ``moves`` is whether its address depends on the tap, as that of src does.

    In a micro-tile of one tap, ``moves`` is always set for A, because the kernel is the same if src is B. Kernels of
    portions have it set for src.
    """

    width: int = field(kw_only=True)  # channels of a packed panel, or of one group if lanes are groups
    moves: bool = field(default=False, kw_only=True)


@dataclass(frozen=True)
class SplitKSpec:
    """The specification of a kernel of weight or bias gradients.

    Extents are arguments, so a new shape seldom compiles a kernel.
    """

    isa: Isa
    operand: str  # the number format of A and B
    output: str  # the number format of the weights
    body: str
    micro_tile: MicroTileShape
    a: SplitKOperand
    b: SplitKOperand
    lanes_hold: str = CHANNELS
    adjacent: bool = True  # whether inner taps read neighbouring positions, without dilation
    # The number of inner taps by which src shifts per position. Values of other taps stay in registers. 0: none stay.
    slide: int = 0
    # The number of k per multiply-add: 2 for bf16 pairs. The high half has the term that a vector adds first or, in a
    # pair for tiles, the odd term.
    k_per_add: int = 1
    chains: int = 1  # of a portion; with 1, blocks have no portions
    # Whether each k is in one packed pair, instead of a pair for each k. Pairs then begin at an even k. But in portions
    # for vectors, a pair has k and k + 2, which are terms of one chain.
    compact: bool = False

    @property
    def activation(self) -> str:
        """The empty string, because gradients have no activation."""
        return ""

    @property
    def amx_tiles(self) -> bool:
        """Whether tiles of AMX multiply portions; else vectors."""
        return self.body == PORTIONS and bool(self.isa.tiles)

    @property
    def groups_in_lanes(self) -> bool:
        """Whether each lane of a vector is a group, rather than a channel."""
        return self.lanes_hold == GROUPS

    @property
    def groups_a_panel(self) -> int:
        """The number of groups of a panel."""
        return self.isa.lanes if self.groups_in_lanes else 1

    def k_bytes(self, operand: SplitKOperand) -> int:
        """Return the bytes of one k in a packed panel."""
        return F32_BYTES * operand.width * self.groups_a_panel // (2 if self.compact else 1)

    def packed_bytes(self, operand: SplitKOperand, count: int) -> int:
        """Return the bytes of ``count`` k in a packed panel, rounded up to whole pairs if pairs are compact."""
        return self.k_bytes(operand) * (count + count % 2 if self.compact else count)

    @property
    def moving(self) -> SplitKOperand:
        """The operand whose address changes from tap to tap."""
        return self.a if self.a.moves else self.b

    @property
    def width(self) -> int:
        """The number of lanes of the B vectors of a micro-tile."""
        return self.micro_tile.nr * self.isa.lanes

    @property
    def b_channels(self) -> int:
        """The number of channels of B in a micro-tile."""
        return self.micro_tile.nr if self.groups_in_lanes else self.width

    @property
    def tap_bytes(self) -> int:
        """The bytes of a micro-tile's sums for one tap."""
        return self.micro_tile.mr * self.width * F32_BYTES

    @property
    def tile_bytes(self) -> int:
        """The bytes of a micro-tile's sums for all of its taps."""
        return self.tap_bytes * self.micro_tile.taps

    def __str__(self) -> str:
        pairs = ", bf16 pairs" if self.k_per_add == 2 else ""
        return f"{self.operand} to {self.output}, micro-tile {self.micro_tile} of {self.isa}{pairs}"


@dataclass(frozen=True, kw_only=True)
class SplitKPlan(Chosen):
    """The plan of a weight or bias gradient.

    Each cache block is packed at once: some chains of one image, or whole images if ``chains_a_cache_block`` is 0.
    """

    spec: SplitKSpec
    chains_a_cache_block: int
    images_a_cache_block: int
    parts: Parts  # parts of groups, of A, of B, of taps, of the batch; a task is one part of each

    @property
    def summary(self) -> str:
        """The strategy, the kernel and the operands, as one line of text."""
        spec, (a, b) = self.spec, self.operands
        return f"{self.strategy}: {spec}, A from {a} ({spec.a}), B from {b} ({spec.b})"

    @property
    def cut(self) -> str:
        """The division of the work among tasks, as one line of text."""
        chains, images = self.chains_a_cache_block, self.images_a_cache_block
        packed = f"{chains} chains" if chains else f"{images} images"
        read = "read in place" if self.spec.body == DEPTHWISE else f"{packed} packed at a time"
        return f"{' x '.join(map(str, self.parts))} parts of groups, A, B, taps, images; {read}"
