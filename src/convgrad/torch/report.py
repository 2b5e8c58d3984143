"""The report on a model: layers whose bits are always the same, other layers, and times of training steps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from torch import nn

from convgrad.torch.modules import is_convolution, is_reproducible, named_modules, unsupported, why_left_out
from convgrad.torch.steps import Steps, measured
from convgrad.torch.training.audit import Audit, audit
from convgrad.torch.varying import DEPENDENCES, TRIED, VARIES_WITH
from convgrad.words import counted

_UNSEEN = "functions, losses and optimizers are not listed unless you pass step=; same_bits() fixes their bits, too"
_COMPUTED = "layers of convgrad, with the same bits on any threads and instruction set"
_VARYING = "modules of PyTorch that may have different bits"
_OPERATORS = 6  # max operators of a step that are listed
_WIDTH = 60  # max characters of names in a line; names beyond are left out


@dataclass(frozen=True)
class Report:
    """The modules of a model, grouped by the settings that may change their bits.

    Each group is a dict; its keys are the qualified names of modules.

    ``print(report)`` shows at most 25 lines, and up to 7 for a step. ``details()`` returns a text with all names.

    Args:
        reproducible: The classes of the layers that convgrad computes. Default: {}.
        left_out: The reasons why PyTorch still computes a convolution. Default: {}.
        varying: Modules of PyTorch whose class had different bits in a measurement, forward or backward. A value is the
            class and a set of "threads", "instruction set" and "memory format". Default: {}.
        steady: The classes of modules whose class had the same bits in all measurements. Default: {}.
        unknown: The classes of modules without children whose class was not measured. The measurements are of CPUs, so
            all modules of PyTorch are in this group if a parameter is on a GPU. Default: {}.
        steps: The times of training steps if you passed inputs to `report`. Default: None.
        operators: The `Audit` of the step if you passed a step to `report`. Default: None.
    """

    reproducible: Mapping[str, str] = field(default_factory=dict)
    left_out: Mapping[str, str] = field(default_factory=dict)
    varying: Mapping[str, tuple[str, frozenset[str]]] = field(default_factory=dict)
    steady: Mapping[str, str] = field(default_factory=dict)
    unknown: Mapping[str, str] = field(default_factory=dict)
    steps: Steps | None = None
    operators: Audit | None = None

    def __str__(self) -> str:
        """Return the report as text of at most 25 lines."""
        return "\n".join(self._lines(_few, _OPERATORS))

    def details(self) -> str:
        """Return the report as text with the name of every module."""
        return "\n".join(self._lines(_all, None))

    def _lines(
        self, shown: Callable[[Mapping[str, list[str]], int], Iterable[str]], operators: int | None
    ) -> Iterator[str]:
        """Yield the report's lines. ``shown`` yields a group's lines, from its names by kind and a maximum.

        ``operators`` is the maximum number of operators of the step.
        """
        if self.reproducible:
            yield f"{_COMPUTED}: {len(self.reproducible)}"
            yield from shown(_by_kind(self.reproducible), 2)
        elif not self.left_out:
            yield "the model has no convolutions: convgrad computes nothing of it"
        if self.left_out:
            yield f"layers left out, which PyTorch computes: {len(self.left_out)}"
            yield from shown(_by_kind(self.left_out), 3)
        if self.varying:
            yield f"{_VARYING}: {len(self.varying)}"
            yield from shown(
                _by_kind({name: f"{kind}, by {_words(on)}" for name, (kind, on) in self.varying.items()}), 5
            )
        if self.unknown:
            yield f"modules that were not measured: {len(self.unknown)}"
            yield from shown(_by_kind(self.unknown), 2)
        if self.steady:
            yield f"modules that did not vary where measured: {len(self.steady)}"
            yield from shown(_by_kind(self.steady), 1)
        yield f"tried: {TRIED}"
        if self.operators is None:
            yield _UNSEEN
        else:
            cures = list(self.operators.cures())
            yield f"operators of the step that may vary: {len(cures)}"
            yield from cures[:operators]
        if self.steps is not None:
            yield from self.steps.lines()


def report(model: nn.Module, *inputs: object, step: Callable[[], object] | None = None) -> Report:
    """Return a report on the settings that may change the bits of each module of a model. Read it with ``print``.

    If you pass ``inputs``, the report also runs training steps of ``model(*inputs)`` and shows their times:

    - an unchanged step, and the share of convgrad's kernels in its time,
    - a step in the other memory format,
    - a step with ``max_error=64``.

    The loss is the sum of the squares of all floating outputs. The model runs in its current mode, with its hooks.
    Afterwards the report restores the model's parameters, buffers, gradients and modes, and the states of random number
    generators.

    Args:
        model: Any ``torch.nn.Module``.
        *inputs: Tensors, or tuples, lists and dicts of tensors.

    Keyword Args:
        step: A function without arguments that runs a training step: the forward pass, the loss, the backward pass and
            the optimizer. The report runs it once, changes included, and lists its operators that may vary, each with
            its place and with what to do about it. Default: None.

    Raises:
        InvalidDataTypeError: The model is not a ``torch.nn.Module``. If you pass inputs: the model has a lazy module
            that was never called, or returns no floating output with a gradient.

    >>> import torch
    >>> from convgrad.torch.modules import reproducible
    >>> model = torch.nn.Sequential(torch.nn.Conv1d(1, 2, 3), torch.nn.ReLU(), torch.nn.Linear(4, 5))
    >>> print(report(reproducible(model)))
    layers of convgrad, with the same bits on any threads and instruction set: 1
      ReproducibleConv1d: 1 module (0)
    modules of PyTorch that may have different bits: 1
      Linear, by threads: 1 module (2)
    modules that did not vary where measured: 1
      ReLU: 1 module (1)
    tried: 1, 2, 3, 8 threads; AVX-512, AVX2, neither; 2 memory formats; few and many channels and positions, odd sizes
    functions, losses and optimizers are not listed unless you pass step=; same_bits() fixes their bits, too
    """
    groups: dict[str, dict[str, str]] = {place: {} for place in ("reproducible", "left_out", "steady", "unknown")}
    varying: dict[str, tuple[str, frozenset[str]]] = {}
    modules = list(named_modules("report", model))
    on_gpu = any(parameter.is_cuda for parameter in model.parameters())
    for name, module in modules:
        kind = type(module).__name__
        known = "" if on_gpu else _measured(module)
        if is_convolution(module) or is_reproducible(module):
            reason = why_left_out(module) or unsupported(module)  # a parameter's type may have changed
            if is_reproducible(module) and reason is None:
                groups["reproducible"][name] = kind
            else:
                groups["left_out"][name] = reason or f"a {kind}: reproducible(model) was not called since it was added"
        elif VARIES_WITH.get(known):
            varying[name] = (kind, VARIES_WITH[known])
        elif known:
            groups["steady"][name] = kind
        elif not any(module.children()):
            groups["unknown"][name] = kind
    steps, operators = measured(model, inputs) if inputs else None, None if step is None else audit(step)
    return Report(**groups, varying=varying, steps=steps, operators=operators)


def _measured(module: nn.Module) -> str:
    """Return the name of the measured class of PyTorch that defines a module's forward; "" if there is none."""
    kind = type(module)
    forward = getattr(kind, "forward", None)
    if "forward" in vars(module):
        return ""
    classes = (base for base in kind.__mro__ if getattr(base, "forward", None) is forward)
    ours = (base.__name__ for base in classes if base.__module__.startswith("torch.nn.modules"))
    return next((name for name in ours if name in VARIES_WITH), "")


