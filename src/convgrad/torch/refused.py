"""Error messages of layers with the names of PyTorch's functions, tensors and arguments."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NoReturn

import torch
from torch import Tensor

from convgrad.arrays.libraries.library import Refusal
from convgrad.arrays.libraries.torch import ELSEWHERE, TORCH
from convgrad.errors import ConvgradError
from convgrad.spec.rules import refuse
from convgrad.torch.errors import runtime_error
from convgrad.torch.problems import FORMATS

Words = tuple[tuple[str, str], ...]
TYPES = (*FORMATS, torch.complex64, torch.complex128)  # types of a layer's tensors

# Patterns in the operators' messages, and their replacements. If two patterns match, the first is used.
_COMMON = (
    (r"\bweights\b", "weight"),
    (r"\bstrides\b", "stride"),
    (r"\bdilations\b", "dilation"),
    (r"\bpads_begin \+ pads_end that fit\b", "Twice the padding that fits"),
    (r"\bpads_begin\b", "padding"),
    (r"\bpads_end\b", "padding"),
    (r" \((?:OIX|IOX)\)", ""),  # PyTorch has only one layout of weights
    (r"\. Th(?:ese shapes|ey would) fit .*(?= \[)", ""),  # so do not suggest another layout
    (r" \(the functions also accept one integer\)", " or one for all"),
)
LAYER = ((r"\bsrc\b", "input"), (r"\bdst\b", "the output"), *_COMMON)
OF_ANY_AXES = ((r"\bpads_begin\b", "padding_begin"), (r"\bpads_end\b", "padding_end"), *LAYER)


# The refusals of tensors for functions on NumPy arrays, with CUDA devices admitted.
_ELSEWHERE = Refusal(
    lambda torch, tensor: not (tensor.is_cpu or tensor.is_cuda),
    "D1",
    "{name} must be in CPU memory or on a CUDA device; got a tensor on {got.device}",
)
_NO_MEMORY = tuple(_ELSEWHERE if refusal is ELSEWHERE else refusal for refusal in TORCH.refused_there)


def of_gradient(**names: str) -> Words:
    """Return the replacements in messages about a gradient; ``names`` maps the operator's names to PyTorch's names."""
    return *((rf"\b{ours}\b", theirs) for ours, theirs in names.items()), *_COMMON


def refused(name: str, error: Exception, tensors: Mapping[str, Tensor | None], words: Words) -> NoReturn:
    """Raise ``error`` again, with the names of PyTorch's function ``name`` and of its arguments.

    convgrad's errors become RuntimeErrors too. Errors of other libraries are raised unchanged unless a tensor is the
    cause. Call this function in an ``except`` block.
    """
    try:
        _refused(name, error, tensors, words)
    except ConvgradError as refusal:
        raise runtime_error(refusal) from None


def _refused(name: str, error: Exception, tensors: Mapping[str, Tensor | None], words: Words) -> NoReturn:
    operands: dict[str, Tensor] = {}
    for argument, tensor in tensors.items():
        if isinstance(tensor, torch.Tensor):
            operands[argument] = tensor
        elif tensor is not None or argument != "bias":  # T1
            refuse("T1", name, f"{argument} must be a PyTorch tensor; got {type(tensor).__name__}")
    if not isinstance(error, ConvgradError):
        _no_memory(name, operands)
        raise  # noqa: PLE0704
    operator, _, sentence = str(error).partition(": ")
    if " " in operator:  # a message of the CUDA driver, which names no operator
        sentence = str(error)
    if sentence.endswith(("[T1]", "[T2]")):
        check_types(name, operands)
    pattern = "|".join(f"({ours})" for ours, _ in words)
    sentence = re.sub(pattern, lambda match: words[(match.lastindex or 0) - 1][1], sentence)
    raise type(error)(f"{name}: {sentence}") from None


def _no_memory(name: str, operands: Mapping[str, Tensor]) -> None:
    """Raise by rule D1 for the first tensor that is not dense on the CPU or a GPU. Ignore functorch's wrapped ones."""
    for argument, tensor in operands.items():
        if torch._C._functorch.is_functorch_wrapped_tensor(tensor):
            continue
        try:
            refusal = TORCH.refusal(tensor, _NO_MEMORY)
        except Exception:  # a tensor of another class may refuse every question; the first error then remains
            continue
        if refusal and refusal.rule == "D1":  # D1
            refuse("D1", name, refusal.words.format(name=argument, got=tensor))


def check_types(name: str, operands: Mapping[str, Tensor | None]) -> None:
    """Raise by rule T1 if a tensor's type is unsupported, and by rule T2 if the tensors' types differ."""
    dtypes = {argument: tensor.dtype for argument, tensor in operands.items() if isinstance(tensor, torch.Tensor)}
    for argument, dtype in dtypes.items():
        if dtype not in TYPES:  # T1
            refuse("T1", name, f"{argument} must be a tensor of {', '.join(map(str, TYPES))}; got {dtype}")
    if len(set(dtypes.values())) > 1:  # T2
        got = ", ".join(f"{argument} {dtype}" for argument, dtype in dtypes.items())
        refuse("T2", name, f"all tensors must have one type; got {got}")
