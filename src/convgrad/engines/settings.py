"""The user's settings: threads, accuracy, the directory of the kernel cache, and the widest instruction set."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from math import inf
from numbers import Real
from pathlib import Path
from typing import ParamSpec, TypeVar

from convgrad.engines import openmp
from convgrad.errors import InvalidAttributeError
from convgrad.host import cache_directory, core_count, environment
from convgrad.spec.check import as_integer
from convgrad.spec.rules import refuse
from convgrad.words import shown

_OURS = b"CONVGRAD_NUM_THREADS"
MAX_THREADS = 4096  # the limit for a call: no machine has more cores
CAPS = ("amx", "avx512bf16", "avx512", "avx2", "neon", "numpy")
OWN, OPENMP = POOLS = ("own", "openmp")  # names of the thread pools: convgrad's own, and the OpenMP runtime
Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")
_pool: ContextVar[str | None] = ContextVar("convgrad_pool", default=None)
_wanted: ContextVar[int | None] = ContextVar("convgrad_threads", default=None)
_tune: ContextVar[bool] = ContextVar("convgrad_tune", default=False)
_accuracy: ContextVar[float] = ContextVar("convgrad_max_error")
_UNSET = Path("\0")  # a name that no directory can have, because None already means "no directory"
_cache: ContextVar[Path | None] = ContextVar("convgrad_kernel_cache", default=_UNSET)


class _Direct(float):
    """The accuracy outside every ``max_error`` block; ``in_force`` is the accuracy of the current context.

    ``in_force`` is a property with a built-in getter, ``ContextVar.get(default)``. torch.compile reads such a property
    and compiles again when its value changes, but torch.compile cannot trace a method call on a ContextVar.
    """

    in_force = property(_accuracy.get)


_DIRECT = _Direct(1.0)


@contextmanager
def threads(number: int | None = None, *, pool: str | None = None) -> Iterator[None]:
    """Use at most ``number`` threads, from the pool ``pool``, in a ``with`` block of this thread or task.

    Results depend neither on the number of threads nor on the pool.

    Args:
        number: The largest number of threads, from 1 to 4096. The ``threads`` argument of a call takes precedence. By
            default, the setting outside the block stays in force. Default: None.

    Keyword Args:
        pool: "own" for convgrad's own threads, or "openmp" for the threads of the OpenMP runtime that PyTorch has
            loaded. By default, the setting outside the block stays in force. Outside every block, calls on PyTorch's
            tensors use the OpenMP runtime if one is loaded, and all other calls use convgrad's own threads. A forked
            process always uses convgrad's own threads. Default: None.

    Raises:
        InvalidAttributeError: ``number`` is not an integer from 1 to 4096, or ``pool`` is another name.
        UnsupportedError: ``pool`` is "openmp", but no OpenMP runtime can be used. On Linux, import torch first.

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
        refuse("D11", "threads", f"pool must be one of {', '.join(POOLS)}; got {shown(name)}")
    if name == OPENMP and (reason := openmp.why_not()):  # D12
        refuse("D12", "threads", f"pool must be own here; got openmp: {reason}")
    return name


def pool() -> str:
    """Return the name of the context's thread pool; the default is "own"."""
    return _pool.get() or OWN


def on(
    name: str, compute: Callable[Parameters, Result], *arguments: Parameters.args, **named: Parameters.kwargs
) -> Result:
    """Call a function with ``name`` as the context's pool, unless a pool is selected already; return its result."""
    if name == OWN or _pool.get() is not None:
        return compute(*arguments, **named)
    token = _pool.set(name)
    try:
        return compute(*arguments, **named)
    finally:
        _pool.reset(token)


def checked(number: object, operator: str) -> int:
    """Return ``number`` as an integer; refuse it by rule D6 unless it is from 1 to MAX_THREADS."""
    wanted = as_integer(number)
    if wanted is None or wanted < 1:  # D6
        refuse("D6", operator, f"threads must be a positive integer; got {shown(number)}; leave it out for all cores")
    if wanted > MAX_THREADS:  # D6
        refuse(
            "D6", operator, f"threads must be at most {MAX_THREADS}; got {shown(wanted)}; leave it out for all cores"
        )
    return wanted


@contextmanager
def max_error(maximum: float) -> Iterator[None]:
    """Allow larger rounding errors, and so faster algorithms, in a ``with`` block of this thread or task.

    For 3x3 kernels, 8 admits Winograd tiles of 2x2 positions and 64 admits tiles of 4x4, if they need fewer
    multiply-adds. The ``max_error`` argument of a call takes precedence.

    The bounds are products of two norms. For a weight gradient, they are the norms of the two channels of a weight. In
    the other passes, they are the norms of the positions that a tile reads and of the weights of its channel.

    Args:
        maximum: The largest error bound of a result, as a multiple of the direct sum's bound.

    Raises:
        InvalidAttributeError: ``maximum`` is not a number that is 1 or larger.

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
    try:
        number = float(maximum) if isinstance(maximum, Real) and not isinstance(maximum, bool) else 0.0
    except OverflowError:  # of an integer or a fraction
        number = inf if maximum > 1 else 0.0  # type: ignore[operator]
    if not number >= 1:  # D9
        refuse(
            "D9",
            operator,
            f"max_error must be a number, 1 at least; got {shown(maximum)}; 1, the default, is the direct sum",
        )
    return number


def accuracy(max_error: float | None, operator: str = "max_error") -> float:
    """Return the allowed multiple of the direct sum's error bound: ``max_error``, else that of the context, else 1."""
    bound: float = _DIRECT.in_force if max_error is None else _checked_accuracy(max_error, operator)
    return 1.0 if bound is _DIRECT else bound  # torch.compile of PyTorch 2.11 cannot trace a conversion to float


