"""The specification of a kernel of weight or bias gradients, and its plan."""

from __future__ import annotations

from dataclasses import dataclass

from convgrad.plan.machine import Isa
from convgrad.plan.recipe import CHANNELS, F32_BYTES, PACKED, Chosen

GEMM, DEPTHWISE = "gemm", "depthwise"  # bodies of kernels: an outer product of panels; the direct depthwise kernel
GROUPS = "groups"  # lanes hold groups, or else channels
Parts = tuple[int, int, int, int, int]


@dataclass(frozen=True)
class MicroTileShape:
    """Sums in registers: ``mr`` channels of A times ``nr`` vectors of B, under each of some taps of the kernel.

    If lanes hold channels, a channel of A is broadcast. If lanes hold groups, it is a vector too: one channel of each
    lane's group, and each of the ``nr`` vectors is a channel of B.
    """

    mr: int
    nr: int
    outer_taps: int = 1  # of all axes but the innermost
    inner_taps: int = 1  # consecutive taps of the innermost axis

    @property
    def taps(self) -> int:
        """Taps at a time."""
        return self.outer_taps * self.inner_taps

    def __str__(self) -> str:
        taps = f" under {self.outer_taps}x{self.inner_taps} taps" if self.taps > 1 else ""
        return f"{self.mr}x{self.nr}{taps}"


@dataclass(frozen=True)
class Operand:
    """A or B as the kernel reads it: packed or in place, and whether a tap moves it, as src is moved.

    For a micro-tile of one tap A is said to move: the kernel is the same whichever operand does.
    """

    contiguous: str
    width: int  # channels of a packed panel, or of a group if lanes hold groups
    in_place: bool = False
    moves: bool = False

    def __str__(self) -> str:
        return "in place" if self.in_place else PACKED[self.contiguous]


@dataclass(frozen=True)
class KernelSpec:
    """The specification of a kernel of weight or bias gradients. It has no extents, so a new shape compiles nothing."""

    isa: Isa
    operand: str  # the operands' format
    output: str
    body: str
    micro_tile: MicroTileShape
    a: Operand
    b: Operand
    lanes_hold: str = CHANNELS
    adjacent: bool = True  # inner taps read neighbouring positions: no dilation
    slide: int = 0  # inner taps from a position to the next, whose other values stay in registers; 0: none do
    step: int = 1  # k per multiply-add; 2 for bf16 pairs, which hold a k and, below it, the next
    compact: bool = False  # pairs of every second k only: each segment is a chain, and begins at an even k

    @property
    def activation(self) -> str:
        """Gradients have none."""
        return ""

    @property
    def groups_in_lanes(self) -> bool:
        """Whether a lane is a group."""
        return self.lanes_hold == GROUPS

    @property
    def groups_a_panel(self) -> int:
        """Groups computed at once."""
        return self.isa.lanes if self.groups_in_lanes else 1

    def k_bytes(self, operand: Operand) -> int:
        """Return the bytes of a packed k."""
        return F32_BYTES * operand.width * self.groups_a_panel // (2 if self.compact else 1)

    def packed_bytes(self, operand: Operand, count: int) -> int:
        """Return the bytes of ``count`` packed k, rounded up to whole pairs."""
        return self.k_bytes(operand) * (count + count % 2 if self.compact else count)

    @property
    def moving(self) -> Operand:
        """The operand that taps move."""
        return self.a if self.a.moves else self.b

    @property
    def width(self) -> int:
        """Lanes of a full micro-tile."""
        return self.micro_tile.nr * self.isa.lanes

    @property
    def b_channels(self) -> int:
        """Channels of B in a full micro-tile."""
        return self.micro_tile.nr if self.groups_in_lanes else self.width

    @property
    def tap_bytes(self) -> int:
        """Bytes of the sums of one tap of a micro-tile."""
        return self.micro_tile.mr * self.width * F32_BYTES

    @property
    def tile_bytes(self) -> int:
        """Bytes of the sums of a micro-tile."""
        return self.tap_bytes * self.micro_tile.taps

    def __str__(self) -> str:
        pairs = ", bf16 pairs" if self.step == 2 else ""
        return f"{self.operand} to {self.output}, micro-tile {self.micro_tile} of {self.isa}{pairs}"


@dataclass(frozen=True, kw_only=True)
class Plan(Chosen):
    """How a weight or bias gradient is computed.

    A cache block is packed at a time: some chains of an image, or, if that number is 0, some whole images.
    """

    spec: KernelSpec
    chains_a_cache_block: int
    images_a_cache_block: int
    parts: Parts  # of the groups, of a group's channels of A and B, of taps, of the batch: a task is one of each

    @property
    def summary(self) -> str:
        """Strategy, kernel and operands in one line."""
        spec, (a, b) = self.spec, self.operands
        return f"{self.strategy}: {spec}, A from {a} ({spec.a}), B from {b} ({spec.b})"

    @property
    def cut(self) -> str:
        """How the work is cut, in one line."""
        chains, images = self.chains_a_cache_block, self.images_a_cache_block
        packed = f"{chains} chains" if chains else f"{images} images"
        read = "read in place" if self.spec.body == DEPTHWISE else f"{packed} packed at a time"
        return f"{' x '.join(map(str, self.parts))} parts of groups, A, B, taps, images; {read}"
