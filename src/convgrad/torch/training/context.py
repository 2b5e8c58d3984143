"""The context that puts convgrad's operators in place of ATen's kernels on CPUs, and takes them back."""

from __future__ import annotations

import inspect
import threading
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import ContextDecorator, ExitStack, contextmanager
from types import TracebackType
from typing import TypeVar

import torch

from convgrad.spec.rules import refuse
from convgrad.torch.training.groups import FIXED_GROUP, OURS, VARIES, group_of, is_move, rows
from convgrad.torch.training.hooks import specified_steps
from convgrad.torch.training.replacements import (
    Setting,
    computing,
    in_context,
    is_active,
    recording,
    refusing,
    started,
)
from convgrad.torch.training.row import Function

_CPU, _AUTOGRAD = "CPU", "AutogradCPU"
_VMAP = "FuncTorchBatched"
_NO_ROW = None, ""
_UNSERVED = ("SparseCPU", "SparseCsrCPU", "QuantizedCPU", "NestedTensorCPU")  # layouts of no row
_ONEDNN = "MkldnnCPU"  # the layout of oneDNN, whose arithmetic depends on the processor, that of fixed operators too
Decorated = TypeVar("Decorated", bound=Function)


@contextmanager
def passing() -> Iterator[list[str]]:
    """Let operators that may vary pass in a block of this thread, and add their names to a list that is yielded."""
    passed = list[str]()
    more = (Setting(False, passed),) if is_active() else ()
    token = in_context.set((*in_context.get(), *more))
    try:
        yield passed
    finally:
        in_context.reset(token)


