"""The functions that make the layers of a model reproducible and undo it. They exchange the classes of modules."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, NoReturn, TypeVar, cast

import torch
from torch import nn
from torch.nn.modules.conv import _ConvNd
from torch.nn.modules.lazy import LazyModuleMixin
from torch.nn.modules.linear import NonDynamicallyQuantizableLinear
from torch.nn.utils.parametrize import is_parametrized

from convgrad.engines.settings import accuracy
from convgrad.errors import InvalidDataTypeError, UnsupportedError
from convgrad.formats import F64
from convgrad.libraries.torch import formats_of
from convgrad.torch import functional

_SHOWN = 8  # classes that a warning lists
Model = TypeVar("Model")  # so that editors know the type of the result
_FORMATS = {dtype: fmt.name for dtype, fmt in formats_of(torch).items() if fmt is not F64}  # with kernels
_CONVOLUTION = {1: functional.conv1d, 2: functional.conv2d, 3: functional.conv3d}
_TRANSPOSED = {1: functional.conv_transpose1d, 2: functional.conv_transpose2d, 3: functional.conv_transpose3d}


def _conv_forward(self: Any, input: Any, weight: Any, bias: Any) -> Any:
    """Return the convolution that ``torch.nn.Conv1d``, ``2d`` or ``3d`` computes."""
    padding = self.padding
    if self.padding_mode != "zeros":
        pads = self._reversed_padding_repeated_twice
        input, padding = nn.functional.pad(input, pads, mode=self.padding_mode), 0
    convolution = _CONVOLUTION[len(self.kernel_size)]
    layer = self.stride, padding, self.dilation, self.groups
    return convolution(input, weight, bias, *layer, max_error=self.convgrad_max_error)


def _transposed_forward(self: Any, input: Any, output_size: list[int] | None = None) -> Any:
    """Return the convolution that ``torch.nn.ConvTranspose1d``, ``2d`` or ``3d`` computes."""
    axes = len(self.kernel_size)
    output_padding = self._output_padding(
        input, output_size, self.stride, self.padding, self.kernel_size, axes, self.dilation
    )
    layer = self.stride, self.padding, output_padding, self.groups, self.dilation
    return _TRANSPOSED[axes](input, self.weight, self.bias, *layer, max_error=self.convgrad_max_error)


def _linear_forward(self: Any, input: Any) -> Any:
    """Return the product that ``torch.nn.Linear`` computes."""
    return functional.linear(input, self.weight, self.bias)


# By PyTorch's class: the methods that define its forward, and the function that replaces the last of them.
_CONVOLUTIONS = {kind: (("forward", "_conv_forward"), _conv_forward) for kind in (nn.Conv1d, nn.Conv2d, nn.Conv3d)} | {
    kind: (("forward",), _transposed_forward) for kind in (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
}
_METHODS = _CONVOLUTIONS | {nn.Linear: (("forward",), _linear_forward)}


def reproducible(model: Model, *, linear: bool = False, max_error: float | None = None) -> Model:
    """Let this library compute every convolution of a model, in place; return the model.

    Each ``Conv1d``, ``2d``, ``3d`` and ``ConvTranspose1d``, ``2d``, ``3d`` remains the same module, with its
    parameters, hooks and names. It gets a class derived from its own, whose forward and gradients are this library's.
    Optimisers, checkpoints and ``isinstance`` work as before. The bits of a convolution and of its gradients then
    depend only on numbers, not on threads or the instruction set. `report` lists all other modules, and whether their
    bits may vary. `original` undoes the change. Call `reproducible` again for modules added later.

    ``linear=True`` lets this library also compute each ``Linear``, as a convolution with one tap. The bits of PyTorch's
    own may depend on the number of threads. ``MultiheadAttention`` computes its projections itself.

    ``max_error`` allows Winograd in the forward pass and all gradients of each convolution. It takes precedence over
    ``convgrad.max_error``. Convolutions keep their value if you call `reproducible` again without one. Convolutions
    without a value use the context that is open in their forward pass, also for their gradients.

    A warning names the layers that are left out, with the reason. Reasons are a forward of their own, a lazy layer
    before its first call, f64 or complex parameters, and modules compiled by TorchScript. Convolutions that a forward
    calls as functions, such as ``torch.nn.functional.conv2d``, are not modules and cannot be found. Use the functions
    with the same names in `convgrad.torch.functional`. If no layer is found, a warning lists the classes of modules.

    Raises InvalidDataTypeError if the model is not a ``torch.nn.Module``, and InvalidAttributeError if ``max_error`` is
    not a number of at least 1.

    >>> model = reproducible(torch.nn.Sequential(torch.nn.Conv1d(1, 1, 2, bias=False), torch.nn.ReLU()))
    >>> model[0]
    ReproducibleConv1d(1, 1, kernel_size=(2,), stride=(1,), bias=False)
    >>> isinstance(model[0], torch.nn.Conv1d)
    True
    """
    given, computed, left = None if max_error is None else accuracy(max_error, "reproducible"), 0, []
    for name, module in named_modules("reproducible", model):
        if not is_convolution(module) and not (linear and _is_linear(module)):
            continue
        if reason := why_left_out(module):
            left.append(f"{name or 'the model'}, {reason}")
            continue
        computed += 1
        if not is_reproducible(module):
            module.__class__ = _swapped(module, _derived)
        if given is not None and is_convolution(module):
            module.convgrad_max_error = given
    if left:
        warnings.warn(f"reproducible: PyTorch goes on to compute {'; '.join(left)}", UserWarning, stacklevel=2)
    elif not computed:
        warnings.warn(f"reproducible: {_found(model, linear)}", UserWarning, stacklevel=2)
    return model


def _found(model: Any, linear: bool) -> str:
    """Return the text of a warning that lists the classes of a model's modules, first the names with "conv"."""
    kinds = dict.fromkeys(f"{kind.__module__}.{kind.__qualname__}" for kind in map(type, model.modules()))
    names = sorted(kinds, key=lambda kind: "conv" not in kind.rpartition(".")[2].lower())
    shown = ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
    hint = "" if linear or not any(map(_is_linear, model.modules())) else " linear=True computes the Linear."
    return (
        f"found no convolution of torch.nn, so nothing has changed. The model's modules are {shown}.{hint} Layers of"
        " other libraries, quantized layers and functions that a forward calls are not seen: call"
        " convgrad.torch.conv2d there."
    )


