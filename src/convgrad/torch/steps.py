"""Times of a model's training step: of the step, of convgrad's kernels in it, and of variants that may be faster."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from time import perf_counter

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.utils._pytree import tree_leaves, tree_map

from convgrad.engines.settings import accuracy, max_error
from convgrad.errors import InvalidDataTypeError
from convgrad.torch.cuda import now
from convgrad.torch.kernels import LAST, KernelCall, timed
from convgrad.words import LONGEST, counted, printable

_TILES = 64.0  # the max_error of the variant with Winograd
_SECONDS, _FEWEST, _MAXIMUM = 4.0, 3, 10  # time for all variants, in seconds; min and max steps per variant
_GRADIENTS = {"weights": "weight gradients", "bias": "bias gradients"}  # by Problem.solves_for


@dataclass(frozen=True)
class Step:
    """A training step.

    Args:
        seconds: The time of the step in seconds.
        forward: The kernel calls of the forward pass.
        backward: The kernel calls of the backward pass.
    """

    seconds: float
    forward: tuple[KernelCall, ...]
    backward: tuple[KernelCall, ...]

    @property
    def kernel_seconds(self) -> float:
        """The time in convgrad's kernels, in seconds."""
        return sum(call.seconds for call in (*self.forward, *self.backward))

    @property
    def tiled(self) -> int:
        """The number of layers whose forward pass uses Winograd."""
        return sum(bool(call.problem.algorithm) for call in self.forward)


@dataclass(frozen=True)
class Steps:
    """Training steps of a model, unchanged and after each change.

    Args:
        as_is: The unchanged step.
        others: The fastest step after each change, by the name of the change, or the text of the error that the model
            raised.
    """

    as_is: Step
    others: Mapping[str, Step | str]

    def lines(self) -> Iterator[str]:
        """Yield the measurements as lines of text."""
        step, inside = self.as_is, self.as_is.kernel_seconds
        share = f"{_ms(inside)}, {inside / step.seconds:.0%}, are in convgrad's kernels"
        yield f"a training step takes {_ms(step.seconds)}" + (f"; {share}" if step.forward else "")
        if not step.forward:
            yield "  convgrad computes no layer of this step; if it has convolutions, call reproducible(model)"
            return
        yield f"  {', '.join(f'{name} {_ms(seconds)}' for name, seconds in _passes(step).items())}"
        algorithms = Counter(_algorithm(call) for call in step.forward)
        formats = Counter(_format(call.channels_last) for call in step.forward)
        yield f"  {counted(len(step.forward), 'layer')}: {_counts(algorithms)}; inputs: {_counts(formats)}"
        for change, other in self.others.items():
            yield f"  {self._compared(change, other)}"

    def _compared(self, change: str, other: Step | str) -> str:
        """Return the effect of a change on the step, as text."""
        if isinstance(other, str):
            return f"{change}: the model raises {other}"
        times = f"a step takes {_ms(other.seconds)} instead of {_ms(self.as_is.seconds)}"
        if change != _ADMITTING:
            return f"{change}: {times}"
        if other.tiled <= self.as_is.tiled:
            return f"{change} admits Winograd tiles for no {'other ' * bool(other.tiled)}layer"
        return f"{change} admits Winograd tiles for {other.tiled} of {len(other.forward)} layers: {times}"


_ADMITTING = f"max_error={_TILES:.0f}"


def measured(model: nn.Module, inputs: Sequence[object]) -> Steps:
    """Measure a model's training step, unchanged and after each change. The model is restored afterwards."""
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        if is_lazy(tensor):
            raise InvalidDataTypeError(
                f"report: {name} has no shape before the model's first call; call the model, then report"
            )
    with _restored(model), torch.enable_grad():
        first = _way(model, inputs)()
        changed = _changes(model, inputs, first) if first.forward else {}
        others: dict[str, Step | str] = {}
        for change, run in list(changed.items()):
            try:
                run()  # compiles kernels
            except Exception as error:  # not all models can run in both memory formats; the report shows the error
                others[change] = printable(f"{type(error).__name__}: {error}".splitlines()[0], LONGEST)
                del changed[change]
        steps = _fastest({"": _way(model, inputs)} | changed)
    as_is = steps.pop("")
    return Steps(as_is, others | steps)


def _fastest(ways: Mapping[str, Callable[[], Step]]) -> dict[str, Step]:
    """Return the fastest step of each variant. The variants run in turns, so other load slows all of them equally."""
    began, fastest, rounds = perf_counter(), dict[str, Step](), 0
    while rounds < _FEWEST or (rounds < _MAXIMUM and perf_counter() - began < _SECONDS):
        for change, run in ways.items():
            step = run()
            fastest[change] = min(fastest.get(change, step), step, key=lambda candidate: candidate.seconds)
        rounds += 1
    return fastest


def _changes(model: nn.Module, inputs: Sequence[object], step: Step) -> dict[str, Callable[[], Step]]:
    """Return a function that runs a step for each change: the other memory format, and a larger ``max_error``."""
    changes = {}
    stored = Counter(call.channels_last for call in step.forward if len(call.problem.output_shape) in LAST)
    if stored:
        last = stored[True] <= stored[False]
        changes[f"model and inputs {_format(last)}"] = _way(model, inputs, last)
    if accuracy(None) < _TILES:
        changes[_ADMITTING] = _way(model, inputs, within=_TILES)
    return changes


