"""What of a model is computed in the same bits everywhere, and what PyTorch computes otherwise: by name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from convgrad.torch.modules import is_convolution, is_reproducible, named_modules, why_left_out, why_no_kernel
from convgrad.torch.varying import DEPENDENCES, VARIES_WITH

_UNSEEN = "functions that a forward calls, such as torch.nn.functional.conv2d or torch.matmul, are no modules: unseen"


@dataclass(frozen=True)
class Report:
    """The modules of a model, by what their bits may depend on; each as its qualified name and its class.

    ``reproducible`` are this library's convolutions, ``left_out`` those that PyTorch computes, with the reason.
    Of modules of PyTorch's own ``varying`` says what they vary with, forward or backward, as docs/torch.md has measured
    it; ``steady`` are those that never did. ``unknown`` are modules without children that nobody has measured.
    """

    reproducible: Mapping[str, str] = field(default_factory=dict)
    left_out: Mapping[str, str] = field(default_factory=dict)
    varying: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    steady: Mapping[str, str] = field(default_factory=dict)
    unknown: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        """Return the report as text."""
        lines = [f"convolutions with the same bits on any threads and instruction set: {len(self.reproducible)}"]
        lines += [f"convolution left out: {name or 'the model'}, {reason}" for name, reason in self.left_out.items()]
        for dependence in DEPENDENCES:
            found = {name: kind for name, (kind, on) in self.varying.items() if on == dependence}
            lines += _grouped(f"may vary with PyTorch's {dependence}", found)
        lines += _grouped("not measured", self.unknown)
        if self.steady:
            lines.append(f"did not vary where measured: {', '.join(dict.fromkeys(self.steady.values()))}")
        return "\n".join((*lines, _UNSEEN))


def report(model: Any) -> Report:
    """Return what the bits of a model's modules depend on, by qualified name; ``print`` it.

    >>> import torch
    >>> from convgrad.torch.modules import reproducible
    >>> model = torch.nn.Sequential(torch.nn.Conv1d(1, 2, 3), torch.nn.ReLU(), torch.nn.Linear(4, 5))
    >>> print(report(reproducible(model)))
    convolutions with the same bits on any threads and instruction set: 1
    may vary with PyTorch's threads: 2 (Linear)
    did not vary where measured: ReLU
    functions that a forward calls, such as torch.nn.functional.conv2d or torch.matmul, are no modules: unseen
    """
    made: dict[str, dict[str, Any]] = {
        place: {} for place in ("reproducible", "left_out", "varying", "steady", "unknown")
    }
    for name, module in named_modules("report", model):
        kind = type(module).__name__
        known = _measured(type(module))
        if is_convolution(module):
            reason = why_left_out(module) or why_no_kernel(module)  # the types may have changed since
            if is_reproducible(module) and reason is None:
                made["reproducible"][name] = kind
            else:
                made["left_out"][name] = reason or f"a {kind}: reproducible(model) was not called since it was added"
        elif VARIES_WITH.get(known):
            made["varying"][name] = (kind, VARIES_WITH[known])
        elif known:
            made["steady"][name] = kind
        elif not any(module.children()):
            made["unknown"][name] = kind
    return Report(**made)


def _measured(kind: type) -> str:
    """Return which measured class of PyTorch's a module's forward is of; none, "", where it is of another."""
    forward = getattr(kind, "forward", None)
    same = (base for base in kind.__mro__ if getattr(base, "forward", None) is forward)
    ours = (base.__name__ for base in same if base.__module__.startswith("torch.nn.modules"))
    return next((name for name in ours if name in VARIES_WITH), "")


def _grouped(title: str, kinds: Mapping[str, str]) -> Iterable[str]:
    """Yield a line for each class: the names of its modules."""
    classes: dict[str, list[str]] = {}
    for name, kind in kinds.items():
        classes.setdefault(kind, []).append(name or "the model")
    return [f"{title}: {', '.join(names)} ({kind})" for kind, names in classes.items()]
