"""The hash of a model's parameters and buffers."""

from __future__ import annotations

import hashlib
import json
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.parameter import is_lazy

from convgrad.arrays.libraries.torch import reading_array_of
from convgrad.errors import InvalidDataTypeError
from convgrad.words import counted

Tensors: TypeAlias = torch.nn.Module | Tensor | Mapping[str, Any] | Iterable[Tensor]
Bytes = NDArray[np.uint8]
_SHOWN = 8  # max number of tensors in a warning


def fingerprint(model: Tensors) -> str:
    """Return the SHA-256 hash of the names, types, shapes and bytes of a model's tensors.

    The tensors are hashed in the order of their names. Tensors without names are called "0", "1" and so on. The hashed
    bytes of a tensor are a line of JSON, such as ``["layer.weight", "float32", [8, 3, 3, 3]]``, and then its elements
    in C order, little endian. Devices, strides and the order of registration do not matter. So two models have the same
    hash if and only if names, types, shapes and all bits agree. Tensors outside the ``state_dict``, such as buffers
    that are not persistent, are not included. The result has 64 hexadecimal digits; compare the first 12 by eye.

    A dictionary may contain others and lists, such as an optimizer's ``state_dict``. A tensor then has a name such as
    ``state.0.exp_avg``, and a number, text or None is hashed as the JSON of its name, type and ``repr``.

    Args:
        model: A module, a tensor, an iterable of tensors, or a ``state_dict`` of a model or an optimizer.

    Warns:
        RuntimeWarning: Values are NaN or infinite. Two runs that are ruined in the same way have the same hash,
            although neither result is right. The warning names the tensors and counts these values.

    Raises:
        InvalidDataTypeError: A value is not a tensor, or its bytes cannot be read. Tensors without readable bytes are
            on the meta device, sparse, nested, quantized, fake, or in a lazy module that was never called.

    >>> fingerprint({"weight": torch.tensor([1.0, 2.0])})[:12]
    '1ef39e54f98b'
    """
    digest, ruined = digest_of(model)
    if ruined:
        more = f" and {len(ruined) - _SHOWN} more tensors" if len(ruined) > _SHOWN else ""
        warnings.warn(
            f"fingerprint: {', '.join(ruined[:_SHOWN])}{more}. Models that are ruined in the same way have the same"
            " hash, so check the values before you compare hashes",
            RuntimeWarning,
            stacklevel=2,
        )
    return digest


def digest_of(model: Tensors) -> tuple[str, list[str]]:
    """Return the hash of a model's tensors, and a text for each tensor with values that are not finite."""
    digest, ruined = hashlib.sha256(), []
    for name, tensor in sorted(_named(model).items()):
        if not isinstance(tensor, torch.Tensor):
            digest.update(json.dumps([name, type(tensor).__name__, repr(tensor)]).encode() + b"\n")
            continue
        kind = str(tensor.dtype).removeprefix("torch.")
        try:
            values = _on_cpu(tensor)
            data, counts = _bytes(values), _not_finite(values)
            line = json.dumps([name, kind, list(tensor.shape)])
        except (RuntimeError, BufferError, TypeError, ValueError) as error:  # fake tensors, and memory that was freed
            raise _unreadable(name, f"a {type(tensor).__name__}: {str(error).strip()}") from error
        digest.update(line.encode() + b"\n")
        digest.update(data)
        if counts:
            ruined.append(f"{name!r} has {counts}")
    return digest.hexdigest(), ruined


def _named(model: Tensors) -> dict[str, object]:
    """Return a model's tensors and other values by name; raise if a value is a tensor without readable bytes."""
    if isinstance(model, torch.nn.Module):
        model = model.state_dict()
    elif isinstance(model, torch.Tensor):
        model = [model]
    if not isinstance(model, Iterable):
        raise InvalidDataTypeError(
            f"fingerprint: model must be a module, a state_dict or tensors; got {type(model).__name__}"
        )
    plain = _PLAIN if isinstance(model, Mapping) else ()
    names = map(str, range(sys.maxsize))
    named = dict(_leaves(model) if isinstance(model, Mapping) else zip(names, model, strict=False))
    for name, value in named.items():
        reason = _why_not(name, value)
        if reason and not isinstance(value, plain):
            raise _unreadable(name, reason)
    return named


