"""A schedule simulated event by event: workers read, compute, hand sums on and add them; some are slow, some die.

Tasks are the pieces and joins of ``convgrad.scale.costs``. A worker takes its own neighbouring pieces in order, and
reads the next while it computes one; who has none left takes one of whoever has the most. A join is placed where its
leftmost part lies, and the other parts move there, one behind another, once all are made. One scheduler begins tasks
one after another. What a dead worker held is made again, by others.

The sums are symbolic: a sum's value is the digest of the two that it was added of, so equal values are equal trees.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from hashlib import blake2b
from heapq import heappop, heappush

from convgrad.scale.costs import Costs, Network, Worker
from convgrad.scale.shares import owner
from convgrad.spec.order import FAN_IN
from convgrad.spec.pieces import Nodes, climb, nodes_of, total

Value = bytes
Known = list[tuple[Nodes, Value]]


@dataclass(frozen=True)
class Noise:
    """What goes otherwise than on paper: latencies, workers that are slow, workers that die.

    A latency is that of the network times a number of a Pareto distribution of least value 1: the heavier its tail, the
    smaller ``tail``, which is above 1. None: each is that of the network. A worker that ``steals`` takes others' pieces
    when it has none left.
    """

    tail: float | None = None
    slow: float = 0.0  # of the workers
    slower: float = 4.0  # times
    deaths: int = 0
    seed: int = 0
    steals: bool = True


QUIET = Noise(steals=False)


@dataclass
class Task:
    """A piece, or a join, and how far it is."""

    needs: tuple[int, ...]
    user: int | None
    seconds: float
    read_s: float = 0.0
    number: int = 0  # of times that it was begun
    made_by: int | None = None  # who holds what it made
    placed: int | None = None
    known: Known = field(default_factory=list)


@dataclass
class Process:
    """A worker."""

    slower: float
    own: deque[int]
    is_alive: bool = True
    busy: bool = False
    read: tuple[int, float] | None = None  # the piece that is read, and when it is there
    adds: deque[tuple[int, int]] = field(default_factory=deque)  # joins whose parts are here, and their numbers
    link_s: float = 0.0  # when what moves here has come


@dataclass(frozen=True)
class Outcome:
    """What a schedule took, and what it made."""

    makespan_s: float
    moved_bytes: int
    tasks: int  # begun
    value: Value


def leaf(number: int) -> Value:
    """Return the symbol of a leaf."""
    return number.to_bytes(8, "little")


def added(left: Value, right: Value) -> Value:
    """Return the symbol of a sum: that of no other tree."""
    return blake2b(left + b"+" + right, digest_size=16).digest()


def node(nodes: Nodes, leaves: int) -> Value:
    """Return the symbol of neighbouring nodes by the definition: children are added left to right."""
    values = [leaf(n) for n in range(nodes.leaves.start, min(nodes.leaves.stop, leaves))]
    for _ in range(nodes.level):
        values = [_left_to_right(values[n : n + FAN_IN]) for n in range(0, len(values), FAN_IN)]
    return _left_to_right(values)


@cache
def _symbols(piece: range, leaves: int) -> Known:
    return [(one, node(one, leaves)) for one in nodes_of(piece.start, piece.stop)]


@cache
def specified(leaves: int) -> Value:
    """Return the symbol of the whole batch's sum by the definition: level upon level until one is left."""
    values = [leaf(n) for n in range(leaves)]
    while len(values) > 1:
        values = [_left_to_right(values[n : n + FAN_IN]) for n in range(0, len(values), FAN_IN)]
    return values[0]


def _left_to_right(values: Sequence[Value]) -> Value:
    first, *others = values
    for other in others:
        first = added(first, other)
    return first


