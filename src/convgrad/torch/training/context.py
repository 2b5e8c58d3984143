"""The context that puts convgrad's operators in place of ATen's kernels on CPUs, and takes them back."""

from __future__ import annotations

import inspect
import re
import threading
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import ContextDecorator, ExitStack, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple, TypeVar, cast

import torch
from torch import Tensor

from convgrad.float_environment import in_default_environment
from convgrad.spec.rules import refuse
from convgrad.torch.training.arguments import promoted, tensors_in, with_tensor
from convgrad.torch.training.caller import line_of_caller
from convgrad.torch.training.expected import (
    FACTORS,
    Forms,
    Kind,
    Results,
    as_expected,
    expected,
    kind_of,
    kind_of_lists,
)
from convgrad.torch.training.groups import FIXED_GROUP, OURS, VARIES, cure_of, group_of, is_move, rows
from convgrad.torch.training.replay import Replays
from convgrad.torch.training.row import (
    COMPLEX_CURE,
    LOW,
    PASS,
    PROMOTE,
    TYPE_CURE,
    Function,
    OperatorRow,
    UnservedError,
    operator_of,
    overloads_of,
    reason_of_types,
    store,
)

if TYPE_CHECKING:
    from torch._C import DispatchKeySet as Keys
    from torch._ops import OpOverload

_CPU = "CPU"
_NO_ROW = None, ""
_DENSE = "Use dense tensors on a CPU"
_NONE = Replays()  # of calls that no row serves
_KINDS = 256  # kinds of arguments that are kept per operator
# Functions that check their arguments: PyTorch's check refuses too much, or expects another type.
_CHECKED = re.compile("convolution|nll_loss|group_norm|normal.Tensor_Tensor|binary_cross_entropy(_backward)?$")
_OF_LISTS = "_fused_"  # a step of an optimizer on lists of tensors
_UNSERVED = ("SparseCPU", "SparseCsrCPU", "QuantizedCPU", "NestedTensorCPU")  # layouts of no row
_ONEDNN = "MkldnnCPU"  # the layout of oneDNN, whose arithmetic depends on the processor, that of fixed operators too


@dataclass(frozen=True, eq=False)
class _Setting:
    """What a context does about an operator that may vary: raise, warn, or only add its name to ``passed``."""

    strict: bool
    passed: list[str] | None = None


Decorated = TypeVar("Decorated", bound=Function)
_in_context: ContextVar[tuple[_Setting, ...]] = ContextVar("convgrad_same_bits", default=())  # of the open blocks
_started: list[_Setting] = []  # the contexts that `start` has opened, for all threads


@contextmanager
def passing() -> Iterator[list[str]]:
    """Let operators that may vary pass in a block of this thread, and add their names to a list that is yielded."""
    passed = list[str]()
    more = (_Setting(False, passed),) if is_active() else ()
    token = _in_context.set((*_in_context.get(), *more))
    try:
        yield passed
    finally:
        _in_context.reset(token)


def is_active() -> bool:
    """Return whether `same_bits` is in force in this thread or task."""
    return _current() is not None