@contextmanager
def tune(enabled: bool = True) -> Iterator[None]:
    """Choose plans by measurement in a ``with`` block of this thread or task.

    The first call of each kind of problem runs the most promising plans several times on random data, which takes
    about a second, and remembers the fastest. The kernel cache keeps the result for later processes. All plans compute
    the same bits, so only the time changes. Problems that ``max_error`` lets Winograd compute have one plan.

    Args:
        enabled: Whether plans are measured; False ends the measurement inside another block. Default: True.

    Raises:
        InvalidAttributeError: ``enabled`` is not a bool.

    >>> with tune():
    ...     tuning()
    True
    """
    token = _tune.set(flag(enabled, "tune"))
    try:
        yield
    finally:
        _tune.reset(token)


def flag(value: object, argument: str) -> bool:
    """Return a value that must be a bool; raise InvalidAttributeError if it is not."""
    if not isinstance(value, bool):
        raise InvalidAttributeError(f"{argument} must be True or False; got {shown(value)}")
    return value


def tuning() -> bool:
    """Return whether plans are chosen by measurement."""
    return _tune.get()


@contextmanager
def kernel_cache(directory: str | os.PathLike[str] | None) -> Iterator[None]:
    """Keep compiled kernels in a directory in a ``with`` block of this thread or task.

    The directory is used if a call needs a kernel that this process has not loaded yet. This setting takes precedence
    over the environment variable CONVGRAD_CACHE_DIR. The directory is created when the first kernel is written.

    Args:
        directory: The path of the directory; None keeps kernels in memory only.

    Raises:
        InvalidAttributeError: ``directory`` is neither a path nor None.

    >>> with kernel_cache(None):
    ...     kernel_directory() is None
    True
    """
    token = _cache.set(None if directory is None else _checked_directory(directory))
    try:
        yield
    finally:
        _cache.reset(token)


def _checked_directory(directory: str | os.PathLike[str]) -> Path:
    try:
        path = Path(directory)
        os.fsencode(path)  # raises UnicodeEncodeError for a lone surrogate
    except (TypeError, UnicodeEncodeError):
        path = None
    if path is None or "\0" in str(path):
        raise InvalidAttributeError(
            f"kernel_cache must be a directory, or None for no directory; got {shown(directory)}"
        )
    return path


def kernel_directory() -> Path | None:
    """Return the directory of the kernel cache, or None if it is off.

    The context takes precedence over CONVGRAD_CACHE_DIR, which takes precedence over the system's default.
    """
    asked = _cache.get()
    if asked is not _UNSET:
        return asked
    path = environment(b"CONVGRAD_CACHE_DIR", str(_UNSET))
    if path != str(_UNSET):
        path = os.path.expanduser(path)  # which leaves ~ where the home directory is unknown
        return None if path.strip().lower() in ("", "off") or path.startswith("~") else Path(path)
    place = cache_directory()
    return None if place is None else place / "convgrad"


def count(threads: int | None) -> int:
    """Return the number of threads of a call: ``threads``, else that of the context, else of the environment.

    The default is the number of usable cores.
    """
    asked = _wanted.get() if threads is None else as_integer(threads)
    return asked or _by_environment(_OURS) or default_count()


def default_count() -> int:
    """Return the number of threads of a call if none is set in convgrad."""
    return _by_environment(b"OMP_NUM_THREADS") or core_count()


def asked_of_us() -> int | None:
    """Return the number of threads of the context, else of CONVGRAD_NUM_THREADS, else None."""
    return _wanted.get() or _by_environment(_OURS)


def _by_environment(name: bytes) -> int | None:
    text = environment(name)
    if not text:
        return None
    value = text.split(",")[0].strip()
    if value.isdecimal() and len(value) <= 20 and 1 <= int(value) <= MAX_THREADS:
        return int(value)
    if value and name is _OURS:  # OMP_NUM_THREADS may have values that only other libraries understand
        wanted = f"a positive integer, {MAX_THREADS} at most"
        raise InvalidAttributeError(f"CONVGRAD_NUM_THREADS must be {wanted}; got {text!r:.200}")
    return None


def max_isa() -> str | None:
    """Return the widest instruction set that CONVGRAD_MAX_ISA admits, or None without a cap."""
    return admitted(cap())


def admitted(text: str) -> str | None:
    """Return the widest instruction set that a text of CONVGRAD_MAX_ISA admits, or None without a cap."""
    name = text.strip().lower()
    if name and name not in CAPS:
        raise InvalidAttributeError(f"CONVGRAD_MAX_ISA must be one of {', '.join(CAPS)}; got {text!r:.200}")
    return name or None


def cap() -> str:
    """Return the text of CONVGRAD_MAX_ISA."""
    return environment(b"CONVGRAD_MAX_ISA")


def selection(measured: bool = False) -> tuple[str, bool]:
    """Return the settings that select code. Cached calls are valid only while these stay the same.

    ``measured`` chooses plans by measurement also where ``tune`` is not in force.
    """
    return cap(), measured or tuning()
