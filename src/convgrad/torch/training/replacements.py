"""The kernels that replace ATen's: each computes, makes of others, or refuses an operator, if a context is open."""

from __future__ import annotations

import inspect
import re
import warnings
from contextlib import nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, cast

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
from convgrad.torch.training.groups import VARIES, cure_of, group_of
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
_DENSE = "Use dense tensors on a CPU"
_NONE = Replays()  # of calls that no row serves
_KINDS = 256  # kinds of arguments that are kept per operator
# Functions that check their arguments: PyTorch's check refuses too much, or expects another type.
_CHECKED = re.compile("convolution|nll_loss|group_norm|normal.Tensor_Tensor|ctc_loss|binary_cross_entropy(_backward)?$")
_OF_LISTS = re.compile("aten::_(fused|foreach)_")


@dataclass(frozen=True, eq=False)
class Setting:
    """What a context does about an operator that may vary: raise, warn, or only add its name to ``passed``."""

    strict: bool
    passed: list[str] | None = None


in_context: ContextVar[tuple[Setting, ...]] = ContextVar("convgrad_same_bits", default=())  # of the open blocks
started: list[Setting] = []  # the contexts that `start` has opened, for all threads


def is_active() -> bool:
    """Return whether `same_bits` is in force in this thread or task."""
    return current() is not None


def current() -> Setting | None:
    """Return the setting of the innermost open block, or of a context for all threads; None if there is none."""
    settings = in_context.get() or started
    return settings[-1] if settings else None


def computing(name: str, row: OperatorRow, stores: str, original: Function) -> Function:
    """Return the kernel of an operator that has a row."""
    arguments = operator_of(name.removeprefix("aten::"))._schema.arguments
    places = [at for at, argument in enumerate(arguments) if str(argument.type) == "Tensor" and not argument.kwarg_only]
    describe = kind_of_lists if _OF_LISTS.match(name) else kind_of
    ways: dict[Kind, _Way] = {}
    compute = _computing(name, row, stores, original, ways)

    def kernel(keys: Keys, *args: object, **kwargs: object) -> object:
        caller_args = args
        for at in places:
            if not isinstance(args[at], torch.Tensor):
                args = with_tensor(args, at)
        if current() is None:
            return original(keys, *args, **kwargs)
        kind = describe(caller_args, kwargs)
        way = ways.get(kind)
        if way is not None and way.to_aten:
            return original(keys, *args, **kwargs)
        if way is not None and way.is_replayed:
            results = way.replays.again(args, _factors(kwargs))
            if results is not None:
                return results
        return compute(kind, caller_args, keys, args, kwargs)

    return kernel


def _factors(options: dict[str, object]) -> list[object]:
    """Return the numbers among keywords that functions pass unchanged to one map."""
    return [options[factor] for factor in FACTORS if factor in options] if options else []


