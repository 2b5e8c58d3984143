"""The operators registered with PyTorch, one per pass. Each derivative of an operator is a call of an operator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, ParamSpec, Protocol

import torch
from torch import Tensor
from torch.autograd import forward_ad

from convgrad.spec.activation import is_relu
from convgrad.torch import kernels, passes, recorded, traced
from convgrad.torch.attributes import OpAttributes
from convgrad.torch.extents import Ints, less, pads_of, unread
from convgrad.torch.problems import FORMATS
from convgrad.torch.recorded import sizes_are_recorded
from convgrad.torch.schema import Schema, schema_of
from convgrad.torch.strides import laid, strides_of

if TYPE_CHECKING:
    from torch._ops import OpOverload

_CLASSES = frozenset((torch.Tensor, torch.nn.Parameter))
P = ParamSpec("P")
Gradients = tuple[Tensor | None, ...]


class _SavedValues(Protocol):
    """What autograd keeps of a call for its derivatives."""

    needs_input_grad: tuple[bool, ...]
    saved_tensors: tuple[Any, ...]
    save_for_backward: Callable[..., None]
    save_for_forward: Callable[..., None]
    set_materialize_grads: Callable[[bool], None]
    shapes: tuple[Ints, Ints]  # of the two factors
    attributes: tuple[Any, ...]  # the arguments that are not tensors
    result: Ints  # the shape of the result
    strides: Sequence[Ints | None]  # of the tensors that have derivatives
    shape: Ints  # of the operand of a bias gradient


class _VmapInfo(Protocol):
    """What PyTorch tells of a vmap."""

    batch_size: int


class _Rule(torch.autograd.Function):  # type: ignore[misc]
    """An operator of PyTorch: its declaration, from which its name and its schema follow, and its derivatives."""

    declared: ClassVar[Callable[..., passes.Call]]  # by the function that declares the operator
    name: ClassVar[str]
    schema: ClassVar[Schema]

    def __init_subclass__(cls, **options: object) -> None:
        super().__init_subclass__(**options)
        cls.name, cls.schema = cls.declared.__name__, schema_of(cls.declared)

    @classmethod
    def forward(cls, ctx: _SavedValues, *args: object) -> Tensor:
        """Return the result, and save the values that derivatives need."""
        result = kernels.compute(cls.declared(*args))
        cls.keep(ctx, args, result, False)
        return result

    @classmethod
    def keep(cls, ctx: _SavedValues, inputs: tuple[Any, ...], output: Tensor, recorded: bool) -> None:
        """Save shapes and attributes, and each of the two factors that the derivative by the other factor needs.

        If a trace records sizes as numbers, derivatives also need the shapes of both factors from tensors.
        """
        (first, second), wanted, attributes = inputs[:2], ctx.needs_input_grad, cls.schema.operands
        ctx.save_for_backward(first if wanted[1] or recorded else None, second if wanted[0] or recorded else None)
        if forward_ad._current_level >= 0:
            ctx.save_for_forward(first, second, output if recorded else None, *inputs[cls.schema.tensors : attributes])
        ctx.shapes, ctx.attributes, ctx.result = (first.shape, second.shape), inputs[attributes:], output.shape
        ctx.strides = strides_of(*inputs[: cls.schema.tensors])
        ctx.set_materialize_grads(False)

    @classmethod
    def jvp(cls, ctx: _SavedValues, *tangents: Tensor | None) -> Tensor:
        """Return the tangent of the result. The operator is linear in each of its two factors and adds the bias."""
        (first, second, result, *like), (u, v, *bias) = ctx.saved_tensors, tangents[: cls.schema.tensors]
        remainder = (*[None] * len(bias), *like, *ctx.attributes)
        parts = [] if u is None else [call(cls.name, u, second, *remainder)]
        parts += [] if v is None else [call(cls.name, first, v, *remainder)]
        parts += [_everywhere(cotangent, ctx.result, result).clone() for cotangent in bias if cotangent is not None]
        # in a trace, a tensor of which only the shape is read may be the only one with a tangent
        return sum(parts[1:], parts[0]) if parts else torch.zeros_like(result)


class Forward(_Rule):
    """The forward pass: dst from src and weights."""

    declared = staticmethod(passes.forward)

    @staticmethod
    def backward(ctx: _SavedValues, v: Tensor | None) -> Gradients:
        """Return the cotangents of the arguments; None if an argument needs none."""
        gradients: list[Tensor | None] = [None] * Forward.schema.arguments
        if v is not None:
            (src, weights), (extents, kernel), wanted = ctx.saved_tensors, ctx.shapes, ctx.needs_input_grad
            (layer,) = ctx.attributes
            if not torch.is_grad_enabled() and _straight(v, src, weights):
                gradients[:3] = kernels.gradients(v, src, weights, wanted, (extents[2:], kernel[2:]), layer)
                return laid(gradients, ctx.strides)
            if wanted[0]:
                of_extents = _of_extents(src, extents, v.shape, kernel, layer)
                gradients[0] = call("data_gradient", v, weights, None, *of_extents)
            if wanted[1]:
                gradients[1] = call("weight_gradient", src, v, *_kernel_of(weights, kernel), layer)
            if wanted[2]:
                gradients[2] = call("bias_gradient", v)
        return laid(gradients, ctx.strides)


class DataGradient(_Rule):
    """The backward_data pass: diff_src from diff_dst and weights. Transposed layers call it with their bias."""

    declared = staticmethod(passes.data_gradient)

    @staticmethod
    def backward(ctx: _SavedValues, v: Tensor | None) -> Gradients:
        """Return the cotangents of the arguments; None if an argument needs none."""
        gradients: list[Tensor | None] = [None] * DataGradient.schema.arguments
        if v is not None:
            (diff_dst, weights), (_, kernel), wanted = ctx.saved_tensors, ctx.shapes, ctx.needs_input_grad
            (layer,) = ctx.attributes
            if layer.output_padding is not None:
                begin, end = pads_of(layer.pads, kernel[2:], layer.dilations)
                layer = layer.padded((begin, less(end, layer.output_padding)))
            if wanted[0]:
                gradients[0] = call("forward", v, weights, None, layer)
            if wanted[1]:
                gradients[1] = call("weight_gradient", v, diff_dst, *_kernel_of(weights, kernel), layer)
            if wanted[2]:
                gradients[2] = call("bias_gradient", v)
        return laid(gradients, ctx.strides)


class WeightGradient(_Rule):
    """The backward_weights pass: diff_weights from src and diff_dst."""

    declared = staticmethod(passes.weight_gradient)

    @staticmethod
    def backward(ctx: _SavedValues, v: Tensor | None) -> Gradients:
        """Return the cotangents of the arguments; None if an argument needs none."""
        gradients: list[Tensor | None] = [None] * WeightGradient.schema.arguments
        if v is not None:
            (src, diff_dst), (large, small), wanted = ctx.saved_tensors, ctx.shapes, ctx.needs_input_grad
            _, layer = ctx.attributes
            if wanted[0]:
                gradients[0] = call("data_gradient", diff_dst, v, None, *_of_extents(src, large, small, v.shape, layer))
            if wanted[1]:
                gradients[1] = call("forward", src, v, None, layer)
        return laid(gradients, ctx.strides)


def _of_extents(
    src: Tensor | None, large: Sequence[int], small: Sequence[int], kernel: Sequence[int], layer: OpAttributes
) -> tuple[Tensor | None, OpAttributes]:
    """Return the two arguments of ``data_gradient`` from which it takes its extents: ``src``, or the padding."""
    if src is not None and sizes_are_recorded():
        return src, layer
    more = unread(large[2:], small[2:], kernel[2:], layer.strides, layer.pads, layer.dilations)
    return None, layer.padded(layer.pads, more)


def _kernel_of(weights: Tensor | None, shape: Sequence[int]) -> tuple[Tensor | None, Sequence[int] | None]:
    """Return the two arguments of ``weight_gradient`` from which it takes the extents of the kernel."""
    return (weights, None) if weights is not None and sizes_are_recorded() else (None, tuple(shape[2:]))


class BiasGradient(_Rule):
    """The gradient of the bias: diff_bias from diff_dst."""

    declared = staticmethod(passes.bias_gradient)

    @classmethod
    def keep(cls, ctx: _SavedValues, inputs: tuple[Any, ...], output: Tensor, recorded: bool) -> None:
        """Save only the shape, because the sum is linear in its only operand."""
        ctx.save_for_backward(inputs[0] if recorded else None)
        ctx.shape = inputs[0].shape

    @classmethod
    def jvp(cls, ctx: _SavedValues, *tangents: Tensor | None) -> Tensor:
        """Return the sums of the tangent per channel."""
        return call(cls.name, *tangents)

    @staticmethod
    def backward(ctx: _SavedValues, v: Tensor) -> Tensor:
        """Return each channel's cotangent, repeated at all positions."""
        return _everywhere(v, ctx.shape, *ctx.saved_tensors)


