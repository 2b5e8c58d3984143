"""Calls in pieces: a call is checked and cut, then each piece is read, computed, and added or written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from convgrad import engines
from convgrad.array_types import Array
from convgrad.functional.call import check_options, prepare
from convgrad.functional.join import join
from convgrad.functional.partials import SUMMED, as_partials, check_order, partials_of
from convgrad.functional.rows import Rows, rows_of
from convgrad.scale.checkpoint import State
from convgrad.scale.cut import ONCE, remaining
from convgrad.scale.memory import bytes_of
from convgrad.scale.plan import Plan, plan_of
from convgrad.scale.prefetch import Slot, Waited, prefetched
from convgrad.scale.source import OperandSource, at_place, source_of, stand_ins
from convgrad.scale.takes import buffers, room_bytes
from convgrad.scale.target import Target, target_of
from convgrad.spec.problem import Problem, of_images
from convgrad.spec.subproblems import SubProblem, whole


@dataclass(frozen=True, eq=False)
class ScaleCall:
    """A checked call and its plan, with the sources of its operands and, if known, the target of its result."""

    sources: tuple[OperandSource, ...]
    target: Target | None
    plan: Plan
    threads: int | None

    @property
    def problem(self) -> Problem:
        """The problem of the whole call."""
        return self.plan.problem

    @property
    def is_sum(self) -> bool:
        """Whether the results of all pieces are added and then written. Otherwise, each piece writes a region."""
        return self.problem.solves_for in SUMMED

    @contextmanager
    def pieces(self, done: State, waited: Waited) -> Iterator[Iterator[Slot]]:
        """Yield an iterator over the unfinished pieces in order, each in a slot with its operands."""
        operands = zip(self.sources, self.problem.operands, strict=True)
        sources = tuple(source.of(source.read_whole()) if name in ONCE else source for source, name in operands)
        number = buffers(self.problem, self.plan.cut, self.sources)
        slots = [Slot(room_bytes(self.problem, self.plan.cut, sources, ("copied",))) for _ in range(number)]
        with prefetched(sources, self.left(done), slots, waited) as in_order:
            yield in_order

    def left(self, done: State) -> Iterator[SubProblem]:
        """Yield the unfinished pieces in order, without reading them."""
        return remaining(self.problem, self.plan.subproblems(), done.images, done.rows)

    def step(self, slot: Slot, done: State) -> State:
        """Compute a piece, add its result to the sum or write it, and return the new state."""
        return self.add(slot, done) if self.is_sum else self.write(slot, done)

    def add(self, slot: Slot, done: State) -> State:
        """Compute a piece, add its result to the sum, and return the new state."""
        problem, subproblem = self.problem, slot.subproblem
        if _has_all_rows(problem, subproblem):
            part = subproblem.problem  # its operands end at the last position that the piece reads
            before = as_partials(part, 0, done.images, done.sums)
            images = partials_of(
                part, _canonical(subproblem, slot.operands), subproblem.images.start, self.threads, before=before
            )
            return State(images.end, 0, images.sums)
        begun = Rows(of_images(problem, 1), done.images, range(done.rows), done.started) if done.rows else None
        rows = rows_of(subproblem, problem, slot.operands, self.threads, begun)
        if not rows.is_whole:
            return State(done.images, rows.rows.stop, done.sums, rows.sums)
        sums = as_partials(problem, 0, done.images, done.sums) + rows.partials()
        return State(sums.end, 0, sums.sums)

    def write(self, slot: Slot, done: State) -> State:
        """Compute a piece, write its region, and return the new state."""
        subproblem, target = slot.subproblem, self.target
        assert target is not None, "a call that is run has somewhere to write"
        room = target.room(subproblem.writes)
        out = room.transpose(self.problem.output_order)
        engines.execute(subproblem.problem, _canonical(subproblem, slot.operands), out, self.threads)
        target.write(subproblem.writes, room)
        if _ends_its_images(self.problem, subproblem):
            return State(subproblem.images.stop)
        return State(subproblem.images.start, subproblem.ranges[0].stop)

    def store_sum(self, done: State) -> None:
        """Write the sum of all pieces. If the call is not a sum, do nothing, because each piece was already written."""
        if not self.is_sum:
            return
        problem, target = self.problem, self.target
        assert target is not None, "a call that is run has somewhere to write"
        region = tuple(slice(0, extent) for extent in problem.output_shape)
        room = target.room(region)
        sums = as_partials(problem, 0, done.images, done.sums)
        join([sums], dtype=problem.output_format.name, out=room, accumulate=problem.accumulate)
        target.write(region, room)


def _has_all_rows(problem: Problem, subproblem: SubProblem) -> bool:
    return subproblem.ranges[:1] == whole(problem)[:1]


def _ends_its_images(problem: Problem, subproblem: SubProblem) -> bool:
    return all(some.stop == rows.stop for some, rows in zip(subproblem.ranges[:1], whole(problem), strict=False))


def _canonical(subproblem: SubProblem, operands: list[Array]) -> list[Array]:
    return [array.transpose(order) for array, order in zip(operands, subproblem.problem.operand_orders, strict=True)]


@dataclass(frozen=True, eq=False)
class ScaleOptions:
    """The options of a call in pieces, which are keyword arguments of ``convgrad.scale.run``."""

    memory: object = None
    dtype: object = None
    out: object = None
    accumulate: bool = False
    threads: int | None = None


def called(
    operator: str, inputs: tuple[object, ...], attributes: Mapping[str, object], options: ScaleOptions, to_run: bool
) -> ScaleCall:
    """Check a call with placeholders instead of its operands, and return it with its plan.

    If ``to_run`` is false, no result is allocated, and the target is None without ``out``.
    """
    out, threads = options.out, options.threads
    check_options(operator, out, options.accumulate, threads)
    inputs = tuple(map(at_place, inputs))
    prepared = prepare(
        operator, stand_ins(operator, inputs), attributes, options.dtype, options.accumulate, lenient=True
    )
    problem, taken = prepared.problem, prepared.taken
    check_order(problem)
    named_inputs = {port.name: value for port, value in zip(prepared.op.operands, inputs, strict=False)}
    sources = tuple(
        source_of(problem.operator, name, named_inputs[name], stands.shape, problem.operand_format)
        for name, stands in taken.items()
    )
    target = None if out is None else target_of(problem, out, sources)
    plan = plan_of(problem, sources, target, bytes_of(options.memory, problem.operator), threads)
    if target is None and to_run:
        target = target_of(problem, None, sources)
    return ScaleCall(sources, target, plan, threads)