def _computing(name: str, row: OperatorRow, stores: str, original: Function, ways: dict[Kind, _Way]) -> Function:
    """Return what the kernel of an operator calls if it knows no recorded calls; it adds ``ways``."""
    function, types, passed_on = in_default_environment(row.function), row.types, row.passed_on
    writes = "out" in inspect.signature(row.function).parameters
    out_names = [
        argument.name for argument in operator_of(name.removeprefix("aten::"))._schema.arguments if argument.is_out
    ]
    checked = _checked(name.removeprefix("aten::"), row)

    def way_of(
        kind: Kind, caller_args: tuple[object, ...], args: tuple[object, ...], kwargs: dict[str, object]
    ) -> _Way:
        """Find and keep the way to treat calls of a kind; ``caller_args`` has numbers where ``args`` has tensors."""
        tensors = list(tensors_in((*args, *kwargs.values())))
        is_float = any(tensor.dtype in types for tensor in tensors)
        if reason := _unserved(tensors, types, is_float):
            return _Way(reason)
        if any(isinstance(value, complex) for value in (*args, *kwargs.values())):
            return _Way(UnservedError("computes no complex numbers", COMPLEX_CURE))
        floats = {tensor.dtype for tensor in tensors_in(caller_args) if tensor.is_floating_point()}
        is_low = caller_args is not args and not LOW.isdisjoint(floats or {torch.get_default_dtype()})
        passes = not is_float and row.integers == PASS and not getattr(kwargs.get("dtype"), "is_floating_point", False)
        to_aten = bool(passes or (passed_on is not None and not is_low and passed_on(*args, **kwargs)))
        is_free, promotes = checked is None or to_aten or row.corrects, not is_float and row.integers == PROMOTE
        forms = None if is_free else _forms(checked, caller_args, kwargs, caller_args is not args)
        if len(ways) >= _KINDS:
            ways.clear()
        is_replayed = stores == "new" and not (to_aten or promotes or row.corrects)
        ways[kind] = _Way(None, to_aten, promotes, forms, Replays(), is_replayed)
        return ways[kind]

    def compute(
        kind: Kind,
        caller_args: tuple[object, ...],
        keys: Keys,
        args: tuple[object, ...],
        kwargs: dict[str, object],
    ) -> object:
        with torch.autocast("cpu", enabled=False) if torch.is_autocast_enabled("cpu") else nullcontext():
            way = ways.get(kind) or way_of(kind, caller_args, args, kwargs)
            reason, to_aten, promotes, forms, replays, is_replayed = way
            if reason:
                return _refused(name, reason, original, keys, args, kwargs)
            if to_aten or row.corrects:
                results = original(keys, *args, **kwargs)
                return results if to_aten else function(results)
            outs = [cast(Tensor, kwargs.pop(out)) for out in out_names]
            if promotes:
                args = tuple([promoted(value) for value in args])
            targets = [cast(Tensor, args[0])] if stores == "in place" else outs

            def result() -> Results:
                results = function(*args, **kwargs, **{"out": targets[0]} if writes and targets else {})
                return results if forms is None or targets else as_expected(results, forms)

            try:
                arguments, factors = (*args, *outs), _factors(kwargs)
                known = None if is_replayed else replays.again(arguments, factors)
                results = replays.computed(result, arguments, factors) if known is None else known
                if stores == "new":
                    return results
                store(results if isinstance(results, tuple) else (results,), targets, stores == "out")
                return targets[0] if len(targets) == 1 else tuple(targets)
            except UnservedError as error:
                reason = error
            return _refused(name, reason, original, keys, args, {**kwargs, **dict(zip(out_names, outs, strict=True))})

    return compute


def recording(name: str, row: OperatorRow, original: Function) -> Function:
    """Return the kernel of an operator that autograd records as the operators of which its function consists."""
    of_aten = "original" in inspect.signature(row.function).parameters

    def kernel(keys: Keys, *args: object, **kwargs: object) -> object:
        if current() is None:
            return original(keys, *args, **kwargs)
        tensors = list(tensors_in(args))
        is_float = any(map(torch.is_floating_point, tensors))
        if reason := _unserved(tensors, row.types, is_float):
            return _refused(name, reason, original, keys, args, kwargs)
        if row.integers == PASS and not is_float:
            return original(keys, *args, **kwargs)
        try:
            return row.function(*args, **kwargs, **({"original": partial(original, keys)} if of_aten else {}))
        except UnservedError as error:
            reason = error
        return _refused(name, reason, original, keys, args, kwargs)

    return kernel


def _unserved(tensors: list[Tensor], types: frozenset[torch.dtype], is_float: bool) -> UnservedError | None:
    """Return why a row does not serve tensors because of a type; None if it serves them."""
    reason = reason_of_types(tensors, types, is_float)
    return UnservedError(reason, COMPLEX_CURE if any(map(torch.is_complex, tensors)) else TYPE_CURE) if reason else None


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
    integers as floats if ``promotes``, and its results have the types and strides ``forms``. ``replays`` has its calls,
    and if ``is_replayed``, the kernel has tried them before.
    """

    reason: UnservedError | None
    to_aten: bool = False
    promotes: bool = False
    forms: Forms | None = None
    replays: Replays = _NONE
    is_replayed: bool = False


def refusing(name: str, key: str, original: Function) -> Function:
    """Return the kernel of an operator that may vary."""
    reason = UnservedError("may vary", "")
    if key != _CPU:
        reason = UnservedError(f"has no specified order for {key} tensors", _DENSE * (group_of(name) != VARIES))

    def kernel(keys: Keys, *args: object, **kwargs: object) -> object:
        if current() is None:
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
    setting = current()
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
