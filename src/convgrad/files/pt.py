"""The .pt format of torch.save: one tensor, or tensors by key. Code in the file's pickle is never run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from pickle import UnpicklingError
from types import ModuleType
from typing import IO, Any

import numpy as np

from convgrad.array_types import Array
from convgrad.arrays.libraries.torch import array_of, tensor_of
from convgrad.errors import FileError
from convgrad.files.member import Member, Members

ALONE = "output"  # the key of an array without a key, which is saved as a single tensor

UNMAPPED = "only torch can find a tensor in a .pt file; use .safetensors"


@contextmanager
def members(file: IO[bytes], path: Path) -> Iterator[Members]:
    """Yield the tensors of a file by key. A tensor's data remain on disk until the tensor is read."""
    torch = package()
    loaded = _loaded(torch, path)
    tensors = {"": loaded} if isinstance(loaded, torch.Tensor) else loaded
    if not isinstance(tensors, dict):
        raise FileError(f"{path}: must hold a tensor, or tensors by key; got {type(tensors).__name__}")
    members_by_key = {}
    for key, tensor in tensors.items():
        if not isinstance(key, str) or not isinstance(tensor, torch.Tensor):
            raise FileError(f"{path}: must hold tensors by key; got {key!r:.80} with {type(tensor).__name__}")
        members_by_key[key] = Member(
            tensor.numel() * tensor.element_size(), partial(_array, tensor, torch), why_not=UNMAPPED
        )
    yield members_by_key


def _loaded(torch: ModuleType, path: Path) -> Any:
    """Return what a file holds. PyTorch's own error advises to run the code of the file, so it is replaced."""
    try:
        return torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except UnpicklingError:
        safe = "Save a tensor, or tensors by key such as model.state_dict(), and not a module or other objects"
        raise FileError(f"{path}: must hold only tensors, because code in a pickle is never run. {safe}") from None
    except RuntimeError as error:
        if "_use_new_zipfile_serialization" not in str(error):
            raise
        raise FileError(f"{path}: must be in the zip format of torch.save, its default; it is not") from None


def _array(tensor: Any, torch: ModuleType) -> Array:
    return np.array(array_of(torch, tensor.detach().contiguous()))


def write(file: IO[bytes], arrays: Mapping[str, Array]) -> None:
    """Write arrays as tensors by key. If the only key is ALONE, write a single tensor without a key."""
    torch = package()
    tensors = {key: tensor_of(np.array(array, order="C")) for key, array in arrays.items()}
    torch.save(tensors[ALONE] if tensors.keys() == {ALONE} else tensors, file)


def package() -> ModuleType:
    """Return torch, or raise FileError with the command that installs it."""
    try:
        import torch  # noqa: PLC0415 - an extra, needed for these files only
    except ImportError as error:
        raise FileError(".pt files need torch: pip install torch") from error
    module: ModuleType = torch
    return module