def original(model: Model) -> Model:
    """Let PyTorch compute the layers of a model again, in place; return the model.

    >>> original(reproducible(torch.nn.Conv1d(1, 1, 2)))
    Conv1d(1, 1, kernel_size=(2,), stride=(1,))
    """
    for _, module in named_modules("original", model):
        if is_reproducible(module):
            module.__class__ = _swapped(module, lambda kind: kind.__bases__[0])
            vars(module).pop("convgrad_max_error", None)
    return model


def named_modules(function: str, model: Any) -> Iterator[tuple[str, Any]]:
    """Return the modules of a model, each once, by qualified name; raise if the model is not a module."""
    if not isinstance(model, nn.Module):
        raise InvalidDataTypeError(f"{function}: model must be a torch.nn.Module; got {type(model).__name__}")
    return cast(Iterator[tuple[str, Any]], model.named_modules())


def is_convolution(module: Any) -> bool:
    """Return whether a module's class is a convolution, possibly compiled by TorchScript."""
    return isinstance(module, _ConvNd) or _compiled_name(module) in {kind.__name__ for kind in _CONVOLUTIONS}


def _is_linear(module: Any) -> bool:
    return isinstance(module, nn.Linear) or _compiled_name(module) == nn.Linear.__name__


def _compiled_name(module: Any) -> str:
    """Return the name of the class that TorchScript compiled a module from; "" for other modules."""
    return str(module.original_name) if isinstance(module, torch.jit.ScriptModule) else ""


def is_reproducible(module: Any) -> bool:
    """Return whether this library computes a module."""
    return getattr(type(module), "_is_reproducible", False)