class Simulation:
    """One run of a cut's tasks."""

    def __init__(self, plan: Costs, network: Network, worker: Worker, noise: Noise = QUIET) -> None:
        self.plan, self.network, self.noise = plan, network, noise
        self.chance = random.Random(noise.seed)
        self.now = self.scheduler_s = 0.0
        self.moved = self.begun = self.serial = 0
        self.events: list[tuple[float, int, Callable[[], None]]] = []
        self.leaves = plan.pieces[-1].leaves.stop
        self.tasks = list(_tasks(plan, worker))
        self.orphans: deque[int] = deque()
        slow = set(self.chance.sample(range(plan.workers), round(noise.slow * plan.workers)))
        self.workers = [Process(noise.slower if n in slow else 1.0, deque()) for n in range(plan.workers)]
        for n in range(len(plan.pieces)):
            self.workers[owner(n, len(plan.pieces), plan.workers)].own.append(n)

    def run(self) -> Outcome:
        """Return what it came to."""
        for n in self.chance.sample(range(self.plan.workers), self.noise.deaths):
            self._at(self.plan.time_s * self.chance.random(), lambda n=n: self._die(n))  # type: ignore[misc]
        for n in range(self.plan.workers):
            self._go_on(n)
        last = self.tasks[-1]
        while last.made_by is None:
            self.now, _, event = heappop(self.events)
            event()
        assert self._held(len(self.tasks) - 1)
        return Outcome(self.now, self.moved, self.begun, total(last.known, added))

    def _at(self, when: float, event: Callable[[], None]) -> None:
        self.serial += 1
        heappush(self.events, (when, self.serial, event))

    def _scheduled(self) -> float:
        """Return when the scheduler has begun one more task."""
        self.begun += 1
        self.scheduler_s = max(self.now, self.scheduler_s) + self.network.task_s
        return self.scheduler_s

    def _latency(self) -> float:
        tail = self.noise.tail
        return self.network.latency_s * (1.0 if tail is None else self.chance.paretovariate(tail))

    def _go_on(self, worker: int) -> None:
        """Let a worker do what there is: first what can be added, then the piece that has been read."""
        one = self.workers[worker]
        if one.busy or not one.is_alive:
            return
        while one.adds:
            task, number = one.adds.popleft()
            if self.tasks[task].number == number:
                self._work(worker, task)
                return
        if one.read is None:
            self._read(worker)
        if one.read is not None and one.read[1] <= self.now:
            task, one.read = one.read[0], None
            self._work(worker, task)
            self._read(worker)

    def _read(self, worker: int) -> None:
        """Let a worker begin to read a piece, if one is left."""
        task = self._next(worker)
        if task is None:
            return
        self.tasks[task].number, self.tasks[task].placed = self.tasks[task].number + 1, worker
        there = self._scheduled() + self.tasks[task].read_s
        self.workers[worker].read = (task, there)
        self._at(there, lambda: self._go_on(worker))

    def _next(self, worker: int) -> int | None:
        if self.orphans:
            return self.orphans.popleft()
        if self.workers[worker].own:
            return self.workers[worker].own.popleft()
        if not self.noise.steals:
            return None
        most = max(self.workers, key=lambda one: len(one.own))
        return most.own.pop() if len(most.own) > 1 else None

    def _work(self, worker: int, task: int) -> None:
        one, number = self.workers[worker], self.tasks[task].number
        one.busy = True
        self._at(self.now + self.tasks[task].seconds * one.slower, lambda: self._done(worker, task, number))

    def _done(self, worker: int, task: int, number: int) -> None:
        one, this = self.workers[worker], self.tasks[task]
        if not one.is_alive:
            return
        one.busy = False
        if this.number == number:
            this.made_by, this.known = worker, self._made(task)
            for need in this.needs:
                self.tasks[need].made_by = self.tasks[need].placed = None  # nobody needs it any more: it is let go
            if this.user is not None:
                self._place(this.user)
        self._go_on(worker)

    def _made(self, task: int) -> Known:
        """Return the sums that a task makes: of a piece by definition, of a join of those of its parts."""
        needs = self.tasks[task].needs
        if needs:
            return climb([each for need in needs for each in self.tasks[need].known], added)
        return _symbols(self.plan.pieces[task].leaves, self.leaves)

    def _held(self, task: int) -> bool:
        made_by = self.tasks[task].made_by
        return made_by is not None and self.workers[made_by].is_alive

    def _place(self, task: int) -> None:
        """Let a join's parts move to where the leftmost lies, once all are there."""
        this = self.tasks[task]
        if this.placed is not None or not all(map(self._held, this.needs)):
            return
        worker = self.tasks[this.needs[0]].made_by
        assert worker is not None
        this.placed, this.number = worker, this.number + 1
        there, number, link = self._scheduled(), this.number, self.workers[worker]
        for need in this.needs:
            if self.tasks[need].made_by != worker:
                size = len(self.tasks[need].known) * self.plan.array_bytes
                self.moved += size
                link.link_s = max(link.link_s, there + self._latency()) + size / self.network.bytes_per_s
        arrived = max(there, link.link_s) if any(self.tasks[n].made_by != worker for n in this.needs) else there
        self._at(arrived, lambda: self._arrived(worker, task, number))

    def _arrived(self, worker: int, task: int, number: int) -> None:
        if self.tasks[task].number == number and self.workers[worker].is_alive:
            self.workers[worker].adds.append((task, number))
            self._go_on(worker)

    def _die(self, worker: int) -> None:
        """Let a worker be gone, and what it held or was at be made again where it is still needed."""
        gone = self.workers[worker]
        if sum(one.is_alive for one in self.workers) == 1:
            return
        gone.is_alive = False
        self.orphans += gone.own
        gone.own.clear()
        for n, task in enumerate(self.tasks):
            if task.placed == worker:
                self._again(n)
        for n in range(self.plan.workers):
            self._go_on(n)

    def _again(self, task: int) -> None:
        """Let a task be done again: its parts are made again where they are no longer held."""
        this = self.tasks[task]
        this.number, this.made_by, this.placed = this.number + 1, None, None
        if this.user is not None and self.tasks[this.user].placed is not None:
            user = self.tasks[this.user]
            user.number, user.placed = user.number + 1, None
        if not this.needs:
            self.orphans.append(task)
        for need in this.needs:
            if not self._held(need):
                self._again(need)
        if this.needs:
            self._place(task)


def _tasks(plan: Costs, worker: Worker) -> Iterator[Task]:
    """Yield the tasks of a cut: its pieces, then its joins, level upon level."""
    users: list[int] = []
    at = len(plan.pieces)
    for level in plan.levels:
        users += [at + n for n, join in enumerate(level) for _ in join.parts]
        at += len(level)
    find_user = dict(enumerate(users))
    rate = worker.reads(min(plan.workers, len(plan.pieces)))
    for n, piece in enumerate(plan.pieces):
        read_s = piece.read_bytes / rate
        yield Task((), find_user.get(n), piece.multiply_adds / worker.multiply_adds_per_s, read_s)
    begin = 0
    at = len(plan.pieces)
    for level in plan.levels:
        for n, join in enumerate(level):
            needs = tuple(begin + part for part in join.parts)
            yield Task(needs, find_user.get(at + n), join.arrays * plan.array_bytes / worker.add_bytes_per_s)
        begin, at = at, at + len(level)
