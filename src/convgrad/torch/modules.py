"""The functions `reproducible` and `original`. They exchange the classes of a model's convolutions."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any, NoReturn, Protocol, SupportsIndex, TypeVar, cast

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd
from torch.nn.modules.lazy import LazyModuleMixin
from torch.nn.modules.linear import NonDynamicallyQuantizableLinear
from torch.nn.utils import parametrize
from torch.nn.utils.parametrize import is_parametrized

from convgrad.arrays.libraries.torch import formats_of
from convgrad.engines.settings import accuracy, flag
from convgrad.errors import InvalidDataTypeError, UnsupportedError
from convgrad.formats import F64
from convgrad.torch import functional
from convgrad.torch.arguments import LayerArguments
from convgrad.torch.pristine import KINDS, kind_of, replaced

_SHOWN = 8  # max number of classes in a warning
Model = TypeVar("Model")  # so that editors show the type of the result
_SETTINGS = {"convgrad_max_error": None, "convgrad_tune": False}  # defaults; `reproducible` sets a module's values
# types with kernels; complex64 is computed by sums in f32
_FORMATS = {dtype: fmt.name for dtype, fmt in formats_of(torch).items() if fmt is not F64} | {
    torch.complex64: "complex64"
}


class _ReproducibleLayer(Protocol):
    """A convolution of torch.nn with the settings of `reproducible`."""

    weight: Tensor
    bias: Tensor | None
    stride: tuple[int, ...]
    padding: int | tuple[int, ...] | str
    padding_mode: str
    dilation: tuple[int, ...]
    kernel_size: tuple[int, ...]
    groups: int
    convgrad_max_error: float | None
    convgrad_tune: bool
    _reversed_padding_repeated_twice: list[int]
    _output_padding: Callable[..., Sequence[int]]


def _conv_forward(self: _ReproducibleLayer, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Return the convolution that ``torch.nn.Conv1d``, ``2d`` or ``3d`` computes."""
    padding = self.padding
    if self.padding_mode != "zeros":
        pads = self._reversed_padding_repeated_twice
        input, padding = nn.functional.pad(input, pads, mode=self.padding_mode), 0
    axes, settings = len(self.kernel_size), (self.convgrad_max_error, None, self.convgrad_tune)
    layer = LayerArguments(self.stride, padding, padding, self.dilation, self.groups, *settings)
    return functional.conv_layer(f"conv{axes}d", axes, input, weight, bias, layer)


def _transposed_forward(self: _ReproducibleLayer, input: Tensor, output_size: list[int] | None = None) -> Tensor:
    """Return the convolution that ``torch.nn.ConvTranspose1d``, ``2d`` or ``3d`` computes."""
    axes = len(self.kernel_size)
    output_padding = self._output_padding(
        input, output_size, self.stride, self.padding, self.kernel_size, axes, self.dilation
    )
    settings = self.convgrad_max_error, None, self.convgrad_tune, output_padding, output_size
    layer = LayerArguments(self.stride, self.padding, self.padding, self.dilation, self.groups, *settings)
    return functional.conv_layer(f"conv_transpose{axes}d", axes, input, self.weight, self.bias, layer)


def _linear_forward(self: nn.Linear, input: Tensor) -> Tensor:
    """Return the product that ``torch.nn.Linear`` computes."""
    return functional.linear(input, self.weight, self.bias)


def _replacement(kind: str) -> tuple[str, Callable[..., Tensor]]:
    """Return the method of a PyTorch class that `reproducible` replaces, and its replacement."""
    if kind == "Linear":
        return "forward", _linear_forward
    return ("forward", _transposed_forward) if "Transpose" in kind else ("_conv_forward", _conv_forward)