def _way(
    model: nn.Module, inputs: Sequence[object], last: bool | None = None, within: float | None = None
) -> Callable[[], Step]:
    """Return a function that runs a step on copies of parameters and inputs.

    ``last`` is whether the copies are channels last, and ``within`` is ``max_error``. None changes nothing.
    """
    parameters = [(parameter, _copy(parameter.data, last)) for parameter in model.parameters()]
    devices = {parameter.device for parameter, _ in parameters}

    def run() -> Step:
        for parameter, data in parameters:
            parameter.data, parameter.grad = data, None
        operands = tree_map(
            lambda operand: _copy(operand, last) if isinstance(operand, torch.Tensor) else operand, tuple(inputs)
        )
        with nullcontext() if within is None else max_error(within):
            began = now(*devices)
            with timed() as forward:
                loss = _loss(model(*operands))
            with timed() as backward, torch.autograd.set_multithreading_enabled(False):  # for calls on CUDA tensors
                loss.backward()
            seconds = now(*devices) - began
        return Step(seconds, tuple(forward), tuple(backward))

    return run


def _copy(tensor: Tensor, last: bool | None) -> Tensor:
    """Return a copy of a tensor without its autograd history."""
    formats = {True: LAST.get(tensor.dim(), torch.preserve_format), False: torch.contiguous_format}
    memory = torch.preserve_format if last is None else formats[last]
    return tensor.detach().clone(memory_format=memory).requires_grad_(tensor.requires_grad)


def _loss(outputs: object) -> Tensor:
    """Return the loss: the sum of the squares of all floating outputs that require a gradient."""
    squares = [
        (output if output.dtype == torch.float64 else output.float()).square().sum()
        for output in tree_leaves(outputs)
        if isinstance(output, torch.Tensor) and output.is_floating_point() and output.requires_grad
    ]
    if not squares:
        raise InvalidDataTypeError(
            "report: a training step needs at least one floating-point output that requires a gradient; "
            f"got {type(outputs).__name__} without such an output. Use training mode, other inputs, or parameters that "
            "require gradients"
        )
    return sum(squares[1:], squares[0])


@contextmanager
def _restored(model: nn.Module) -> Iterator[None]:
    """Restore a model's parameters, buffers, gradients and modes, and all random states, after a ``with`` block.

    The block may replace ``parameter.data`` but must not write to it. It may write to buffers, which are copied.
    """
    parameters = [
        (parameter, parameter.data, parameter.grad, parameter.requires_grad) for parameter in model.parameters()
    ]
    buffers = [(buffer, buffer.data) for buffer in model.buffers()]
    tables = [table for module in model.modules() for table in (module._parameters, module._buffers)]
    registered = [(table, dict(table.items())) for table in tables]
    modes = [(module, module.training) for module in model.modules()]
    seeds = torch.get_rng_state(), random.getstate(), np.random.get_state()  # noqa: NPY002 - the one that models use
    cuda_seeds = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
    for buffer, data in buffers:
        buffer.data = data.clone()
    try:
        yield
    finally:
        for parameter, data, gradient, needs_gradient in parameters:
            parameter.data, parameter.grad, parameter.requires_grad = data, gradient, needs_gradient
        for buffer, data in buffers:
            buffer.data = data
        for table, before in registered:
            if _identities(table) != _identities(before):
                table.clear()
                table.update(before)
        for module, training in modes:
            if module.training != training:
                module.training = training
        torch.set_rng_state(seeds[0])
        torch.cuda.set_rng_state_all(cuda_seeds)
        random.setstate(seeds[1])
        np.random.set_state(seeds[2])  # noqa: NPY002


def _identities(table: Mapping[str, object]) -> list[tuple[str, int]]:
    """Return the names in a table, and which objects they name."""
    return [(name, id(value)) for name, value in table.items()]


# -- words ---------------------------------------------------------------------------------------------------------


def _passes(step: Step) -> dict[str, float]:
    """Return the time in kernels per pass, in seconds."""
    seconds = {"forward": sum(call.seconds for call in step.forward)}
    for call in step.backward:
        name = _GRADIENTS.get(call.problem.solves_for, "data gradients")
        seconds[name] = seconds.get(name, 0.0) + call.seconds
    return seconds


def _algorithm(call: KernelCall) -> str:
    return f"Winograd tiles of {call.problem.algorithm}" if call.problem.algorithm else "direct"


def _format(channels_last: bool) -> str:
    return "in channels_last" if channels_last else "contiguous"


def _counts(counts: Counter[str]) -> str:
    """Return the names and how often each occurs, as text.

    >>> _counts(Counter(["direct", "direct", "tiles"]))
    '2 direct, 1 tiles'
    """
    return ", ".join(f"{number} {name}" for name, number in counts.most_common())


def _ms(seconds: float) -> str:
    """Return a time in milliseconds, as text.

    >>> _ms(0.0123456), _ms(12.3456)
    ('12.3 ms', '12346 ms')
    """
    milliseconds = 1000 * seconds
    return f"{milliseconds:.0f} ms" if milliseconds >= 100 else f"{milliseconds:.3g} ms"