# -- words ---------------------------------------------------------------------------------------------------------


def _words(settings: frozenset[str]) -> str:
    """Return the names of the settings that may change a class's bits, as text.

    >>> _words(frozenset(["memory format", "threads"]))
    'threads and memory format'
    """
    *first, last = [setting for setting in DEPENDENCES if setting in settings]
    return f"{', '.join(first)} and {last}" if first else last


def _by_kind(kinds: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the names of modules by kind; the kind with the most modules comes first."""
    names_by_kind: dict[str, list[str]] = {}
    for name, kind in kinds.items():
        names_by_kind.setdefault(kind, []).append(name or "the model")
    return dict(sorted(names_by_kind.items(), key=lambda item: -len(item[1])))


def _few(names_by_kind: Mapping[str, list[str]], maximum: int) -> Iterator[str]:
    """Yield at most ``maximum`` lines: one per kind, with its first names. A last line counts all other kinds."""
    kinds = list(names_by_kind)
    alone = kinds if len(kinds) <= maximum else kinds[: maximum - 1]
    for kind in alone:
        yield f"  {kind}: {counted(len(names_by_kind[kind]), 'module')} ({_beginning(names_by_kind[kind])})"
    if others := kinds[len(alone) :]:
        modules = counted(sum(len(names_by_kind[kind]) for kind in others), "module")
        yield f"  {'others: ' if alone else ''}{modules} ({_beginning(others)})"


def _beginning(names: list[str]) -> str:
    """Return the first names as text, as many as fit in a line.

    >>> _beginning(["a", "b"]), _beginning(["a" * 50, "b" * 50])
    ('a, b', 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa, ...')
    """
    shown = names[:1]
    for name in names[1:]:
        if len(", ".join((*shown, name))) > _WIDTH:
            return f"{', '.join(shown)}, ..."
        shown.append(name)
    return ", ".join(shown)


def _all(names_by_kind: Mapping[str, list[str]], maximum: int) -> Iterator[str]:
    """Yield a line for each kind, and below it a line for each module of the kind."""
    for kind, names in names_by_kind.items():
        yield f"  {kind}: {counted(len(names), 'module')}"
        yield from (f"    {name}" for name in names)