def _everywhere(channels: Tensor, shape: Sequence[int], like: Tensor | None) -> Tensor:
    """Return a tensor that repeats each channel's value at all positions, of this shape or of the shape of ``like``."""
    channels = channels[(..., *[None] * (len(shape) - 2))]
    return channels.expand(shape) if like is None else torch.ones_like(like) * channels


_PRE_DISPATCH = torch._C.DispatchKey.PreDispatch
_keys = torch._C._dispatch_keys  # returns the dispatcher's keys of a tensor: its device and special properties


def _of_memory(backend: str) -> tuple[int, int]:
    """Return the dispatch keys of plain tensors of a backend, without and with autograd."""
    key = torch._C._parse_dispatch_key
    alone = torch._C.DispatchKeySet(key(backend)).add(key(f"Autocast{backend}"))
    return alone.raw_repr(), alone.add(key("ADInplaceOrView")).add(key(f"Autograd{backend}")).raw_repr()


_BACKENDS = ("CPU", "CUDA")
_OF_MEMORY = frozenset(key for backend in _BACKENDS for key in _of_memory(backend))


def _straight(*tensors: Tensor | None) -> bool:
    """Return whether a kernel can be called directly: the tensors are plain, and PyTorch does not trace the call."""
    if torch.compiler.is_compiling() or torch._C._len_torch_dispatch_stack() or torch._C._get_tracing_state():
        return False
    if torch._C._dispatch_tls_is_dispatch_key_included(_PRE_DISPATCH):  # modes that see calls before autograd does
        return False
    if torch._C._autograd._profiler_enabled():  # the profiler records only calls through the dispatcher
        return False
    if torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0:
        return False
    for tensor in tensors:
        if tensor is not None and (tensor.__class__ not in _CLASSES or _keys(tensor).raw_repr() not in _OF_MEMORY):
            return False
    return True


