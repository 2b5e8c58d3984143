"""Calls of an operator that run again on other tensors of the same kind, without the operator's Python code.

The first call of a kind records the calls of drivers. Each of their addresses is that of an argument, of memory that
the operator allocates, or of a constant. If one is not, for example because an argument is copied first, if a result
has other memory, or if arguments share memory, all calls of this kind run the operator's function. A function that uses
drivers must not write to its arguments or results by other means, or depend on values of tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from itertools import pairwise
from typing import Any, NamedTuple, ParamSpec, TypeVar, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from convgrad.arrays.libraries.torch import TORCH
from convgrad.engines.addresses import address_of
from convgrad.engines.settings import accuracy, on, selection
from convgrad.float_environment import in_default_environment
from convgrad.functional.recording import Driver, Memory, Recording, recorded
from convgrad.plan.machine import LINE_BYTES
from convgrad.torch.kernels import threads_of_call
from convgrad.torch.training.expected import Kind, Results, kind_of
from convgrad.torch.training.tensors import REMEMBERED, memory_bytes, read_address, rounded, write_address

_Place = tuple[int, int]  # the number of a base address, and an offset from it
_ABSOLUTE, _SCRATCH, _NUMBERS, _FIRST = range(4)  # numbers of base addresses; the last one is that of a tensor
Numbers = Sequence[object]
_SETTINGS = 16  # settings whose calls are kept for each kind
_NOTHING = np.empty(0, np.uint8)
Arguments = ParamSpec("Arguments")
Computed = TypeVar("Computed")


class Replays:
    """The recorded calls of one kind, by the settings that select code."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[object, _Replay | None] = {}

    def computed(self, compute: Callable[[], Results], arguments: tuple[object, ...], numbers: Numbers) -> Results:
        """Return the results of ``compute``, an operator with these arguments, and record its first call.

        All calls with the same settings have the same ones, except for the tensors, and for ``numbers`` of a map.
        """
        settings = _settings()
        if settings not in self._known:
            recording = Recording()
            with recorded(recording):
                results = compute()
            if len(self._known) >= _SETTINGS:
                self._known.clear()
            self._known[settings] = _replay_of(recording, arguments, numbers, results)
            return results
        with recorded(None):
            return compute()

    def again(self, arguments: tuple[object, ...], numbers: Numbers) -> Results | None:
        """Return the results of the recorded calls for these arguments; None if the operator must compute them."""
        replay = self._known.get(_settings())
        return None if replay is None else replay(arguments, numbers)

    def repeat(self, compute: Callable[..., tuple[Tensor, ...]], repetition: Repetition) -> list[Tensor]:
        """Return the results of a function for all steps, stacked.

        All repetitions have arguments of the same kind.
        """
        settings = _settings()
        if settings not in self._known:
            first = repetition.arguments(0)
            self.computed(partial(compute, *first), first, ())
        replay = self._known[settings]
        if replay is not None:
            return replay.repeat(repetition)
        results = list[tuple[Tensor, ...]]()
        with recorded(None):
            for at in range(repetition.length):
                states = results[-1][: len(repetition.states)] if at else repetition.states
                results.append(compute(*repetition._replace(states=states).arguments(at)))
        return [torch.stack(kind) for kind in zip(*results[:: -1 if repetition.reverse else 1], strict=True)]


@lru_cache(REMEMBERED)
def replays_of(function: Callable[..., Results], kind: Kind) -> Replays:
    """Return the recorded calls of a function with arguments of a kind."""
    return Replays()


def replayed(function: Callable[Arguments, Computed]) -> Callable[Arguments, Computed]:
    """Return a function whose calls are recorded, so that those of one kind run again."""

    def called(*arguments: Arguments.args, **_: Arguments.kwargs) -> Computed:
        compute: Any = partial(function, *arguments)
        replays = replays_of(cast(Any, function), kind_of(arguments, {}))
        results: Any = replays.again(arguments, ())
        if results is None:
            results = replays.computed(compute, arguments, ())
        return cast(Computed, results)

    return called


class Repetition(NamedTuple):
    """The arguments of a function that is called for each step, the last one first if ``reverse`` is true.

    They are its parts of tensors that begin with an axis of steps, then its states, and then the same values for all
    steps. Its first results are the states of the next call. No two tensors share memory.
    """

    stacked: tuple[Tensor, ...]
    states: tuple[Tensor, ...]
    same: tuple[Tensor | None, ...]
    reverse: bool

    @property
    def length(self) -> int:
        """The number of steps."""
        return len(self.stacked[0])

    def arguments(self, at: int) -> tuple[Tensor | None, ...]:
        """Return the arguments of call number ``at``, if the states are those of this call."""
        place = -1 - at if self.reverse else at
        return *[tensor[place] for tensor in self.stacked], *self.states, *self.same


