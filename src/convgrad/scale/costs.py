"""What a problem over many workers costs, on paper: bytes read and moved, the depth of its join, time by roofline.

Every time here is a sum or a maximum of bytes and multiply-adds over rates: ``docs/scale.md`` derives them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf, prod

from convgrad.formats import F32
from convgrad.functional.partials import SUMMED
from convgrad.plan.machine import Machine
from convgrad.scale.memory import words
from convgrad.scale.shares import Join, Piece, cut, known, leaves_of, owner, sizes, tree
from convgrad.spec.problem import Problem, canonical_shape

PIECES_HELD = 4  # by a worker at a time: one is computed, one read, and as much again for copies
UNITS = (("h", 3600.0), ("min", 60.0), ("s", 1.0), ("ms", 1e-3), ("us", 1e-6))


@dataclass(frozen=True)
class Network:
    """What lies between workers: the time until a first byte comes, the bytes that a worker takes in a second.

    ``task_s`` is what the one scheduler of all workers takes for a task: tasks begin one after another.
    """

    latency_s: float
    bytes_per_s: float
    task_s: float = 0.0


@dataclass(frozen=True)
class Worker:
    """What each worker does in a second: multiply-adds, bytes read, bytes of sums added; what its memory holds.

    ``store_bytes_per_s`` is what all of them together read in a second.

    >>> from convgrad.plan.machine import ISAS
    >>> Worker.of(Machine(ISAS["avx512"]), cores=2, read_bytes_per_s=1e9).multiply_adds_per_s
    128000000000.0
    """

    multiply_adds_per_s: float
    read_bytes_per_s: float
    add_bytes_per_s: float = 20e9
    store_bytes_per_s: float = inf
    memory_bytes: float = inf

    @classmethod
    def of(cls, machine: Machine, cores: int, **others: float) -> Worker:
        """Return some cores of a machine, and what is said of the rest."""
        return cls(cores * machine.fma_per_ns * 1e9, add_bytes_per_s=machine.bytes_per_ns * 1e9, **others)

    def reads(self, workers: int) -> float:
        """Return the bytes that each of so many who have pieces reads in a second."""
        return min(self.read_bytes_per_s, self.store_bytes_per_s / workers)


@dataclass(frozen=True)
class Costs:
    """A cut on paper; as a text, a table."""

    problem: Problem
    workers: int
    pieces: tuple[Piece, ...]
    levels: tuple[tuple[Join, ...], ...]
    array_bytes: int  # of a sum
    read_bytes: int
    halo_bytes: int  # of them, read by two
    compute_s: float  # and to add, of the busiest worker, as all below
    read_s: float
    schedule_s: float
    join_s: float
    first_s: float  # of a piece, while nothing else is read or computed
    most_work_s: float

    @property
    def arrays(self) -> int:
        """The sums that all pieces know."""
        return sum(map(known, (piece.leaves for piece in self.pieces))) if self.levels else 0

    @property
    def moved_bytes(self) -> tuple[int, ...]:
        """The bytes of sums that move, by level of the join."""
        return tuple(self.array_bytes * sum(join.moved for join in level) for level in self.levels)

    @property
    def bounds(self) -> dict[str, float]:
        """The times none of which a schedule can be shorter than."""
        names = ("compute", "read", "schedule", "join")
        return dict(zip(names, (self.compute_s, self.read_s, self.schedule_s, self.join_s), strict=True))

    @property
    def binds(self) -> str:
        """Which of the bounds is the longest."""
        return max(self.bounds, key=self.bounds.__getitem__)

    @property
    def time_s(self) -> float:
        """What to expect: pieces are read while others are computed, all but the first, and joined at the end."""
        return max(self.compute_s, self.read_s, self.schedule_s) + self.first_s + self.join_s

    @property
    def most_s(self) -> float:
        """What no schedule exceeds: nothing is done while anything else is."""
        return self.most_work_s + self.schedule_s + self.join_s

    def __str__(self) -> str:
        largest = max(piece.read_bytes for piece in self.pieces)
        rows = [
            ("workers", str(self.workers)),
            ("pieces", f"{len(self.pieces)} of {len(self.pieces[0].leaves)} leaves, {words(largest)} at most"),
            ("read", f"{words(self.read_bytes)}, of which {words(self.halo_bytes)} again"),
        ]
        if self.levels:
            each = ", ".join(map(words, self.moved_bytes))
            rows += [
                ("sums", f"{self.arrays} of {words(self.array_bytes)}"),
                ("join", f"{len(self.levels)} deep, moves {each}"),
            ]
        times = ", ".join(f"{name} {seconds(value)}" for name, value in self.bounds.items())
        rows += [
            ("bounds", times),
            ("time", f"{seconds(self.time_s)}, at most {seconds(self.most_s)}: {self.binds} binds"),
        ]
        return "\n".join(f"{name:8} {text}" for name, text in rows)


def costs(
    problem: Problem,
    workers: int,
    network: Network,
    worker: Worker,
    piece_leaves: int | None = None,
    rows: int | None = None,
) -> Costs:
    """Return what a problem costs over so many workers, in pieces of so many leaves, or of the best number there is.

    >>> from convgrad.notation import problem
    >>> layer = problem("BWD_W f32 NXC mb4096ic64ih56oc64oh56kh3ph1")
    >>> print(costs(layer, 16, Network(1e-4, 1e9), Worker(1e11, 1e9)))
    workers  16
    pieces   256 of 16 leaves, 25.7 MB at most
    read     6.58 GB, of which 0 B again
    sums     256 of 147 kB
    join     2 deep, moves 0 B, 2.21 MB
    bounds   compute 289 ms, read 411 ms, schedule 0 s, join 2.55 ms
    time     432 ms, at most 703 ms: read binds
    """
    if not problem.geometry.batch:
        raise ValueError("a problem of no images has no pieces")
    each = [piece_leaves] if piece_leaves else sizes(problem, workers, worker.memory_bytes / PIECES_HELD)
    plans = (costs_of(problem, cut(problem, some, rows), workers, network, worker) for some in each)
    return min(plans, key=lambda plan: plan.time_s)


def costs_of(problem: Problem, pieces: Sequence[Piece], workers: int, network: Network, worker: Worker) -> Costs:
    """Return what a problem costs that is cut into these pieces, which are at least one."""
    summed = problem.solves_for in SUMMED
    levels = tree(pieces, workers) if summed else ()
    array_bytes = prod(canonical_shape(problem.geometry, problem.output)) * F32.dtype.itemsize if summed else 0
    reads, multiplies, adds = ([0.0] * workers for _ in range(3))
    weights = [prod(canonical_shape(problem.geometry, t)) for t in problem.operands if t in ("weights", "bias")]
    shared = sum(weights) * problem.operand_format.dtype.itemsize  # read by every worker who has a piece
    owners = [owner(n, len(pieces), workers) for n in range(len(pieces))]
    for piece, mine in zip(pieces, owners, strict=True):
        reads[mine] += piece.read_bytes
        multiplies[mine] += piece.multiply_adds
    for mine in set(owners):
        reads[mine] += shared
    for join in (join for level in levels for join in level):
        adds[join.worker] += join.arrays * array_bytes / worker.add_bytes_per_s
    compute = [number / worker.multiply_adds_per_s for number in multiplies]
    rate = worker.reads(len(set(owners)))
    read = [number / rate for number in reads]
    tasks = len(pieces) + sum(map(len, levels))
    (once,) = cut(problem, leaves_of(problem))
    data = sum(piece.read_bytes for piece in pieces)
    return Costs(
        problem,
        workers,
        tuple(pieces),
        levels,
        array_bytes,
        data + shared * len(set(owners)),
        max(0, data - once.read_bytes),
        max(map(sum, zip(compute, adds, strict=True))),
        max(read),
        tasks * network.task_s,
        longest(levels, array_bytes, network, worker),
        min(pieces[0].read_bytes / rate, pieces[0].multiply_adds / worker.multiply_adds_per_s),
        max(map(sum, zip(compute, read, adds, strict=True))),
    )


def longest(levels: Iterable[Sequence[Join]], array_bytes: int, network: Network, worker: Worker) -> float:
    """Return the seconds of the longest way through a join: one latency a level, what moves, what is added."""
    before: list[float] = []
    for level in levels:
        here = []
        for join in level:
            moves = network.latency_s + join.moved * array_bytes / network.bytes_per_s if join.moved else 0.0
            began = max((before[n] for n in join.parts), default=0.0) if before else 0.0
            here.append(began + moves + join.arrays * array_bytes / worker.add_bytes_per_s)
        before = here
    return max(before, default=0.0)


def seconds(number: float) -> str:
    """Return a time as people read it.

    >>> seconds(0.00267), seconds(4000)
    ('2.67 ms', '1.11 h')
    """
    unit, one = next((unit for unit in UNITS if number >= unit[1]), ("s", 1))
    return f"{number / one:.3g} {unit}"