def _differentiated(tensors: Sequence[Tensor | None]) -> bool:
    """Return whether autograd records a call on these tensors."""
    if torch.is_grad_enabled():
        for tensor in tensors:
            if tensor is not None and tensor.requires_grad:
                return True
    return False


def call(name: str, *args: object) -> Tensor:
    """Call an operator: its kernel directly if possible, else through PyTorch's dispatcher, which is slower.

    ``args`` are the first arguments of the operator's schema, and OpAttributes in place of the others.
    """
    if torch.compiler.is_compiling():
        return (
            _OPS[name](*_SCHEMAS[name].flat(args)) if forward_ad._current_level < 0 else _uncompiled(call, name, *args)
        )
    rule, schema = _RULES[name], _SCHEMAS[name]
    tensors = args[: schema.tensors]
    if _straight(*tensors):
        return _APPLIED[name](*args) if _differentiated(tensors) else kernels.compute(rule.declared(*args))
    dual = forward_ad._current_level >= 0 and torch._C._is_fwd_grad_enabled()
    if dual or torch._C._are_functorch_transforms_active():  # the dispatcher has no rule for them
        return _uncompiled(_TRANSFORMED[name].apply, *schema.flat(args))
    if torch.jit.is_tracing():
        return recorded.call(getattr(torch.ops.convgrad, name), schema.operands, schema.flat(args))
    return _OPS[name](*schema.flat(args))


def call_activated(activation: str | None, name: str, *args: object) -> Tensor:
    """Call an operator and activate its result.

    The kernel's epilogue computes the activation if the kernel is called directly and autograd records nothing.
    """
    if is_relu(activation, name) and not torch.compiler.is_compiling():
        rule = _RULES[name]
        tensors = args[: rule.schema.tensors]
        if _straight(*tensors) and not _differentiated(tensors):
            return kernels.compute(rule.declared(*args), activation)
    return activate(activation, name, call(name, *args))


def activate(
    activation: str | None, name: str, result: Tensor, inactive: Callable[[Tensor], Tensor] | None = None
) -> Tensor:
    """Return the activated result. torch.relu is not used, because it returns -0 for -0.

    ``inactive`` returns which values ReLU replaces by 0, by default from their bits.
    """
    return torch.where((inactive or _inactive)(result), 0.0, result) if is_relu(activation, name) else result


def _inactive(values: Tensor) -> Tensor:
    """Return which values are at most 0, by their bits: comparisons of numbers may take denormals for 0."""
    if torch.jit.is_tracing():  # TorchScript has no views of another type
        return values <= 0
    integer, first_nan = _NEGATIVE[values.dtype]
    bits = values.detach().view(integer)
    return (bits == 0) | (bits < first_nan)


