"""Assertions that a function has the same bits in several configurations, and for a batch that is cut."""

from __future__ import annotations

import contextlib
import os
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from itertools import pairwise
from multiprocessing import get_context
from typing import Any

import numpy as np

from convgrad.array_types import Array
from convgrad.arrays import take
from convgrad.arrays.libraries import detached, library_of
from convgrad.engines.settings import threads as own_threads
from convgrad.errors import InvalidAttributeError, InvalidDataTypeError

_VARIABLES = {"capability": "ATEN_CPU_CAPABILITY", "max_isa": "CONVGRAD_MAX_ISA"}


@dataclass(frozen=True)
class Configuration:
    """The settings of one run of a function.

    Args:
        threads: The number of threads of convgrad and, if it is loaded, of PyTorch; None changes nothing. Default:
            None.
        capability: The value of ATEN_CPU_CAPABILITY in a new process, for example "avx2"; None changes nothing.
            Default: None.
        max_isa: The value of CONVGRAD_MAX_ISA in a new process; None changes nothing. Default: None.
        new_process: Whether the function runs in a new process. Default: False.
        arguments: Keyword arguments of the function, for example ``{"memory_format": torch.channels_last}``.
            Default: {}.
    """

    threads: int | None = None
    capability: str | None = None
    max_isa: str | None = None
    new_process: bool = False
    arguments: Mapping[str, object] = field(default_factory=dict)

    def __str__(self) -> str:
        """Return the settings that differ from the defaults, as text."""
        settings = {name: getattr(self, name) for name in ("threads", "capability", "max_isa") if getattr(self, name)}
        settings |= {"new_process": True} if self.new_process else {}
        return ", ".join(f"{name}={value}" for name, value in {**settings, **self.arguments}.items()) or "no settings"

    def needs_process(self) -> bool:
        """Return whether the settings can only be set when a process starts."""
        return self.new_process or self.capability is not None or self.max_isa is not None


THREADS = tuple(Configuration(threads=number) for number in (1, 2, 3))


def assert_same_bits(
    function: Callable[..., object], configurations: Sequence[Configuration] = THREADS, **arguments: object
) -> None:
    """Assert that a function returns the same bits in all configurations.

    The results of any library can be compared. The function should return outputs and gradients, for example
    ``{"loss": loss, **gradients}``.

    Args:
        function: Returns an array, or a tuple, list or dict of results, which may be nested.
        configurations: The settings to compare. A new process imports the function by the name of its module, so the
            function must be defined at the top level of a module.
            Default: tuple(Configuration(threads) for threads in (1, 2, 3)).

    Keyword Args:
        **arguments: Keyword arguments of the function in all configurations.

    Raises:
        AssertionError: Two results differ. The message names the first tensor and element that differ, and both values.
        InvalidAttributeError: There are fewer than two configurations.
        InvalidDataTypeError: A result is no array, there are no arrays, or the function cannot be imported by a new
            process.

    >>> import convgrad
    >>> x = np.ones((2, 4, 4, 1), np.float32)
    >>> assert_same_bits(lambda: convgrad.convolution_backward_weights(x, x, (1, 1, 1, 1)))
    """
    __tracebackhide__ = True
    if len(configurations) < 2:
        raise InvalidAttributeError(f"configurations must have two or more entries; got {len(configurations)}")
    first = None
    for configuration in configurations:
        named_results = _run(function, configuration, arguments)
        if first is None:
            first, results = configuration, named_results
        else:
            _compare(results, named_results, str(first), str(configuration))


def assert_batch_invariant(
    function: Callable[..., object], batch: Sequence[Any], cuts: Sequence[Sequence[int]], **arguments: object
) -> None:
    """Assert that the results of each sample do not depend on the other samples in the batch.

    Args:
        function: Takes the arrays of ``batch`` and returns results whose first axis is the batch, for example the
            output and the gradient of the input.
        batch: Arrays whose first axis is the batch.
        cuts: Ways to cut the batch; ``[[4], [1, 5]]`` compares two parts, and then three parts, with the whole batch.

    Keyword Args:
        **arguments: Keyword arguments of the function.

    Raises:
        AssertionError: The results of the parts differ from those of the whole batch.
        InvalidAttributeError: There are no cuts, or a cut does not lie inside the batch, in increasing order.

    >>> x = np.ones((6, 4), np.float32)
    >>> assert_batch_invariant(lambda x: 2 * x, [x], [[3], [1, 4]])
    """
    __tracebackhide__ = True
    samples = len(batch[0])
    if not len(cuts):
        raise InvalidAttributeError("cuts must have one or more entries; got none")
    whole = _named_arrays(function(*batch, **arguments))
    for cut in cuts:
        ends = [0, *cut, samples]
        if any(begin >= end for begin, end in pairwise(ends)):
            raise InvalidAttributeError(
                f"cuts must be positions inside a batch of {samples}, in increasing order; got {list(cut)}"
            )
        parts: list[dict[str, Array]] = []
        for begin, end in pairwise(ends):
            parts.append(_named_arrays(function(*[array[begin:end] for array in batch], **arguments)))
        combined = {name: np.concatenate([np.atleast_1d(part[name]) for part in parts]) for name in parts[0]}
        _compare(whole, combined, f"the batch of {samples}", f"parts cut at {', '.join(map(str, cut))}")