def reproducible(
    model: Model, *, linear: bool = False, max_error: float | None = None, tune: bool | None = None
) -> Model:
    """Make convgrad compute every convolution of a model; change the model in place and return it.

    Each ``Conv1d``, ``2d``, ``3d`` and ``ConvTranspose1d``, ``2d``, ``3d`` remains the same module, with its
    parameters, hooks and names. Its new class is derived from its old class; convgrad computes its forward pass and
    its gradients. Optimisers, checkpoints and ``isinstance`` work as before. The bits of a convolution and of its
    gradients then depend only on the values of its tensors, not on threads or the instruction set. `report` lists all
    other modules, and whether their bits may vary. `original` undoes the change. If you add modules later, call
    `reproducible` again.

    A warning names each layer that PyTorch still computes, with the reason. Possible reasons are: the class overrides
    PyTorch's forward, a method of PyTorch's class was replaced, the layer is lazy and was never called, its parameters
    are f64 or complex128, or TorchScript compiled it. A forward may also call a function such as
    ``torch.nn.functional.conv2d``. `reproducible` finds only modules, so replace such a function with the function of
    the same name in `convgrad.torch.functional`, or train inside `same_bits`, which also fixes the bits of functions,
    batch norm, losses and optimizers. If `reproducible` finds no layer, a warning lists the classes of the
    model's modules.

    Args:
        model: Any ``torch.nn.Module``.

    Keyword Args:
        linear: Whether convgrad also computes each ``Linear``, as a convolution with one tap, because the bits of
            PyTorch's ``Linear`` may depend on the number of threads. PyTorch still computes the projections in
            ``MultiheadAttention``. Default: False.
        max_error: The largest error bound allowed, as a multiple of the direct sum's bound, as in
            ``convgrad.max_error``, over which it takes precedence. Values above 1 allow Winograd in the forward pass
            and all gradients of each convolution. None keeps the values of an earlier call. A convolution without a
            value uses the ``convgrad.max_error`` that is active in its forward pass, also for its gradients. Default:
            None.
        tune: Whether convgrad chooses the plans of each convolution by measurement, as ``convgrad.tune`` does, in the
            first forward and backward pass with tensors of a shape. Bits do not change. None keeps the values of an
            earlier call. Default: None.

    Raises:
        InvalidDataTypeError: The model is not a ``torch.nn.Module``.
        InvalidAttributeError: ``max_error`` is not a number of at least 1, or ``tune`` is not a bool.

    >>> model = reproducible(torch.nn.Sequential(torch.nn.Conv1d(1, 1, 2, bias=False), torch.nn.ReLU()))
    >>> model[0]
    ReproducibleConv1d(1, 1, kernel_size=(2,), stride=(1,), bias=False)
    >>> isinstance(model[0], torch.nn.Conv1d)
    True
    """
    settings: dict[str, object] = {}
    if max_error is not None:
        settings["convgrad_max_error"] = accuracy(max_error, "reproducible")
    if tune is not None:
        settings["convgrad_tune"] = flag(tune, "reproducible: tune")
    computed, left_out = 0, []
    modules = list(named_modules("reproducible", model))
    for name, module in modules:
        if not is_convolution(module) and not (linear and _is_linear(module)):
            continue
        if is_reproducible(module) and replaced(module):  # since the last call
            _restore(module)
        if reason := why_left_out(module):
            left_out.append(f"{name or 'the model'}, {reason}")
            continue
        computed += 1
        if not is_reproducible(module):
            _change(module)
        if is_convolution(module):
            vars(module).update(settings)
    if left_out:
        warnings.warn(f"reproducible: PyTorch still computes {'; '.join(left_out)}", UserWarning, stacklevel=2)
    elif not computed:
        warnings.warn(
            f"reproducible: {_no_convolution([module for _, module in modules], linear)}", UserWarning, stacklevel=2
        )
    return model


def _no_convolution(modules: Sequence[nn.Module], linear: bool) -> str:
    """Return the text of a warning that lists the classes of modules; names with "conv" come first."""
    kinds = dict.fromkeys(f"{kind.__module__}.{kind.__qualname__}" for kind in map(type, modules))
    names = sorted(kinds, key=lambda kind: "conv" not in kind.rpartition(".")[2].lower())
    shown = ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
    hint = "" if linear or not any(map(_is_linear, modules)) else " linear=True computes the Linear."
    return (
        f"found no convolution of torch.nn, so nothing has changed. The model's modules are {shown}.{hint} Layers of"
        " other libraries, quantized layers and functions that a forward calls are not found: call"
        " convgrad.torch.conv2d there, or train inside convgrad.torch.same_bits()."
    )


def original(model: Model) -> Model:
    """Undo `reproducible`: PyTorch computes the layers again. Change the model in place and return it.

    Args:
        model: Any ``torch.nn.Module``.

    >>> original(reproducible(torch.nn.Conv1d(1, 1, 2)))
    Conv1d(1, 1, kernel_size=(2,), stride=(1,))
    """
    for _, module in named_modules("original", model):
        if is_reproducible(module):
            _restore(module)
    return model


def _restore(module: nn.Module) -> None:
    """Give a module its old class again, and remove its settings."""
    ours = _reproducible_class(module)
    module.__class__ = _rebased(type(module), ours, ours.__bases__[0])
    for name in _SETTINGS:
        vars(module).pop(name, None)


def named_modules(function: str, model: object) -> Iterator[tuple[str, nn.Module]]:
    """Return pairs of qualified name and module for all modules of a model; raise if the model is not a module."""
    if not isinstance(model, nn.Module):
        raise InvalidDataTypeError(f"{function}: model must be a torch.nn.Module; got {type(model).__name__}")
    return cast(Iterator[tuple[str, nn.Module]], model.named_modules())


def is_convolution(module: nn.Module) -> bool:
    """Return whether a module is a convolution of torch.nn, also if TorchScript compiled it."""
    return isinstance(module, _ConvNd) or _compiled_name(module) in KINDS.keys() - {"Linear"}


def _is_linear(module: nn.Module) -> bool:
    return isinstance(module, nn.Linear) or _compiled_name(module) == nn.Linear.__name__


def _compiled_name(module: nn.Module) -> str:
    """Return the name of the class that TorchScript compiled a module from; "" for other modules."""
    return str(module.original_name) if isinstance(module, torch.jit.ScriptModule) else ""