def _settings() -> object:
    """Return the settings that select code."""
    return threads_of_call(), selection(), accuracy(None)


class _Replay(NamedTuple):
    """Recorded calls, with the places of their addresses, and the results."""

    calls: tuple[tuple[Driver, tuple[_Place, ...]], ...]
    tensors: tuple[tuple[int, Callable[[Tensor], int]], ...]  # numbers of tensors, and what returns their addresses
    sizes: tuple[int, ...]  # bytes of these tensors
    written: tuple[int, ...]  # which of them are written to
    scratch_bytes: int
    new: tuple[tuple[tuple[int, ...], tuple[int, ...], torch.dtype], ...]  # shapes, strides and types
    results: tuple[int | None, ...]  # numbers of arguments, and then of new tensors
    is_tuple: bool
    same: tuple[tuple[int, int], ...]  # numbers of arguments that are the same tensor
    numbers: tuple[float | None, ...]  # those of a map, except that the caller's are None
    number_type: np.dtype[Any]
    constants: object
    is_alone: bool  # whether no call needs other threads

    def __call__(self, arguments: tuple[object, ...], numbers: Numbers) -> Results | None:
        """Return the results, or None if an argument that is written to shares memory with another one."""
        if self.same and any([arguments[first] is not arguments[second] for first, second in self.same]):
            return None
        bases = [0, 0, 0]
        for number, address in self.tensors:
            bases.append(address(cast(Tensor, arguments[number])))
        if self.written and self._overlap(bases[_FIRST:]):
            return None
        of_map = _NOTHING
        scratch, bases[_SCRATCH] = self._scratch()
        if numbers:
            of_map = self._numbers(numbers)
            bases[_NUMBERS] = address_of(of_map)
        new: list[Tensor] = []
        for shape, strides, dtype in self.new:
            new.append(torch.empty_strided(shape, strides, dtype=dtype))
            bases.append(new[-1].data_ptr())
        keep = arguments, scratch, of_map, new, self.constants
        if self.is_alone:
            self._run(bases, keep)
        else:
            on(TORCH.pool, self._run, bases, keep)
        if not self.is_tuple:
            return new[0] if new else cast(Tensor, arguments[cast(int, self.results[0])])
        tensors = *arguments, *new
        return cast(Results, tuple([None if number is None else tensors[number] for number in self.results]))

    def repeat(self, repetition: Repetition) -> list[Tensor]:
        """Return the results of the recorded calls for all steps, stacked."""
        arguments, bases, pitches = (*repetition.stacked, *repetition.states, *repetition.same), [0, 0, 0], [0, 0, 0]
        new = [torch.empty((repetition.length, *shape), dtype=dtype) for shape, _, dtype in self.new]
        for number, address in self.tensors:
            tensor = cast(Tensor, arguments[number])
            bases.append(address(tensor))
            pitches.append(_pitch(tensor) if number < len(repetition.stacked) else 0)
        bases += [tensor.data_ptr() for tensor in new]
        pitches += [*map(_pitch, new)]
        if repetition.reverse:
            last = repetition.length - 1
            bases, pitches = (
                [base + last * pitch for base, pitch in zip(bases, pitches, strict=True)],
                [-p for p in pitches],
            )
        scratch, bases[_SCRATCH] = self._scratch()
        on(TORCH.pool, self._run_repeatedly, bases, pitches, repetition, (arguments, scratch, new, self.constants))
        return new

    def _run_repeatedly(self, bases: list[int], pitches: list[int], repetition: Repetition, keep: object) -> None:
        """Run the calls for all steps, from addresses that move by ``pitches`` bytes after each step."""
        before, after = _FIRST + len(repetition.stacked), len(bases) - len(self.new)  # numbers of the states' addresses
        states = len(repetition.states)
        for _ in range(repetition.length):
            self._run(bases, keep)
            results = bases[after : after + states]
            bases = [base + pitch for base, pitch in zip(bases, pitches, strict=True)]
            bases[before : before + states] = results

    def _scratch(self) -> tuple[NDArray[np.uint8], int]:
        """Return memory for what is neither an argument nor a result, and its first address in a line."""
        if not self.scratch_bytes:
            return _NOTHING, 0
        scratch = np.empty(self.scratch_bytes + LINE_BYTES, np.uint8)
        return scratch, address_of(scratch) + -address_of(scratch) % LINE_BYTES

    @in_default_environment  # in which the first call has rounded them
    def _numbers(self, numbers: Numbers) -> NDArray[Any]:
        of_caller, of_map = iter(numbers), self.numbers
        both = [cast(float, next(of_caller)) if number is None else number for number in of_map]
        return rounded(both, self.number_type)

    def _overlap(self, addresses: list[int]) -> bool:
        for which in self.written:
            begin, end = addresses[which], addresses[which] + self.sizes[which]
            shared = [at < end and begin < at + size for at, size in zip(addresses, self.sizes, strict=True)]
            if sum(shared) > 1:
                return True
        return False

    def _run(self, bases: list[int], keep: object) -> None:
        for driver, places in self.calls:
            driver([bases[base] + offset for base, offset in places], keep)