def _current() -> _Setting | None:
    settings = _in_context.get() or _started
    return settings[-1] if settings else None


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
        self._setting = _Setting(strict)
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
        _in_context.set((*_in_context.get(), self._setting))
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
        settings = _in_context.get()
        if self._setting in settings:  # unless a generator is closed in another context, which never had the setting
            last = len(settings) - 1 - settings[::-1].index(self._setting)
            _in_context.set(settings[:last] + settings[last + 1 :])
        _installation.release()

    def start(self) -> same_bits:
        """Open the context for all threads, until `stop`. Does nothing if it is open."""
        if self._setting not in _started:
            _installation.acquire()
            _started.append(self._setting)
        return self

    def stop(self) -> None:
        """Close the context that `start` has opened. Does nothing if it is closed."""
        if self._setting in _started:
            _started.remove(self._setting)
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
        libraries: dict[str, torch.library.Library] = {}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # PyTorch warns about each replaced kernel
            for name, key in _replaced():
                space, _, operator = name.partition("::")
                if space not in libraries:
                    libraries[space] = torch.library.Library(space, "IMPL")
                    stack.callback(libraries[space]._destroy)
                if group_of(name) == OURS and f"{space}/{operator}/{key}" in torch.library._impls:  # B1
                    refuse("B1", "same_bits", f"no other library may replace {name} on {key}; one has")
                kernel = self._kernel(name, key)
                libraries[space].impl(operator, kernel, key, with_keyset=True, allow_override=True)

    def _kernel(self, name: str, key: str) -> Function:
        """Return the function that computes or refuses an operator in the context, and calls ATen elsewhere."""
        if (name, key) not in self._kernels:
            original = torch.library.get_kernel(name, torch._C._dispatch_key_parse(key)).call_boxed
            row, stores = rows().get(name.removeprefix("aten::"), _NO_ROW) if key == _CPU else _NO_ROW
            kernel = _refusing(name, key, original) if row is None else _computing(name, row, stores, original)
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
        if name.removeprefix("aten::") in rows() if group == OURS else group == VARIES and has_own:
            yield name, _CPU
        keys = unserved if group != FIXED_GROUP else ()
        yield from ((name, key) for key in (*keys, *([] if is_move(name) else [_ONEDNN])) if has(name, key))


def _computing(name: str, row: OperatorRow, stores: str, original: Function) -> Function:
    """Return the kernel of an operator that has a row."""
    function, types, passed_on = in_default_environment(row.function), row.types, row.passed_on
    writes = "out" in inspect.signature(row.function).parameters
    operator = operator_of(name.removeprefix("aten::"))
    arguments = operator._schema.arguments
    places = [at for at, argument in enumerate(arguments) if str(argument.type) == "Tensor" and not argument.kwarg_only]
    out_names = [argument.name for argument in arguments if argument.is_out]
    checked = _checked(name.removeprefix("aten::"), row)
    describe = kind_of_lists if _OF_LISTS in name else kind_of
    ways: dict[Kind, _Way] = {}

    def way_of(
        kind: Kind, caller_args: tuple[object, ...], args: tuple[object, ...], kwargs: dict[str, object]
    ) -> _Way:
        """Find and keep the way to treat calls of a kind; ``caller_args`` has numbers where ``args`` has tensors."""
        tensors = list(tensors_in((*args, *kwargs.values())))
        is_float = any(tensor.dtype in types for tensor in tensors)
        if reason := reason_of_types(tensors, types, is_float):
            return _Way(UnservedError(reason, COMPLEX_CURE if any(map(torch.is_complex, tensors)) else TYPE_CURE))
        if any(isinstance(value, complex) for value in (*args, *kwargs.values())):
            return _Way(UnservedError("computes no complex numbers", COMPLEX_CURE))
        floats = {tensor.dtype for tensor in tensors_in(caller_args) if tensor.is_floating_point()}
        is_low = caller_args is not args and not LOW.isdisjoint(floats or {torch.get_default_dtype()})
        passes = not is_float and row.integers == PASS and not getattr(kwargs.get("dtype"), "is_floating_point", False)
        to_aten = passes or (passed_on is not None and not is_low and passed_on(*args, **kwargs))
        is_free = checked is None or to_aten or row.corrects
        forms = None if is_free else _forms(checked, caller_args, kwargs, caller_args is not args)
        if len(ways) >= _KINDS:
            ways.clear()
        ways[kind] = _Way(None, bool(to_aten), not is_float and row.integers == PROMOTE, forms, Replays())
        return ways[kind]

    def kernel(keys: Keys, *args: object, **kwargs: object) -> object:
        caller_args = args
        for at in places:
            if not isinstance(args[at], torch.Tensor):
                args = with_tensor(args, at)
        if _current() is None:
            return original(keys, *args, **kwargs)
        kind = describe(caller_args, kwargs)
        with torch.autocast("cpu", enabled=False) if torch.is_autocast_enabled("cpu") else nullcontext():
            reason, to_aten, promotes, forms, replays = ways.get(kind) or way_of(kind, caller_args, args, kwargs)
            if reason:
                return _refused(name, reason, original, keys, args, kwargs)
            if to_aten or row.corrects:
                results = original(keys, *args, **kwargs)
                return results if to_aten else function(results)
            outs = [cast(Tensor, kwargs.pop(out)) for out in out_names]
            if promotes:
                args = tuple([promoted(value) for value in args])
            targets = [cast(Tensor, args[0])] if stores == "in place" else outs

            def compute() -> Results:
                results = function(*args, **kwargs, **{"out": targets[0]} if writes and targets else {})
                return results if forms is None or targets else as_expected(results, forms)

            try:
                numbers = [kwargs[factor] for factor in FACTORS if factor in kwargs]
                results = replays.computed(compute, (*args, *outs), numbers)
                if stores == "new":
                    return results
                store(results if isinstance(results, tuple) else (results,), targets, stores == "out")
                return targets[0] if len(targets) == 1 else tuple(targets)
            except UnservedError as error:
                reason = error
            return _refused(name, reason, original, keys, args, {**kwargs, **dict(zip(out_names, outs, strict=True))})

    return kernel


