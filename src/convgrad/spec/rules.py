"""The rules that every call must follow: their ids, statements, and the errors for breaking them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn

from convgrad.errors import (
    ConvgradError,
    InvalidAttributeError,
    InvalidDataTypeError,
    InvalidOpError,
    InvalidShapeError,
    UnsupportedError,
)
from convgrad.formats import LISTED


@dataclass(frozen=True)
class Rule:
    """A rule with its id, such as "G4", the error for breaking it, and its statement."""

    id: str
    error: type[ConvgradError]
    statement: str


_ROWS = (
    # O: the operator and its operands
    ("O1", InvalidOpError, "The operator is in the [table of operators](operators.md)."),
    ("O2", InvalidOpError, "The call has as many operands as the operator takes."),
    ("O3", InvalidAttributeError, "The names in `needs`, `out` and `accumulate` are names of the layer's inputs."),
    # A: attributes
    ("A1", InvalidAttributeError, "The operator has every attribute that you pass."),
    ("A2", InvalidAttributeError, "The value of an attribute has the right type: integer, list of integers or string."),
    ("A3", InvalidAttributeError, "You pass every required attribute."),
    ("A4", InvalidAttributeError, "Strides, dilations and groups are at least 1. Pads are at least 0."),
    ("A5", InvalidAttributeError, "A string is one of the values that its attribute allows."),
    ("A6", InvalidShapeError, "A list has one value per spatial axis."),
    ("A7", InvalidAttributeError, "You pass `weights_shape`, as an operand or an attribute."),
    ("A8", InvalidAttributeError, "You pass `dst_shape`, unless other attributes determine it."),
    ("A9", InvalidAttributeError,
     "`output_padding` is below the stride or, for transposed operators, below max(stride, dilation)."),
    # T: types
    ("T1", InvalidDataTypeError, f"An operand is an array of {LISTED}."),
    ("T2", InvalidDataTypeError, "All operands have the same type."),
    ("T3", InvalidDataTypeError, "A shape operand contains integers."),
    ("T4", InvalidDataTypeError, "`dtype` is one of the types in T1. It is f64 only if the operands are f64."),
    ("T5", InvalidDataTypeError,
     "`out` is a PyTorch tensor or NumPy array of the result's type, in native byte order."),
    ("T6", InvalidDataTypeError, "The operands of a compiled call and cotangents have the expected type."),
    # G: geometry
    ("G1", InvalidShapeError, "All tensors have the same rank, at least 3: the number of spatial axes + 2."),
    ("G2", InvalidShapeError, "The batch size is the same in all tensors."),
    ("G3", InvalidShapeError, "`groups` divides the number of channels of src and of dst."),
    ("G4", InvalidShapeError,
     "Data has as many channels as the weights, whose input channels are first multiplied by `groups`."),
    ("G5", InvalidShapeError, "No dimension of the weights is 0."),
    ("G6", InvalidShapeError, "The extents fit: O = floor((I + P - E)/s) + 1, or 0 if the kernel does not fit."),
    ("G7", InvalidShapeError, "The extents of a transposed operator fit: L = s(l - 1) + E - P + op."),
    ("G8", InvalidShapeError, "Each output extent of a forward pass is at least 1, or 0 if the input extent is 0."),
    ("G9", InvalidShapeError, "A shape is a 1-D list of non-negative integers, one per axis of the tensor."),
    ("G10", InvalidShapeError, "Extents and sizes in bytes fit into 63 bits."),
    ("G11", InvalidShapeError, "`bias` is 1-D and has one value per channel."),
    # D: arrays and options
    ("D1", UnsupportedError, "The CPU can read the memory of all operands, or all operands and `out` are on one GPU."),
    ("D2", InvalidShapeError, "`out` has the shape of the result."),
    ("D3", InvalidShapeError, "`out` is writable."),
    ("D4", InvalidShapeError, "`out` overlaps neither an operand nor itself."),
    ("D5", InvalidAttributeError, "`accumulate` is a bool, and is true only if you pass `out`."),
    ("D6", InvalidAttributeError, "`threads` is a positive integer, at most 4096."),
    ("D7", InvalidShapeError, "The operands of a compiled call and cotangents have the expected shape."),
    ("D8", UnsupportedError, "An operand is a plain array: it records no gradients and is not a tracer."),
    ("D9", InvalidAttributeError, "`max_error` is at least 1."),
    ("D10", InvalidAttributeError, "`bound` is \"paths\", \"norms\" or \"kappa\"."),
    ("D11", InvalidAttributeError, "`pool` is \"own\" or \"openmp\"."),
    ("D12", UnsupportedError, "`pool` is \"openmp\" only if the process has a usable OpenMP runtime."),
    ("D13", InvalidAttributeError, "`activation` is None or, for Convolution, ConvTranspose and BiasAdd, \"relu\"."),
    # P: parts of a batch
    ("P1", InvalidOpError, "Only weight gradients and bias gradients have parts."),
    ("P2", UnsupportedError, "Parts need generated kernels and operands of a type other than f64."),
    ("P3", InvalidAttributeError, "A part begins with a leaf: `first` is a multiple of the images per leaf."),
    ("P4", InvalidShapeError, "Parts are results of `partials` for problems that differ only in their images."),
    ("P5", InvalidShapeError,
     "Together, the parts contain every image once. Only the last part may end inside a leaf."),
    # B: same bits of a training step
    ("B1", UnsupportedError,
     "`same_bits` needs PyTorch 2.9 or newer, and no other library that replaces the same operators."),
    ("B2", UnsupportedError,
     "In `same_bits`, an operator has a specified order of its sums, or never varies, unless `strict=False`."),
    # S: samples of a batch
    ("S1", InvalidShapeError, "`scale` has one value per image."),
    ("S2", InvalidAttributeError, "`max_norm` is a positive number."),
    # M: memory of a call in parts
    ("M1", InvalidAttributeError, "`memory` is a positive number of bytes, or a string such as \"1GB\"."),
    ("M2", InvalidAttributeError, "`memory` is enough for the smallest part of the call."),
    # K: checkpoints and progress of a call in parts
    ("K1", InvalidAttributeError,
     "`checkpoint` is a path. Forward passes and data gradients also need `out`, without `accumulate`."),
    ("K2", InvalidAttributeError, "`progress` is True or a callable that accepts a Progress."),
)  # fmt: skip

RULES = {row[0]: Rule(*row) for row in _ROWS}


def refuse(rule_id: str, operator: str, sentence: str) -> NoReturn:
    """Raise the error of a rule. Its message has the operator, the condition, the given value and the rule's id."""
    rule = RULES[rule_id]
    raise rule.error(f"{operator}: {sentence} [{rule.id}]")


def hinted(error: ConvgradError, hint: str) -> ConvgradError:
    """Return the error of a rule with a hint inserted before the rule's id, unless its message has a hint already.

    >>> print(hinted(InvalidShapeError("Convolution: src must fit; got 3 [G4]"), ". Use 4"))
    Convolution: src must fit; got 3. Use 4 [G4]
    >>> print(hinted(InvalidShapeError("Convolution: src must fit; got 3. Use 4 [G4]"), ". Use 5"))
    Convolution: src must fit; got 3. Use 4 [G4]
    """
    sentence, _, rule_id = error.args[0].rpartition(" [")
    if ". " in sentence:  # hints are sentences of their own, and two of them would contradict each other
        return error
    return type(error)(f"{sentence}{hint} [{rule_id}")
