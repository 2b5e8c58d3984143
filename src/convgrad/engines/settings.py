"""The settings of a user: threads, an accuracy, the directory of the kernel cache, the widest instruction set."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from numbers import Real
from pathlib import Path
from typing import Any, TypeVar

from convgrad.engines import openmp
from convgrad.errors import InvalidAttributeError
from convgrad.host import cache_directory, core_count, environment
from convgrad.spec.check import as_integer
from convgrad.spec.rules import refuse

_OURS = b"CONVGRAD_NUM_THREADS"
MAX_THREADS = 4096  # of a call: no machine has more cores
CAPS = ("avx512bf16", "avx512", "avx2", "neon", "numpy")
OWN, OPENMP = POOLS = ("own", "openmp")  # the threads that run a call
Made = TypeVar("Made")
_pool: ContextVar[str | None] = ContextVar("convgrad_pool", default=None)
_wanted: ContextVar[int | None] = ContextVar("convgrad_threads", default=None)
_accuracy: ContextVar[float] = ContextVar("convgrad_max_error")
_UNSET = Path("\0")  # no directory has such a name
_cache: ContextVar[Path | None] = ContextVar("convgrad_kernel_cache", default=_UNSET)


class _Direct(float):
    """The accuracy where no context is open.

    The one in force is read by a property whose getter is built in, ``ContextVar.get(default)``: torch.compile reads
    such a property and compiles again when its value changes, but it cannot follow a method of a ContextVar.
    """

    in_force = property(_accuracy.get)


_DIRECT = _Direct(1.0)


@contextmanager
def threads(number: int | None = None, *, pool: str | None = None) -> Iterator[None]:
    """Use at most ``number`` threads, those of a pool, in a ``with`` block of this thread or task.

    Results do not depend on either.

    Args:
        number: How many threads, 4096 at most; the ``threads`` of a call beats it. By default as many as outside.
        pool: "own" for threads of convgrad's own, or "openmp" for those of the OpenMP runtime that PyTorch has loaded.
            By default as outside. Without any block PyTorch's tensors are computed on the latter if it is there, and
            all other arrays on the former. A process forked from this one uses its own.

    Raises:
        InvalidAttributeError: A number that is no positive integer or above 4096, or a pool of another name.
        UnsupportedError: The pool "openmp" where no such runtime can be used: import torch first, on Linux.

    >>> with threads(1):
    ...     count(None), count(2)
    (1, 2)
    >>> with threads(pool="own"):
    ...     pool()
    'own'
    """
    wanted = _wanted.get() if number is None and pool is not None else checked(number, "threads")
    tokens = _wanted.set(wanted), _pool.set(_pool.get() if pool is None else _checked_pool(pool))
    try:
        yield
    finally:
        _wanted.reset(tokens[0])
        _pool.reset(tokens[1])


def _checked_pool(name: str) -> str:
    if name not in POOLS:  # D11
        refuse("D11", "threads", f"pool must be one of {', '.join(POOLS)}; got {name!r}")
    if name == OPENMP and (reason := openmp.why_not()):  # D12
        refuse("D12", "threads", f"pool must be own here; got openmp: {reason}")
    return name


def pool() -> str:
    """Return the pool of the context: our own by default."""
    return _pool.get() or OWN


def on(name: str, compute: Callable[..., Made], *given: Any, **named: Any) -> Made:
    """Call a function on the threads of a pool, unless the context selects a pool; return its result."""
    if name == OWN or _pool.get() is not None:
        return compute(*given, **named)
    token = _pool.set(name)
    try:
        return compute(*given, **named)
    finally:
        _pool.reset(token)


def checked(number: object, operator: str) -> int:
    """Return a number of threads; refuse other values by D6."""
    wanted = as_integer(number)
    if wanted is None or wanted < 1:  # D6
        refuse("D6", operator, f"threads must be a positive integer; got {number!r:.200}; leave it out for all cores")
    if wanted > MAX_THREADS:  # D6
        refuse("D6", operator, f"threads must be at most {MAX_THREADS}; got {wanted}; leave it out for all cores")
    return wanted


@contextmanager
def max_error(maximum: float) -> Iterator[None]:
    """Admit errors up to so many times the direct sum's guarantee in a ``with`` block of this thread or task.

    The guarantee is one of norms: of the channels that a weight has, of what a tile of positions meets and the weights
    of their channel. 8 admits tiles of 2x2, 64 of 4x4, where they have fewer multiply-adds. The ``max_error`` of a call
    beats it. Raises InvalidAttributeError unless it is a number, 1 at least.

    >>> with max_error(64):
    ...     accuracy(None), accuracy(1)
    (64.0, 1.0)
    """
    token = _accuracy.set(_checked_accuracy(maximum, "max_error"))
    try:
        yield
    finally:
        _accuracy.reset(token)


def _checked_accuracy(maximum: object, operator: str) -> float:
    number = float(maximum) if isinstance(maximum, Real) and not isinstance(maximum, bool) else 0.0
    if not number >= 1:  # D9
        refuse(
            "D9",
            operator,
            f"max_error must be a number, 1 at least; got {maximum!r:.200}; 1, the default, is the direct sum",
        )
    return number


def accuracy(max_error: float | None, operator: str = "max_error") -> float:
    """Return the admitted multiple of the direct sum's error bound: of the call, of the context, or 1."""
    return float(_DIRECT.in_force) if max_error is None else _checked_accuracy(max_error, operator)


