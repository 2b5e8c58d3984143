"""The loop of every driver: threads claim numbers, of tasks or samples, from an atomic counter until none is left."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from convgrad.engines.llvm.arguments import Named, arguments, going
from convgrad.engines.llvm.emit import Function, Value
from convgrad.engines.llvm.intrinsics import INTRINSICS
from convgrad.plan.machine import Isa
from convgrad.plan.records import FLAGS, Record
from convgrad.plan.records import addresses as addresses_of


def loaded(f: Function, addresses: Sequence[str], numbers: Sequence[str]) -> Named:
    """Return the driver's arguments, all of them loaded here: what is stored later might be taken for them."""
    record = FLAGS + addresses_of(*addresses) + Record(*numbers)
    a = arguments(f, record)
    return Named({name: a.named(name) for name in record.columns}.__getitem__)


@contextmanager
def float_environment(f: Function, isa: Isa) -> Iterator[None]:
    """Do a block with the control register of floating point as kernels need it."""
    saved = f.op("ptr", "alloca i64, align 8")
    INTRINSICS[isa.architecture].enter(f, saved)
    yield
    INTRINSICS[isa.architecture].leave(f, saved)


@contextmanager
def driver(f: Function, isa: Isa, a: Named) -> Iterator[None]:
    """Emit a driver around a block; ``active`` counts its threads."""
    f.op("i64", f"atomicrmw add {a.active}, i64 1 seq_cst")
    with float_environment(f, isa):
        yield
    f.op("i64", f"atomicrmw sub {a.active}, i64 1 seq_cst")
    f.done()


@contextmanager
def claims(f: Function, a: Named, count: Callable[[], Value]) -> Iterator[Value]:
    """Do a block for each number below ``count`` that this thread claims."""
    with f.loop(count()):
        number = f.op("i64", f"atomicrmw add {a.counter}, i64 1 monotonic")
        with f.when(number < count()):
            yield number


@contextmanager
def claimed(f: Function, isa: Isa, a: Named, count: Value, begin: Callable[[], None] | None = None) -> Iterator[Value]:
    """Emit a driver that does a block for each number below ``count`` that a thread claims, unless it is stopped.

    ``begin`` comes before, unless all are claimed: of a call that is over nothing but the arguments may be read.
    """
    with driver(f, isa, a):
        if begin is not None:
            with f.when(f.op("i64", f"load atomic i64, {a.counter} monotonic, align 8") < count):
                begin()
        with claims(f, a, lambda: count) as number, f.when(going(f, a)):
            yield number
