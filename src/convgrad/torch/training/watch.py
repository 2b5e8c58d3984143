"""A mode that reports every operator of PyTorch that runs, with its place in the model and in the program."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Self

import torch
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.utils._python_dispatch import TorchDispatchMode

from convgrad.torch.training.caller import line_of_caller

if TYPE_CHECKING:
    from torch._ops import OpOverload
    from torch.utils.hooks import RemovableHandle

See = Callable[[str, str, object, object], None]  # the operator's name, its place, its results, and its arguments


class Watcher(TorchDispatchMode):  # type: ignore[misc]
    """Calls a function after each operator that runs in a ``with`` block of this thread."""

    def __init__(self, see: See) -> None:
        super().__init__()
        self._see = see
        self._modules: list[str] = []
        self._names: dict[int, str] = {}
        self._hooks: list[RemovableHandle] = []
        self._thread = threading.get_ident()  # hooks see the modules of all threads

    def __enter__(self) -> Self:
        """Watch operators and modules."""
        self._hooks = [
            register_module_forward_pre_hook(self._before),
            register_module_forward_hook(self._after, always_call=True),
        ]
        super().__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        """End watching."""
        super().__exit__(*error)
        for hook in self._hooks:
            hook.remove()

    def __torch_dispatch__(
        self, func: OpOverload, types: object, args: tuple[object, ...] = (), kwargs: dict[str, object] | None = None
    ) -> object:
        """Call an operator, and report it."""
        results = func(*args, **(kwargs or {}))
        self._see(func.name(), self._place(), results, (args, kwargs))
        return results

    def _place(self) -> str:
        """Return the module, or the node of the backward pass, and the line of the user's program."""
        node = torch._C._current_autograd_node()
        inside = f"backward of {node.name().removesuffix('Backward0')}" if node is not None else ""
        inside = inside or (self._modules[-1] if self._modules else "")
        return f"{inside}, {line_of_caller()}" if inside else line_of_caller()

    def _before(self, module: torch.nn.Module, inputs: object) -> None:
        if threading.get_ident() != self._thread:
            return
        if not self._modules:
            self._names = {id(child): name for name, child in module.named_modules()}
        self._modules.append(f"{self._names.get(id(module)) or 'model'} ({type(module).__name__})")

    def _after(self, module: torch.nn.Module, inputs: object, output: object) -> None:
        if threading.get_ident() == self._thread:
            self._modules.pop()
