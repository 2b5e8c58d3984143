"""Drivers that are no layer's: threads claim numbers, of samples say, until none is left; their arguments by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from convgrad.engines.llvm.arguments import Named, going
from convgrad.engines.llvm.emit import Function, Value
from convgrad.engines.llvm.intrinsics import INTRINSICS
from convgrad.plan.fields import FLAGS
from convgrad.plan.machine import Isa

WORD = 8


def loaded(f: Function, addresses: Sequence[str], numbers: Sequence[str]) -> Named:
    """Return the driver's arguments, all of them loaded here: what is stored later might be taken for them."""
    a = arguments(f, addresses, numbers)
    return Named({name: a.named(name) for name in (*FLAGS, *addresses, *numbers)}.__getitem__)


def arguments(f: Function, addresses: Sequence[str], numbers: Sequence[str]) -> Named:
    """Return the driver's arguments: addresses of flags, other addresses, numbers; each is loaded where it is used."""
    at = {name: WORD * number for number, name in enumerate((*FLAGS, *addresses, *numbers))}
    pointers = frozenset((*FLAGS, *addresses))
    return Named(lambda name: f.load("ptr" if name in pointers else "i64", f.arguments, at[name]))


@contextmanager
def claimed(f: Function, isa: Isa, a: Named, count: Value, begin: Callable[[], None] = lambda: None) -> Iterator[Value]:
    """Do a block for each number below ``count`` that this thread claims; ``active`` counts the threads at it.

    ``begin`` comes before, unless all are claimed: of a call that is over nothing but the arguments may be read.
    """
    f.op("i64", f"atomicrmw add {a.active}, i64 1 seq_cst")
    saved = f.op("ptr", "alloca i64, align 8")
    INTRINSICS[isa.architecture].enter(f, saved)
    with f.when(f.op("i64", f"load atomic i64, {a.counter} monotonic, align 8") < count):
        begin()
    with f.loop(count):
        number = f.op("i64", f"atomicrmw add {a.counter}, i64 1 monotonic")
        with f.when(f.op("i1", f"and {number < count}, {going(f, a).name}")):
            yield number
    INTRINSICS[isa.architecture].leave(f, saved)
    f.op("i64", f"atomicrmw sub {a.active}, i64 1 seq_cst")
    f.done()