def _checked(name: str, row: OperatorRow) -> OpOverload | None:
    """Return the form of an operator whose ``meta`` kernel checks the arguments, without ``out``; None if none does."""
    base = next(overload for overload in row.names if name in overloads_of(overload))
    form = operator_of(base if overloads_of(base)[name] == "out" else name)
    is_checked = form._schema.returns and overloads_of(base)[base] != "out" and not _CHECKED.search(base)
    return form if is_checked else None


def _forms(form: OpOverload, args: tuple[object, ...], kwargs: dict[str, object], has_numbers: bool) -> Forms | None:
    """Return the expected results of a form without ``out``, or raise; overloads for tensors take no numbers."""
    names = {argument.name for argument in form._schema.arguments}
    options = {name: value for name, value in kwargs.items() if name in names}
    return expected(form.overloadpacket if has_numbers else form, args, options)


class _Way(NamedTuple):
    """How a kernel treats calls with arguments of one kind.

    ``reason`` says why no row serves them. Else ATen computes them (``to_aten``), or the row's function. It gets
    integers as floats if ``promotes``, and its results have the types and strides ``forms``. ``replays`` has its calls.
    """

    reason: UnservedError | None
    to_aten: bool = False
    promotes: bool = False
    forms: Forms | None = None
    replays: Replays = _NONE


def _refusing(name: str, key: str, original: Function) -> Function:
    """Return the kernel of an operator that may vary."""
    reason = UnservedError("may vary", "")
    if key != _CPU:
        reason = UnservedError(f"has no specified order for {key} tensors", _DENSE * (group_of(name) != VARIES))

    def kernel(keys: Keys, *args: object, **kwargs: object) -> object:
        if _current() is None:
            return original(keys, *args, **kwargs)
        return _refused(name, reason, original, keys, args, kwargs)

    return kernel


def _refused(
    name: str,
    reason: UnservedError,
    original: Function,
    keys: Keys,
    args: tuple[object, ...],
    kwargs: dict[str, object],
) -> object:
    """Raise by rule B2 for an operator; in a block that is not strict, warn and let PyTorch compute it."""
    setting = _current()
    if setting is not None and setting.passed is not None:
        setting.passed.append(name)
    else:
        sentence = f"{name} {reason}, at {line_of_caller()}"
        if setting is None or setting.strict:  # B2
            refuse(
                "B2", "same_bits", f"{sentence}. {reason.cure or cure_of(name)}; or pass strict=False to let it vary"
            )
        warnings.warn(f"same_bits: {sentence}", stacklevel=3)
    return original(keys, *args, **kwargs)