# -- runs ----------------------------------------------------------------------------------------------------------


def _run(
    function: Callable[..., object], configuration: Configuration, arguments: Mapping[str, object]
) -> dict[str, Array]:
    """Return a function's results by name, with the settings of a configuration."""
    call = function, configuration.threads, {**arguments, **configuration.arguments}
    if not configuration.needs_process():
        return _called(*call)
    variables = {name: getattr(configuration, field) for field, name in _VARIABLES.items()}
    settings = {name: value for name, value in variables.items() if value is not None}
    try:
        pickle.dumps(call)
    except (AttributeError, TypeError, pickle.PicklingError) as error:
        sentence = "function must be importable, and its arguments picklable, for a new process"
        raise InvalidDataTypeError(f"{sentence}; got {function!r}: {error}") from error
    with _environment(settings), ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(_called, *call).result()


def _called(function: Callable[..., object], threads: int | None, arguments: Mapping[str, object]) -> dict[str, Array]:
    with _threads(threads):
        return _named_arrays(function(**arguments))


@contextlib.contextmanager
def _threads(number: int | None) -> Iterator[None]:
    """Set the threads of convgrad and of PyTorch, if it is loaded, in a ``with`` block."""
    if number is None:
        yield
        return
    import sys  # noqa: PLC0415

    torch = sys.modules.get("torch")
    before = None if torch is None else torch.get_num_threads()
    try:
        if torch is not None:
            torch.set_num_threads(number)
        with own_threads(number):
            yield
    finally:
        if torch is not None:
            torch.set_num_threads(before)


@contextlib.contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name)
            else:
                os.environ[name] = value


# -- results -------------------------------------------------------------------------------------------------------


def _named_arrays(results: object) -> dict[str, Array]:
    """Return the arrays of nested results by name; raise InvalidDataTypeError if there are none to compare."""
    arrays = dict(_arrays(results))
    if not arrays:
        raise InvalidDataTypeError(f"result must be an array or nested arrays; got {results!r:.200}, which has none")
    return arrays


def _arrays(results: object, name: str = "result") -> Iterator[tuple[str, Array]]:
    """Yield the arrays of nested results with their names, such as "result['loss']"."""
    if isinstance(results, Mapping):
        for key, value in results.items():
            yield from _arrays(value, f"{name}[{key!r}]")
    elif isinstance(results, list | tuple):
        for at, value in enumerate(results):
            yield from _arrays(value, f"{name}[{at}]")
    elif isinstance(results, np.ndarray | np.generic) or library_of(results) is not None:
        array = detached(results)
        yield (
            name,
            np.array(array if isinstance(array, np.ndarray | np.generic) else take(array, "assert_same_bits", name)[0]),
        )
    else:
        raise InvalidDataTypeError(f"{name} must be an array or nested arrays; got {type(results).__name__}")


def _compare(left: Mapping[str, Array], right: Mapping[str, Array], of_left: str, of_right: str) -> None:
    """Raise AssertionError at the first array or element that differs in its bits."""
    __tracebackhide__ = True
    if list(left) != list(right):
        raise AssertionError(
            f"the results have different names: {list(left)} with {of_left}, {list(right)} with {of_right}"
        )
    for name, a in left.items():
        b = right[name]
        if a.shape != b.shape or a.dtype != b.dtype:
            kinds = f"{a.dtype} {a.shape} with {of_left}, {b.dtype} {b.shape} with {of_right}"
            raise AssertionError(f"{name} differs in its type or shape: {kinds}")
        differ = (_bytes(a) != _bytes(b)).any(axis=-1)
        if differ.any():
            at = np.unravel_index(int(differ.argmax()), a.shape)
            place = tuple(map(int, at))
            raise AssertionError(
                f"{name} differs in {int(differ.sum())} of {a.size} elements, first at {place}: "
                f"{_value(a[at])} with {of_left}; {_value(b[at])} with {of_right}"
            )


def _bytes(array: Array) -> Array:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).reshape(array.size, array.itemsize)


def _value(element: object) -> str:
    """Return an element's bits in hexadecimal, and its value.

    >>> _value(np.float32(1))
    '0x3f800000 (1.0)'
    """
    return f"0x{np.asarray(element).tobytes()[::-1].hex()} ({element})"