def is_reproducible(module: nn.Module) -> bool:
    """Return whether convgrad computes a module."""
    return getattr(type(module), "_is_reproducible", False)


def why_left_out(module: nn.Module) -> str | None:
    """Return why convgrad cannot compute a convolution or a linear layer; None if it can."""
    if is_reproducible(module):
        return None
    kind = type(module)
    if isinstance(module, torch.jit.ScriptModule):
        return "which TorchScript has compiled: call reproducible before you compile the model"
    if isinstance(module, LazyModuleMixin):
        return f"a {kind.__name__}, whose shape is known after the model's first call: call the model first"
    if isinstance(module, NonDynamicallyQuantizableLinear):
        return f"a {kind.__name__}, whose weights MultiheadAttention reads in its own forward"
    if reason := replaced(module):
        return f"a {kind.__name__}, {reason}: call convgrad.torch's functions in it"
    return unsupported(module)


def unsupported(module: nn.Module) -> str | None:
    """Return why no kernel can compute a layer's parameters, as text; None if a kernel can.

    The function reads ``module.parameters()`` and not ``module.weight``. Reading a parametrized weight may change the
    values that the weight is computed from.
    """
    others = {parameter.dtype: None for parameter in module.parameters() if parameter.dtype not in _FORMATS}
    if not others:
        return None
    words = ", ".join(map(str, others))
    return f"a {type(module).__name__} of {words}: there are kernels for {', '.join(_FORMATS.values())}"


def _change(module: nn.Module) -> None:
    """Give a module a class that is derived from its layer class, and that convgrad computes."""
    kind: type = type(module)
    if is_parametrized(module):  # PyTorch then derives a class from the layer class
        kind = next(base.__bases__[0] for base in kind.__mro__ if base.__module__ == parametrize.__name__)
    module.__class__ = _rebased(type(module), kind, _derived(kind))


def _rebased(kind: type, old: type, new: type) -> type:
    """Return a class with the base ``new`` instead of ``old``.

    PyTorch gives parametrized and sharded modules classes of their own, derived from the layer class. This function
    copies these classes, so that parametrizations can still be removed.
    """
    if kind is old:
        return new
    members = {name: value for name, value in vars(kind).items() if name not in ("__dict__", "__weakref__")}
    bases = [_rebased(base, old, new) if issubclass(base, old) else base for base in kind.__bases__]
    return type(kind.__name__, tuple(bases), members)


@cache
def _derived(kind: type) -> type:
    """Return a class derived from ``kind`` whose instances convgrad computes."""
    method, forward = _replacement(cast(str, kind_of(kind)))
    members = {
        "__module__": kind.__module__,  # so torch.fx treats the class as a leaf, as before
        "__doc__": f"A {kind.__name__} that convgrad computes.",
        "__reduce_ex__": _reduce,
        "__prepare_scriptable__": _not_scripted,
        "_is_reproducible": True,
        **_SETTINGS,
        "extra_repr": _extra_repr,
        method: forward,
    }
    return type(f"Reproducible{kind.__name__}", (kind,), members)


def _extra_repr(self: nn.Module) -> str:
    """Return the module's text in a printed model: PyTorch's text, then ``max_error`` and ``tune`` if they are set."""
    words: str = super(_reproducible_class(self), self).extra_repr()
    max_error = "" if self.convgrad_max_error is None else f", max_error={self.convgrad_max_error:g}"
    return words + max_error + (", tune=True" if self.convgrad_tune else "")


def _reproducible_class(module: nn.Module) -> type[nn.Module]:
    """Return the class that `reproducible` made for a module; the module's present class may be derived from it."""
    return next(kind for kind in type(module).__mro__ if "_is_reproducible" in vars(kind))


def _not_scripted(self: nn.Module) -> NoReturn:
    """Raise UnsupportedError. torch.jit.script calls this method before it compiles a module."""
    raise UnsupportedError(
        f"torch.jit.script: TorchScript cannot compile a {type(self).__name__}. Use torch.jit.trace or torch.export, or"
        " call convgrad.torch.original(model) first, so that PyTorch computes the model again."
    )


def _reduce(self: nn.Module, protocol: SupportsIndex) -> tuple[object, ...]:
    """Return a module's pickled form. It names PyTorch's class, because pickle cannot import the derived class."""
    ours = _reproducible_class(self)
    reduced = super(ours, self).__reduce_ex__(protocol)  # the user's class may say how it is made
    make, arguments, *state = cast(tuple[Any, ...], reduced)
    call = [ours.__bases__[0] if value is ours else value for value in (make, *arguments)]
    settings = {name: value for name, value in vars(self).items() if name in _SETTINGS}
    return _remade, (settings, *call), *state


def _remade(settings: dict[str, object], make: Callable[..., nn.Module], *arguments: object) -> nn.Module:
    """Return the module that a function makes, as `reproducible` changed it."""
    module = make(*arguments)
    if not is_reproducible(module):
        _change(module)
    vars(module).update(settings)
    return module