@contextmanager
def kernel_cache(directory: str | os.PathLike[str] | None) -> Iterator[None]:
    """Keep compiled kernels in a directory in a ``with`` block of this thread or task; None keeps them in memory only.

    The setting counts where a call needs a kernel that this process does not have yet. It takes precedence over the
    environment variable CONVGRAD_CACHE_DIR. The directory is made when the first kernel is written.
    Raises InvalidAttributeError unless ``directory`` is a path or None.

    >>> with kernel_cache(None):
    ...     kernel_directory() is None
    True
    """
    if directory is not None and not isinstance(directory, str | os.PathLike):
        raise InvalidAttributeError(f"kernel_cache must be a directory, or None for no directory; got {directory!r}")
    token = _cache.set(None if directory is None else Path(directory))
    try:
        yield
    finally:
        _cache.reset(token)


def kernel_directory() -> Path | None:
    """Return the kernel cache: from the context, CONVGRAD_CACHE_DIR, or the system's default; None if it is off."""
    asked = _cache.get()
    if asked is not _UNSET:
        return asked
    given = environment(b"CONVGRAD_CACHE_DIR", str(_UNSET))
    if given != str(_UNSET):
        return None if given.strip().lower() in ("", "off") else Path(given)
    place = cache_directory()
    return None if place is None else place / "convgrad"


def count(threads: int | None) -> int:
    """Return the number of threads: of the call, the context, or the environment; all usable cores by default."""
    asked = _wanted.get() if threads is None else as_integer(threads)
    return asked or _by_environment(_OURS) or _by_environment(b"OMP_NUM_THREADS") or core_count()


def asked_of_us() -> int | None:
    """Return the number of threads of the context or of CONVGRAD_NUM_THREADS, or None."""
    return _wanted.get() or _by_environment(_OURS)


def _by_environment(name: bytes) -> int | None:
    given = environment(name)
    if not given:
        return None
    value = given.split(",")[0].strip()
    if value.isdecimal() and 1 <= int(value[:20]) <= MAX_THREADS:
        return int(value)
    if value and name is _OURS:  # other libraries define the other variable
        wanted = f"a positive integer, {MAX_THREADS} at most"
        raise InvalidAttributeError(f"CONVGRAD_NUM_THREADS must be {wanted}; got {given!r:.200}")
    return None


def max_isa() -> str | None:
    """Return the widest instruction set that CONVGRAD_MAX_ISA admits, or None without a cap."""
    name = cap().strip().lower()
    if name and name not in CAPS:
        raise InvalidAttributeError(f"CONVGRAD_MAX_ISA must be one of {', '.join(CAPS)}; got {name!r:.200}")
    return name or None


def cap() -> str:
    """Return the text of CONVGRAD_MAX_ISA: cached calls are valid while it stays the same."""
    return environment(b"CONVGRAD_MAX_ISA")
