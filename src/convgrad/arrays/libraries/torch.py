"""PyTorch tensors: their conversion from and to NumPy arrays, and the tensors that are refused."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from types import ModuleType

import numpy as np

from convgrad.array_types import Array
from convgrad.arrays.libraries.library import Foreign, Library, Refusal
from convgrad.engines.settings import OPENMP
from convgrad.formats import FORMATS, LISTED, Format, of_dtype


@cache
def formats_of(torch: ModuleType) -> dict[object, Format]:
    """Return the number formats, keyed by PyTorch dtype."""
    return {getattr(torch, fmt.dtype_name): fmt for fmt in FORMATS.values()}


def array_of(torch: ModuleType, tensor: Foreign) -> Array:
    """Return a tensor as a NumPy array on its memory, also for bf16 and f8, which need ml_dtypes.

    The array is read-only if the tensor shares its memory until one is written to (copy on write).
    """
    if tensor.is_neg():  # a flag says that the memory has the opposite signs
        tensor = tensor.resolve_neg()
    fmt = formats_of(torch).get(tensor.dtype)
    bits = getattr(torch, fmt.bits.name) if fmt is not None and fmt.is_extension else None
    bits_view = tensor if bits is None else tensor.view(bits)
    array: Array = reading_array_of(torch, bits_view) if torch._C._is_cow_tensor(bits_view) else bits_view.numpy()
    if array.flags.owndata and array.size:  # NumPy has allocated the memory, because the tensor has none
        raise BufferError("a tensor that has no memory")
    return array if fmt is None or bits is None else array.view(fmt.dtype)


class _TensorMemory:
    """A tensor's memory for NumPy. PyTorch would copy a tensor that shares its memory if it was opened for writing."""

    def __init__(self, torch: ModuleType, tensor: Foreign) -> None:
        dtype = np.dtype(str(tensor.dtype).removeprefix("torch."))
        self.tensor = tensor  # keeps the memory
        self.__array_interface__ = {
            "version": 3,
            "shape": tuple(tensor.shape),
            "strides": tuple([stride * dtype.itemsize for stride in tensor.stride()]),
            "typestr": dtype.str,
            "data": (address_of(torch)(tensor), True),
        }


def reading_array_of(torch: ModuleType, tensor: Foreign) -> Array:
    """Return a tensor as a read-only NumPy array. After ``tensor.numpy()``, PyTorch could not resize its memory."""
    return np.asarray(_TensorMemory(torch, tensor.detach()))


@cache
def address_of(torch: ModuleType) -> Callable[[Foreign], int]:
    """Return the function that returns the address of a tensor which is only read.

    ``data_ptr`` would first copy memory that several tensors share until one is written to.
    """

    def address(tensor: Foreign) -> int:
        storage: int = torch._C._data_address(tensor)
        begin: int = tensor.storage_offset() * tensor.element_size()
        return storage + begin

    const: Callable[[Foreign], int] = getattr(torch.Tensor, "const_data_ptr", address)  # not in PyTorch 2.6
    return const


def _unshared(torch: ModuleType, tensor: Foreign) -> None:
    tensor.data_ptr()  # PyTorch copies memory that several tensors share


def _like(torch: ModuleType, tensor: Foreign) -> Callable[[Array], Foreign]:
    return tensor_of  # does not refer to the module, so that objects with this function can be pickled


def tensor_of(array: Array) -> Foreign:
    """Return a tensor that shares an array's memory."""
    torch, fmt = TORCH.loaded, of_dtype(array.dtype)
    if fmt is not None and fmt.is_extension:
        return torch.from_numpy(array.view(fmt.bits)).view(getattr(torch, fmt.dtype_name))
    return torch.from_numpy(array)


def _written(torch: ModuleType, tensor: Foreign) -> None:
    """Increment the tensor's version, so that a backward pass that has saved the tensor detects the change."""
    if not tensor.is_inference():
        torch.autograd.graph.increment_version(tensor)


def _detached(torch: ModuleType, tensor: Foreign) -> Foreign:
    return tensor.detach()


def _stands_for_others(torch: ModuleType, tensor: Foreign) -> bool:
    return type(tensor).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__