@torch._disable_dynamo  # type: ignore[untyped-decorator]
def _uncompiled(function: Callable[P, Tensor], *args: P.args, **options: P.kwargs) -> Tensor:
    """Call a function that torch.compile must not compile, at the cost of a graph break."""
    return function(*args, **options)


_INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
# By type, the integers of its size, and the smallest of those that are the bits of a negative NaN.
_NEGATIVE = {
    dtype: (_INTEGERS[fmt.itemsize], -(fmt.spent or 2 ** (fmt.significand_bits - 1) - 1))
    for dtype, fmt in FORMATS.items()
}


# -- registration --------------------------------------------------------------------------------------------------


def _settled(rule: type[_Rule], args: Sequence[object]) -> tuple[Any, ...]:
    """Return a schema's arguments as Python code needs them: lists become tuples, the last arguments OpAttributes."""
    return rule.schema.gathered(
        tuple([tuple(argument) if isinstance(argument, list) else argument for argument in args])
    )


def _of_schema(rule: type[_Rule], function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Return a function that takes the arguments of the operator's schema, as PyTorch passes them."""
    return lambda *args: function(*_settled(rule, args))


def _keeper(rule: type[_Rule]) -> Callable[..., None]:
    """Return the operator's ``keep`` as a function that PyTorch can call."""
    return lambda ctx, inputs, output: rule.keep(ctx, _settled(rule, inputs), output, sizes_are_recorded())


def _of_samples(
    operator: Callable[..., Tensor], info: _VmapInfo, in_dims: tuple[object, ...], *args: object
) -> tuple[Tensor, int]:
    """Call the operator on each element of a vmap in turn, so that the bits are the same as in separate calls."""

    def call_on(element: Callable[[Tensor, int], Tensor]) -> Tensor:
        pairs = zip(args, in_dims, strict=True)
        return operator(*[element(a, dim) if isinstance(dim, int) else a for a, dim in pairs])

    if not info.batch_size:  # the sum of no elements has an element's shape, and depends on the tensor
        return call_on(lambda tensor, dim: tensor.sum(dim, dtype=tensor.dtype))[None, ...].narrow(0, 0, 0), 0
    return torch.stack([call_on(lambda tensor, dim: tensor.select(dim, at)) for at in range(info.batch_size)]), 0  # noqa: B023


def _transformed(rule: type[_Rule]) -> type[_Rule]:
    """Return the operator as a class that torch.func can transform."""
    of_schema = _of_schema(rule, partial(call, rule.name))
    rules: dict[str, Callable[..., object]] = {
        "forward": of_schema,
        "setup_context": _keeper(rule),
        "vmap": partial(_of_samples, of_schema),
    }
    return type(rule.__name__, (rule,), {name: staticmethod(rule) for name, rule in rules.items()})


def _register(rule: type[_Rule]) -> OpOverload:
    """Register an operator with PyTorch's dispatcher, and return the registered operator."""
    name = f"convgrad::{rule.name}"
    _library.define(f"{rule.name}({rule.schema.text}) -> Tensor", tags=_TAGS)
    for backend in _BACKENDS:
        _library.impl(rule.name, _of_schema(rule, lambda *args: kernels.compute(rule.declared(*args))), backend)
    of_schema = _of_schema(rule, partial(call, rule.name))
    recorded.register_sized(_library, rule.name, rule.schema.text, of_schema, rule.schema.operands)
    torch.library.register_fake(name, _of_schema(rule, lambda *args: traced.empty(rule.declared(*args))), lib=_library)
    torch.library.register_autograd(name, rule.backward, setup_context=_keeper(rule), lib=_library)
    operator: OpOverload = getattr(torch.ops.convgrad, rule.name).default
    torch.library.register_vmap(name, partial(_of_samples, operator), lib=_library)
    return operator


_library = torch.library.Library("convgrad", "DEF")
# The engines read any strides, so compiled code need not copy operands to change their strides.
_TAGS = (torch.Tag.pt2_compliant_tag, torch.Tag.flexible_layout)
_RULES: dict[str, type[_Rule]] = {r.name: r for r in (Forward, DataGradient, WeightGradient, BiasGradient)}
_SCHEMAS = {name: rule.schema for name, rule in _RULES.items()}
# Function.apply of PyTorch's base class, which does not handle functorch's wrapped tensors: `call` passes none to it.
_APPLIED: dict[str, Callable[..., Tensor]] = {
    name: super(torch.autograd.Function, rule).apply for name, rule in _RULES.items()
}
_TRANSFORMED = {name: _transformed(rule) for name, rule in _RULES.items()}
_OPS = {name: _register(rule) for name, rule in _RULES.items()}