def why_left_out(module: Any) -> str | None:
    """Return why PyTorch must compute a convolution or a linear layer; None if convgrad can."""
    if is_reproducible(module):
        return None
    kind = type(module)
    if isinstance(module, torch.jit.ScriptModule):
        return "which TorchScript has compiled: make the model reproducible before that"
    if isinstance(module, LazyModuleMixin):
        return f"a {kind.__name__}, whose shape is known after the model's first call: call it, then this again"
    if isinstance(module, NonDynamicallyQuantizableLinear):
        return f"a {kind.__name__}, whose weights MultiheadAttention reads in a forward of its own"
    base = next((base for base in kind.__mro__ if base in _METHODS), None)
    methods = _METHODS[base][0] if base else ()
    own = [name for name in methods if getattr(kind, name) is not getattr(base, name) or name in vars(module)]
    if base is None or own:
        return (
            f"a {kind.__name__}, whose {own[0] if own else 'forward'} is its own: call convgrad.torch's functions in it"
        )
    return unsupported(module)


def unsupported(module: Any) -> str | None:
    """Return why a layer has no kernel with a fixed order of sums; None if it has one.

    The function reads parameters, because reading a computed weight may change the values that it depends on.
    """
    others = {parameter.dtype: None for parameter in module.parameters() if parameter.dtype not in _FORMATS}
    if not others:
        return None
    words = ", ".join(map(str, others))
    return f"a {type(module).__name__} of {words}: there are kernels for {', '.join(_FORMATS.values())}"


def _swapped(module: Any, exchange: Callable[[Any], Any]) -> Any:
    """Return a module's class with the convolution's class exchanged for another.

    PyTorch derives a separate class from the convolution's for each parametrized module. A copy of that class with the
    new base is returned, so that parametrizations can still be removed.
    """
    kind = type(module)
    if not is_parametrized(module):
        return exchange(kind)
    members = {name: value for name, value in vars(kind).items() if name not in ("__dict__", "__weakref__")}
    return type(kind.__name__, (exchange(kind.__bases__[0]),), members)


@cache
def _derived(kind: type) -> type:
    """Return the derived class whose instances this library computes."""
    base = next(base for base in kind.__mro__ if base in _METHODS)
    names, forward = _METHODS[base]
    members = {
        "__module__": kind.__module__,  # torch.fx still treats it as a leaf
        "__doc__": f"A {kind.__name__} that convgrad computes.",
        "__reduce_ex__": _reduce,
        "__prepare_scriptable__": _not_scripted,
        "_is_reproducible": True,
        "convgrad_max_error": None,  # `reproducible` sets it on instances
        "extra_repr": _extra_repr,
        names[-1]: forward,
    }
    return type(f"Reproducible{kind.__name__}", (kind,), members)


def _extra_repr(self: Any) -> str:
    """Return the module's text in a printed model: the original text and ``max_error``."""
    max_error, kind = self.convgrad_max_error, _reproducible_class(self)
    words: str = super(kind, self).extra_repr()
    return words if max_error is None else f"{words}, max_error={max_error:g}"


def _reproducible_class(module: Any) -> Any:
    """Return the class that `reproducible` made; the module's own class may be derived from it."""
    return next(kind for kind in type(module).__mro__ if "_is_reproducible" in vars(kind))


def _not_scripted(self: Any) -> NoReturn:
    """Raise if torch.jit.script is about to compile a module, before TorchScript changes anything."""
    raise UnsupportedError(
        f"torch.jit.script: TorchScript cannot compile a {type(self).__name__}. Use torch.jit.trace or torch.export, or"
        " call convgrad.torch.original(model) first, so that PyTorch computes the model again."
    )


def _reduce(self: Any, protocol: Any) -> tuple[Any, ...]:
    """Return a module's pickled form: it names the original class, because the derived one cannot be imported."""
    state = cast(tuple[Any, ...], object.__reduce_ex__(self, protocol))[2:]
    return _rebuilt, (_reproducible_class(self).__bases__[0],), *state


def _rebuilt(kind: type) -> Any:
    derived: Any = _derived(kind)
    return derived.__new__(derived)
