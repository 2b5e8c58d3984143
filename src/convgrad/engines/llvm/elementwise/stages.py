"""The IR of a driver that computes stages, one after the other: maps, sums and their trees, and others of this package.

A stage reads what the stages before it wrote. So a thread begins a stage when all tasks of the stage before are
finished. A thread that would wait long leaves the driver instead, because the thread that finishes the last task always
continues: no thread depends on another one that the system has stopped.

The first stages can be by rows: their tasks with the same number have the same rows, and none of these stages reads
other rows. So one thread computes them all for a task, while its rows are in a cache.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from convgrad.engines.llvm.arguments import Named, columns, going, loaded_where_used
from convgrad.engines.llvm.driver import DRIVER, claims, driver, reached
from convgrad.engines.llvm.elementwise import combinations, indexed, largest, maps, sums, trees
from convgrad.engines.llvm.emit import Function, Module, Value
from convgrad.plan.machine import Isa
from convgrad.plan.records import CLAIMED, FLAGS, Record

Spec = (
    maps.MapSpec
    | maps.ListsSpec
    | sums.SumsSpec
    | trees.TreesSpec
    | largest.LargestSpec
    | combinations.CombinationsSpec
    | indexed.IndexedSpec
)
_COUNTS = Record("task_count", "finished") + CLAIMED


class TaskCode(NamedTuple):
    """The arguments and the code of the tasks of a specification, and a name for their function."""

    arguments: Callable[[Any], Record]
    emit_task: Callable[[Function, Any, Named, Value], None]
    name: Callable[[Any], str]


_CODE: dict[type, TaskCode] = {
    maps.MapSpec: TaskCode(maps.arguments_of, maps.emit_task, lambda spec: f"map_{spec.name}"),
    maps.ListsSpec: TaskCode(maps.arguments_of_lists, maps.emit_task_of_lists, lambda spec: f"lists_{spec.of.name}"),
    sums.SumsSpec: TaskCode(sums.arguments_of, sums.emit_task, lambda spec: f"sums_{spec.name}"),
    trees.TreesSpec: TaskCode(trees.arguments_of, trees.emit_task, lambda spec: "trees"),
    largest.LargestSpec: TaskCode(largest.arguments_of, largest.emit_task, lambda spec: "largest"),
    combinations.CombinationsSpec: TaskCode(
        combinations.arguments_of, combinations.emit_task, lambda spec: "combinations"
    ),
    indexed.IndexedSpec: TaskCode(indexed.arguments_of, indexed.emit_task, lambda spec: f"indexed_{spec.lanes}"),
}


def record_of(specs: Sequence[Spec]) -> Record:
    """Return the driver's arguments: those of stage n are called "sn.NAME", and its counts follow them."""
    record = FLAGS
    for number, spec in enumerate(specs):
        record += (_CODE[type(spec)].arguments(spec) + _COUNTS).within(f"s{number}")
    return record


def addresses_of(spec: Spec) -> list[str]:
    """Return the addresses among the arguments of a stage, which are its first ones."""
    record = _CODE[type(spec)].arguments(spec)
    return [column for column in record.columns if column in record.addresses]


def module_of(specs: tuple[Spec, ...], by_rows: int) -> str:
    """Return the IR of ``driver(arguments, scratch, thread)`` and of the functions that compute tasks.

    The first ``by_rows`` stages are by rows.
    """
    module = Module()
    names = {spec: _task(module, spec) for spec in dict.fromkeys(specs)}
    f = module.function("driver", public=True, **DRIVER)
    record, flags = record_of(specs), loaded_where_used(f, f.arguments, FLAGS)
    stages = [_Stage(f, record, number, names[spec]) for number, spec in enumerate(specs)]
    isa = specs[0].isa
    groups = ([stages[:by_rows]] if by_rows else []) + [[stage] for stage in stages[by_rows:]]
    with driver(f, isa, flags):
        _in_order(f, isa, flags, groups)
    return str(module)


def _task(module: Module, spec: Spec) -> str:
    """Emit the function that computes a task, and return its name."""
    code = _CODE[type(spec)]
    name = code.name(spec)
    while name in module.functions:  # of a stage with the same map and other formats
        name += "_"
    f = module.function(name, arguments="ptr", scratch="ptr", task="i64")
    code.emit_task(f, spec, columns(f, f.arguments, code.arguments(spec)), f.task)
    f.done()
    return name


class _Stage:
    """A stage in the driver that is being emitted."""

    def __init__(self, f: Function, record: Record, number: int, function: str) -> None:
        self.f, self.function, self.prefix, self.record = f, function, f"s{number}.", record
        first = next(column for column in record.columns if column.startswith(self.prefix))
        self.arguments = f.at(f.arguments, record.at(first))

    @property
    def count(self) -> Value:
        """The number of tasks."""
        return self.f.load("i64", self.f.arguments, self.record.at(f"{self.prefix}task_count"))

    def counter(self, name: str) -> Value:
        """Return the address of a counter that all threads use."""
        return self.f.at(self.f.arguments, self.record.at(self.prefix + name))

    @contextmanager
    def tasks(self, flags: Named) -> Iterator[Value]:
        """Emit a block that runs for each task that a thread claims, until the call is stopped.

        Tasks of a stopped call count as finished, so that no thread waits for them.
        """
        with claims(self.f, flags, lambda: self.counter("claimed"), lambda: self.count) as task:
            with self.f.when(going(self.f, flags)):
                yield task
            self.f.op("i64", f"atomicrmw add {self.counter('finished')}, i64 1 acq_rel")

    def compute(self, task: Value) -> None:
        """Emit the call that computes a task."""
        self.f.call(self.function, self.arguments, self.f.scratch, task)


def _in_order(f: Function, isa: Isa, flags: Named, groups: Sequence[Sequence[_Stage]]) -> None:
    group, *others = groups
    with group[0].tasks(flags) as task:
        for stage in group:
            stage.compute(task)
    if others:
        with f.when(reached(f, isa, group[0].counter("finished"), group[0].count)):
            _in_order(f, isa, flags, others)