class same_bits(ContextDecorator):
    """Compute each training step with the same bits on any threads, instruction set and memory format.

    In a ``with`` block of this thread or task, convgrad computes the operators of convolutions, matrix products, batch
    norm, sums, losses and optimizers, in one specified order. It replaces ATen's kernels below autograd, so modules,
    functions and custom forwards all use it. Functions that torch.compile has compiled run eagerly. ``same_bits()``
    also decorates a function. Enter it around the training loop, because entering takes about 0.1 s.

    In a notebook, ``session = same_bits().start()`` opens the context for all threads until ``session.stop()``.

    Keyword Args:
        strict: Whether an operator that may vary raises. If it is False, such an operator warns, and PyTorch computes
            it. ``convgrad.torch.audit`` lists the operators of a step. Default: True.

    Raises:
        UnsupportedError: On entry, if PyTorch is older than 2.9, or if another library has replaced an operator. In
            the block, if an operator may vary, or if it has tensors of a type, layout or device that convgrad does
            not compute.

    >>> with same_bits():
    ...     torch.ones(1000, 1000).sum().item()
    1000000.0
    """

    def __init__(self, *, strict: bool = True) -> None:
        if not isinstance(strict, bool):  # A2
            refuse("A2", "same_bits", f"strict must be True or False; got {strict!r:.200}")
        self._setting = Setting(strict)
        self._entered: Counter[int] = Counter()  # number of open blocks by thread

    def __call__(self, function: Decorated) -> Decorated:
        """Return a function that runs in a block of its own.

        Args:
            function: The function, neither a coroutine nor a generator.
        """
        kinds = inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction
        if any(is_kind(function) for is_kind in kinds):  # A2: their bodies run after the call
            refuse("A2", "same_bits", "coroutines and generators cannot be decorated. Use the context inside of them")
        return super().__call__(function)

    def _recreate_cm(self) -> same_bits:
        return same_bits(strict=self._setting.strict)  # each call of a decorated function has its own block

    def __enter__(self) -> same_bits:
        """Replace the kernels, unless a surrounding block has replaced them."""
        _installation.acquire()
        self._entered[threading.get_ident()] += 1
        in_context.set((*in_context.get(), self._setting))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Take the kernels back at the end of the outermost block."""
        if not self._entered[threading.get_ident()]:
            raise RuntimeError(
                "same_bits: this thread has not entered the block. Leave it in the thread that entered it"
            )
        self._entered[threading.get_ident()] -= 1
        settings = in_context.get()
        if self._setting in settings:  # unless a generator is closed in another context, which never had the setting
            last = len(settings) - 1 - settings[::-1].index(self._setting)
            in_context.set(settings[:last] + settings[last + 1 :])
        _installation.release()

    def start(self) -> same_bits:
        """Open the context for all threads, until `stop`. Does nothing if it is open."""
        if self._setting not in started:
            _installation.acquire()
            started.append(self._setting)
        return self

    def stop(self) -> None:
        """Close the context that `start` has opened. Does nothing if it is closed."""
        if self._setting in started:
            started.remove(self._setting)
            _installation.release()


class _Installation:
    """The replaced kernels of this process, and the number of contexts that use them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._open = ExitStack()
        self._kernels: dict[tuple[str, str], Function] = {}  # kept alive, because other threads may still run them

    def acquire(self) -> None:
        """Install the kernels if nobody has."""
        with self._lock:
            if not self._users:
                with ExitStack() as stack:
                    self._install(stack)
                    self._open = stack.pop_all()
            self._users += 1

    def release(self) -> None:
        """Take the kernels back if nobody else uses them."""
        with self._lock:
            self._users -= 1
            if not self._users:
                self._open.close()

    def _install(self, stack: ExitStack) -> None:
        if not hasattr(torch.library, "get_kernel"):  # B1
            refuse("B1", "same_bits", f"PyTorch must be 2.9 or newer; got {torch.__version__}")
        try:
            if torch.compiler.is_compiling():  # else torch.compile fails with an assertion at the next line
                raise RuntimeError
            stack.enter_context(torch.compiler.set_stance("force_eager"))
        except RuntimeError:  # B1: PyTorch refuses it in a compiled function
            refuse("B1", "same_bits", "a compiled function cannot enter the block. Call the function inside of a block")
        stack.enter_context(specified_steps(is_active))
        libraries: dict[str, torch.library.Library] = {}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # PyTorch warns about each replaced kernel
            for name, key in _replaced():
                space, _, operator = name.partition("::")
                if space not in libraries:
                    libraries[space] = torch.library.Library(space, "IMPL")
                    stack.callback(libraries[space]._destroy)
                is_taken = f"{space}/{operator}/{key}" in torch.library._impls
                if group_of(name) == OURS and is_taken:  # B1
                    refuse("B1", "same_bits", f"no other library may replace {name} on {key}; one has")
                kernel = self._kernel(name, key)
                libraries[space].impl(operator, kernel, key, with_keyset=True, allow_override=True)

    def _kernel(self, name: str, key: str) -> Function:
        """Return the function that computes or refuses an operator in the context, and calls ATen elsewhere."""
        if (name, key) not in self._kernels:
            original = torch.library.get_kernel(name, torch._C._dispatch_key_parse(key)).call_boxed
            row, stores = (
                rows().get(name.removeprefix("aten::"), _NO_ROW) if key in (_CPU, _AUTOGRAD, _VMAP) else _NO_ROW
            )
            if row is None:
                kernel = refusing(name, key, original)
            elif row.records:
                kernel = recording(name, row, original)
            else:
                kernel = computing(name, row, stores, original)
            self._kernels[name, key] = kernel
        return self._kernels[name, key]


_installation = _Installation()


def _replaced() -> Iterator[tuple[str, str]]:
    """Yield the operators to replace, each with the dispatch key of its kernel."""
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    unserved = (*_UNSERVED, "CUDA") if torch.cuda.is_available() else _UNSERVED
    for name in torch._C._dispatch_get_all_op_names():
        group = group_of(name)
        in_general = has(name, "CompositeExplicitAutograd") and not name.endswith("out")
        has_own = (has(name, _CPU) or in_general) and not has(name, "CompositeImplicitAutograd")
        row, _ = rows().get(name.removeprefix("aten::"), _NO_ROW)
        if row is not None and row.records:  # first, because a kernel for CPUs changes which one autograd has
            yield name, _AUTOGRAD
            if has(name, f"{_VMAP}Decomposition"):  # torch.func.vmap makes it of others before autograd
                yield name, _VMAP
        if row is not None if group == OURS else group == VARIES and has_own:
            yield name, _CPU
        keys = unserved if group != FIXED_GROUP else ()
        yield from ((name, key) for key in (*keys, *([] if is_move(name) else [_ONEDNN])) if has(name, key))