_PLAIN = int, float, str, type(None)


def _leaves(values: Mapping[Any, object], path: str = "") -> Iterator[tuple[Any, object]]:
    """Yield the values of a dictionary that has dictionaries and lists, with their names."""
    for name, value in values.items():
        place = f"{path}{name}" if path or isinstance(value, Mapping | list | tuple) else name
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{place}.")
        elif isinstance(value, list | tuple):
            yield from _leaves(dict(enumerate(value)), f"{place}.")
        else:
            yield place, value


def _unreadable(name: str, got: str) -> InvalidDataTypeError:
    return InvalidDataTypeError(f"fingerprint: {name} must be a tensor whose bytes can be read; got {got}")


def has_bytes(value: object) -> bool:
    """Return whether a value is a tensor of a kind whose bytes can be read."""
    return _why_not("", value) is None


def _why_not(name: object, value: object) -> str | None:
    """Return the kind of a value whose bytes cannot be read; None if they can be read."""
    if not isinstance(value, torch.Tensor):
        return type(value).__name__
    return next((words for words, holds in _REFUSED.items() if holds(name, value)), None)


_REFUSED: dict[str, Callable[[object, Tensor], bool]] = {
    "a tensor whose name is not a string": lambda name, tensor: not isinstance(name, str),
    "a lazy module's tensor, which has no shape before the module's first call": lambda _, tensor: is_lazy(tensor),
    "a tensor on the meta device, which has no bytes": lambda _, tensor: tensor.is_meta,
    "a nested tensor": lambda _, tensor: tensor.is_nested,
    "a sparse or blocked tensor": lambda _, tensor: tensor.layout != torch.strided,
    "a quantized tensor, whose scale is not in its bytes": lambda _, tensor: tensor.is_quantized,
    "a tensor of zeros without memory": lambda _, tensor: tensor._is_zerotensor(),
}


def _on_cpu(tensor: Tensor) -> Tensor:
    """Return the values of a tensor as contiguous memory of the CPU with one axis."""
    if tensor.numel() and not tensor.untyped_storage().nbytes():
        raise BufferError("its memory was freed")
    values = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()
    return values.as_strided((values.numel(),), (1,))  # an axis of size 1 may have any stride


def _bytes(values: Tensor) -> bytes | memoryview:
    """Return the elements of a tensor from `_on_cpu` in C order, little endian, as bytes."""
    number = values.real if values.is_complex() else values  # the bytes of each part are reversed separately
    array = little_endian(reading_array_of(torch, values.view(torch.uint8)), number.element_size(), sys.byteorder)
    return array if isinstance(array, bytes) else array.data


def _not_finite(tensor: Tensor) -> str:
    """Return the counts of NaN and of infinite elements as text; "" if there are none.

    A complex element with NaN in a part is NaN. Types of 8 bits are converted first, because PyTorch does not compare
    all of them. A type of 4 bits has neither NaN nor infinities.
    """
    if not (tensor.is_floating_point() or tensor.is_complex()) or "float4" in str(tensor.dtype):
        return ""
    values = tensor.float() if tensor.element_size() == 1 else tensor
    nans = values.isnan()
    counts = {"NaN": int(nans.sum()), "infinite": int((values.isinf() & ~nans).sum())}
    text = " and ".join(f"{count} {word}" for word, count in counts.items() if count)
    return f"{text} of {counted(tensor.numel(), 'value')}" if text else ""


def little_endian(array: Bytes, item_bytes: int, order: str) -> bytes | Bytes:
    """Return the bytes of an array as little endian; ``order`` is the present byte order, "little" or "big"."""
    return array if order == "little" else array.reshape(-1, item_bytes)[:, ::-1].tobytes()
