"""Whether the methods that compute a layer are PyTorch's own, compared with the source that PyTorch was loaded from.

A comparison with the live class would not do, because that class can be patched, also before convgrad is imported.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from types import BuiltinFunctionType, CodeType, FunctionType
from typing import Any, NamedTuple

from convgrad.torch import functional

_CONV, _LINEAR, _MODULE = (f"torch.nn.modules.{name}" for name in ("conv", "linear", "module"))


class _Kind(NamedTuple):
    """A class of PyTorch's layers: its module, its methods, and the function of torch.nn.functional that computes it.

    ``methods`` maps a method's name to the module and the qualified name of its source.
    """

    module: str
    methods: dict[str, tuple[str, str]]
    function: str


_CALL = {
    "__call__": (_MODULE, "Module._wrapped_call_impl"),
    "_wrapped_call_impl": (_MODULE, "Module._wrapped_call_impl"),
    "_call_impl": (_MODULE, "Module._call_impl"),
}


def _kind(layer: str, module: str, function: str, *methods: str, **inherited: tuple[str, str]) -> _Kind:
    return _Kind(module, {name: (module, f"{layer}.{name}") for name in methods} | inherited | _CALL, function)


_PADDING = (_CONV, "_ConvTransposeNd._output_padding")
KINDS = {"Linear": _kind("Linear", _LINEAR, "linear", "forward")}
for _axes in (1, 2, 3):
    _plain, _transposed = f"Conv{_axes}d", f"ConvTranspose{_axes}d"
    KINDS[_plain] = _kind(_plain, _CONV, f"conv{_axes}d", "forward", "_conv_forward")
    KINDS[_transposed] = _kind(_transposed, _CONV, f"conv_transpose{_axes}d", "forward", _output_padding=_PADDING)


def kind_of(layer: type) -> str | None:
    """Return the name of the class of PyTorch's layers that a class is derived from; None if there is none."""
    for base in layer.__mro__:
        kind = KINDS.get(base.__qualname__)
        if kind is not None and base.__module__ == kind.module:
            return base.__qualname__
    return None


def replaced(module: object) -> str | None:
    """Return what in a layer's computation is not PyTorch's own, as text; None if everything is.

    A derived class may have its own ``__call__`` or ``_output_padding``, because convgrad's forward runs inside them.
    """
    name = kind_of(type(module))
    if name is None:
        return "whose forward is its own"
    kind = KINDS[name]
    for method, (source, qualified) in kind.methods.items():
        if method in vars(module):
            return f"whose {method} is its own"
        owner = next(base for base in _classes(module) if method in vars(base))
        if not _is_own(vars(owner)[method], source, qualified):
            by_torch = owner.__module__.startswith("torch.nn.modules.")
            if by_torch:
                return f"whose {owner.__qualname__}.{method} was replaced"
            if method.endswith("forward"):
                return f"whose {method} is its own"
    function = getattr(getattr(sys.modules[kind.module], "F", None), kind.function, None)
    if function is not getattr(functional, kind.function) and not (
        isinstance(function, BuiltinFunctionType) and function.__name__ == kind.function
    ):
        return f"whose function torch.nn.functional.{kind.function} was replaced"
    return None


def _classes(module: object) -> Iterator[type]:
    """Yield the classes in which a module's methods are looked up, without those that `reproducible` derived."""
    return (base for base in type(module).__mro__ if "_is_reproducible" not in vars(base))


def _is_own(method: object, source: str, qualified: str) -> bool:
    """Return whether a method is the function of this name in the source of PyTorch's module ``source``."""
    if not isinstance(method, FunctionType) or method.__globals__ is not vars(sys.modules[source]):
        return False
    codes = _codes(source)
    return method.__code__ == codes.get(qualified) if codes else method.__code__.co_qualname == qualified


@cache
def _codes(source: str) -> dict[str, CodeType]:
    """Return the code of all functions in a module's file, by qualified name; an empty dict if there is no file."""
    loader: Any = getattr(find_spec(source), "loader", None)
    code = loader.get_code(source) if hasattr(loader, "get_code") else None
    codes, pending = dict[str, CodeType](), [code] if code else []
    while pending:
        for inner in pending.pop().co_consts:
            if isinstance(inner, CodeType):
                codes[inner.co_qualname] = inner
                pending.append(inner)
    return codes