def _is_traced(torch: ModuleType, tensor: Foreign) -> bool:
    if torch.compiler.is_compiling():  # tested first, because torch.compile cannot trace the other tests
        return True
    return (
        torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.PROXY) is not None
        or torch._C._dispatch_tls_is_dispatch_key_included(torch._C.DispatchKey.PreDispatch)
        or torch._C._get_tracing_state() is not None
    )


def _has_tangent(torch: ModuleType, tensor: Foreign) -> bool:
    forward = torch.autograd.forward_ad
    return forward._current_level >= 0 and forward.unpack_dual(tensor).tangent is not None


_RECORDED = "they would be lost; convgrad.torch has the operators with gradients, {name}.detach() removes them"
_REFUSED = (
    Refusal(
        _is_traced,
        "D8",
        "{name} must not be traced: the result would be a constant of the trace; convgrad.torch has the operators "
        "that can be compiled, torch.compiler.disable leaves a call as it is",
    ),
    Refusal(  # in functionalize, the memory of a wrapped tensor has arbitrary values
        lambda torch, tensor: torch._C._functorch.is_functorch_wrapped_tensor(tensor),
        "D8",
        "{name} must be a tensor of its own; got one that a transform of torch.func wraps; convgrad.torch has the "
        "operators that can be transformed",
    ),
    Refusal(
        lambda torch, tensor: tensor.requires_grad and torch.is_grad_enabled(),
        "D8",
        "{name} must not require gradients while they are recorded: " + _RECORDED,
    ),
    Refusal(_has_tangent, "D8", "{name} must have no tangents: " + _RECORDED),
)
ELSEWHERE = Refusal(
    lambda torch, tensor: not tensor.is_cpu,
    "D1",
    "{name} must lie in CPU memory; got a tensor on {got.device}; copy it there first: {name}.cpu(); convgrad.torch "
    "also computes on CUDA devices",
)
_REFUSED_THERE = (
    Refusal(
        _stands_for_others,
        "D8",
        "{name} must have memory of its own; got a {got.__class__.__name__}, which stands for other tensors; "
        "convgrad.torch has the operators that can be compiled",
    ),
    Refusal(
        lambda torch, tensor: torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.FAKE) is not None,
        "D8",
        "{name} must not be given under FakeTensorMode, which computes nothing; convgrad.torch has the operators that "
        "can be compiled",
    ),
    ELSEWHERE,
    Refusal(
        lambda torch, tensor: tensor.is_nested,
        "D1",
        "{name} must be one dense tensor; got a nested one. Use {name}.to_padded_tensor(0)",
    ),
    Refusal(
        lambda torch, tensor: tensor.layout is not torch.strided,
        "D1",
        "{name} must be dense; got layout {got.layout}. Use {name}.to_dense()",
    ),
    Refusal(
        lambda torch, tensor: tensor.is_quantized,
        "D1",
        "{name} must not be quantized; got {got.dtype}. Use {name}.dequantize()",
    ),
    Refusal(
        lambda torch, tensor: tensor._is_zerotensor() or tensor.untyped_storage().nbytes() == 0,
        "D1",
        "{name} must lie in memory; got a {got.__class__.__name__} that has none",
    ),
    Refusal(
        lambda torch, tensor: (
            (tensor.is_complex() or tensor.is_floating_point()) and tensor.dtype not in formats_of(torch)
        ),
        "T1",
        f"{{name}} must be an array of {LISTED}; got {{got.dtype}}",
    ),
)
_NOT_WRITTEN = (
    Refusal(
        lambda torch, tensor: tensor.requires_grad,
        "D8",
        "{name} must not require gradients: none would be recorded of what is written to it; "
        "{name}.detach() may be written to",
    ),
    Refusal(
        lambda torch, tensor: tensor.is_neg() or tensor.is_conj(),
        "D3",
        "{name} must be writable; got a tensor whose signs are pending: its memory holds other values",
    ),
)

TORCH = Library(
    "torch",
    "Tensor",
    "torch.",
    array_of,
    _like,
    _written,
    _detached,
    _REFUSED,
    _NOT_WRITTEN,
    _REFUSED_THERE,
    _unshared,
    OPENMP,
)
