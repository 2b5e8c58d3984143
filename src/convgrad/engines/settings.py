"""What a user sets: threads, by call, context or environment; an accuracy; the widest instruction set."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from numbers import Real

from convgrad.errors import InvalidAttributeError
from convgrad.host import core_count, environment
from convgrad.spec.check import as_integer
from convgrad.spec.rules import refuse

_OURS = b"CONVGRAD_NUM_THREADS"
MOST_THREADS = 4096  # of a call: no machine of one process has more cores; beyond, threads only wait
CAPS = ("avx512bf16", "avx512", "avx2", "neon", "numpy")
_wanted: ContextVar[int | None] = ContextVar("convgrad_threads", default=None)
_accuracy: ContextVar[float] = ContextVar("convgrad_max_error", default=1.0)


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


@contextmanager
def max_error(most: float) -> Iterator[None]:
    """Admit errors up to so many times the direct sum's guarantee in a ``with`` block of this thread or task.

    The guarantee is one of norms: of the channels that a weight has, of what a tile of positions meets and the weights
    of their channel. 8 admits tiles of 2x2, 64 of 4x4, where they have fewer multiply-adds. The ``max_error`` of a call
    beats it. Raises InvalidAttributeError unless it is a number, 1 at least.

    >>> with max_error(64):
    ...     accuracy(None), accuracy(1)
    (64.0, 1.0)
    """
    token = _accuracy.set(_checked_accuracy(most, "max_error"))
    try:
        yield
    finally:
        _accuracy.reset(token)


def _checked_accuracy(most: object, operator: str) -> float:
    number = float(most) if isinstance(most, Real) and not isinstance(most, bool) else 0.0
    if not number >= 1:  # D9
        refuse(
            "D9", operator, f"max_error must be a number, 1 at least; got {most!r}; 1, the default, is the direct sum"
        )
    return number


def accuracy(max_error: float | None, operator: str = "max_error") -> float:
    """Return how many times the direct sum's guarantee is admitted: as asked of the call, or the context, or 1."""
    return _accuracy.get() if max_error is None else _checked_accuracy(max_error, operator)


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