def _pitch(tensor: Tensor) -> int:
    """Return the bytes from an element of the first axis to the next one."""
    pitch: int = tensor.stride(0) * tensor.itemsize
    return pitch


class _Region(NamedTuple):
    """Recorded memory, and the place of its begin."""

    begin: int
    size: int
    place: _Place


def _replay_of(
    recording: Recording, arguments: tuple[object, ...], numbers_of_map: Numbers, results: Results
) -> _Replay | None:
    """Return the recorded calls for other tensors; None if an address or a result is unknown."""
    first_of = {id(value): number for number, value in reversed([*enumerate(arguments)])}
    all_tensors = {number: value for number, value in enumerate(arguments) if isinstance(value, torch.Tensor)}
    tensors = {number: tensor for number, tensor in all_tensors.items() if first_of[id(tensor)] == number}
    of_map = next((constant for constant in recording.constants if constant.numbers), Memory(0, 0, _NOTHING))
    own = [None if any(number is other for other in numbers_of_map) else number for number in of_map.numbers]
    new, numbers = list[Tensor](), list[int | None]()
    for result in results if isinstance(results, tuple) else (results,):
        same = [number for number, tensor in tensors.items() if tensor is result]
        numbers.append(None if result is None else same[0] if same else len(arguments) + len(new))
        new += [] if result is None or same else [result]
    begins = [read_address(tensor) for tensor in tensors.values()]
    sizes = [memory_bytes(tensor) for tensor in tensors.values()]
    spans = enumerate(zip(begins, sizes, strict=True), _FIRST)
    regions = [_Region(begin, max(size, 1), (base, 0)) for base, (begin, size) in spans]
    regions += [
        _Region(begin, size, (_NUMBERS, 0) if numbers_of_map and of_caller else (_ABSOLUTE, begin))
        for begin, size, _, of_caller in recording.constants
    ]
    scratch_bytes, of_results = 0, 0
    for begin, size, *_ in recording.allocated:
        returned = [at for at, tensor in enumerate(new) if (tensor.data_ptr(), tensor.nbytes) == (begin, size)]
        place = (_FIRST + len(tensors) + returned[0], 0) if returned else (_SCRATCH, scratch_bytes)
        regions.append(_Region(begin, size, place))
        scratch_bytes += 0 if returned else -(-size // LINE_BYTES) * LINE_BYTES
        of_results += len(returned)
    calls = [(driver, tuple([_place(at, regions) for at in addresses])) for driver, addresses in recording.calls]
    is_known = all(None not in places for _, places in calls)
    is_new = of_results == len([tensor for tensor in new if tensor.numel()])
    has_numbers = (own.count(None) == len(numbers_of_map) and len(recording.calls) == 1) or not numbers_of_map
    if not (calls and is_known and is_new and has_numbers and _are_apart(begins, sizes)):
        return None
    return _Replay(
        calls=cast(Any, tuple(calls)),
        tensors=tuple(zip(tensors, [_reader(begin, recording) for begin in begins], strict=True)),
        sizes=tuple(sizes),
        written=tuple([at for at, begin in enumerate(begins) if begin in recording.written]),
        scratch_bytes=scratch_bytes,
        new=tuple([(tuple(tensor.shape), tensor.stride(), tensor.dtype) for tensor in new]),
        results=tuple(numbers),
        is_tuple=isinstance(results, tuple),
        same=tuple([(number, first_of[id(tensor)]) for number, tensor in all_tensors.items() if number not in tensors]),
        numbers=tuple(own),
        number_type=cast(Any, of_map.owner).dtype,
        constants=recording.constants,
        is_alone=all(getattr(driver, "is_alone", False) for driver, _ in recording.calls),
    )


def _are_apart(begins: Sequence[int], sizes: Sequence[int]) -> bool:
    """Return whether no tensors share memory: an address in one could belong to another one."""
    ordered = sorted([(begin, begin + max(size, 1)) for begin, size in zip(begins, sizes, strict=True)])
    return all([end <= begin for (_, end), (begin, _) in pairwise(ordered)])


def _place(address: int, regions: Sequence[_Region]) -> _Place | None:
    """Return the base of an address, and the offset from it; None for unknown memory."""
    for begin, size, (base, offset) in regions:
        if begin <= address < begin + size:
            return base, offset + address - begin
    return None


def _reader(begin: int, recording: Recording) -> Callable[[Tensor], int]:
    """Return what reads the address of a tensor, which also copies shared memory that is written to."""
    return write_address if begin in recording.written else read_address
