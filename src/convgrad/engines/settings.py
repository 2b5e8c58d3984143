"""What a user sets: threads, by call, context or environment; the widest instruction set, by environment."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from convgrad.errors import InvalidAttributeError
from convgrad.host import core_count, environment
from convgrad.spec.check import as_integer
from convgrad.spec.rules import refuse

_OURS = b"CONVGRAD_NUM_THREADS"
MOST_THREADS = 4096  # of a call: no machine of one process has more cores; beyond, threads only wait
CAPS = ("avx512bf16", "avx512", "avx2", "neon", "numpy")
_wanted: ContextVar[int | None] = ContextVar("convgrad_threads", default=None)


@contextmanager
def threads(number: int) -> Iterator[None]:
    """Use at most ``number`` threads in a ``with`` block of this thread or task; the ``threads`` of a call beats it.

    Raises InvalidAttributeError unless ``number`` is a positive integer, 4096 at most. Results do not depend on it.

    >>> with threads(1):
    ...     count(None), count(2)
    (1, 2)
    """
    token = _wanted.set(checked(number, "threads"))
    try:
        yield
    finally:
        _wanted.reset(token)


def checked(number: object, operator: str) -> int:
    """Return a number of threads; refuse by D6 what is none, or beyond sense."""
    wanted = as_integer(number)
    if wanted is None or wanted < 1:  # D6
        refuse("D6", operator, f"threads must be a positive integer; got {number!r}; leave it out for all cores")
    if wanted > MOST_THREADS:  # D6
        refuse("D6", operator, f"threads must be at most {MOST_THREADS}; got {wanted}; leave it out for all cores")
    return wanted


def count(threads: int | None) -> int:
    """Return how many threads to use: as asked of the call or the context, by the environment, or all we may run on."""
    asked = _wanted.get() if threads is None else as_integer(threads)
    return asked or _by_environment(_OURS) or _by_environment(b"OMP_NUM_THREADS") or core_count()


def asked_of_us() -> int | None:
    """Return how many threads the context or CONVGRAD_NUM_THREADS asks for; None where nobody does."""
    return _wanted.get() or _by_environment(_OURS)


def _by_environment(name: bytes) -> int | None:
    given = environment(name)
    if not given:
        return None
    value = given.split(",")[0].strip()
    if value.isdecimal() and int(value) >= 1:
        return int(value)
    if value and name is _OURS:  # what the other one means is for its own libraries to say
        raise InvalidAttributeError(f"CONVGRAD_NUM_THREADS must be a positive integer; got {given!r}")
    return None


def max_isa() -> str | None:
    """Return the cap CONVGRAD_MAX_ISA sets, None without one."""
    name = cap().strip().lower()
    if name and name not in CAPS:
        raise InvalidAttributeError(f"CONVGRAD_MAX_ISA must be one of {', '.join(CAPS)}; got {name!r}")
    return name or None


def cap() -> str:
    """Return CONVGRAD_MAX_ISA as it is written: what is remembered of calls holds while nobody writes another."""
    return environment(b"CONVGRAD_MAX_ISA")
