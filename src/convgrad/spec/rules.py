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
    ("O2", InvalidOpError, "The operator takes this number of operands."),
    ("O3", InvalidAttributeError, "Names in `needs`, `out` and `accumulate` are names of inputs."),
    # A: attributes
    ("A1", InvalidAttributeError, "The operator has every attribute that you pass."),
    ("A2", InvalidAttributeError, "An attribute has its type: integer, list of integers or string."),
    ("A3", InvalidAttributeError, "Every required attribute is given."),
    ("A4", InvalidAttributeError, "Strides, dilations and groups are at least 1. Pads are at least 0."),
    ("A5", InvalidAttributeError, "A string is one of the values of its attribute."),
    ("A6", InvalidShapeError, "A list has one value per spatial axis."),
    ("A7", InvalidAttributeError, "`weights_shape` is given as operand or attribute."),
    ("A8", InvalidAttributeError, "`dst_shape` is given, unless other attributes determine it."),
    ("A9", InvalidAttributeError, "`output_padding` is below the stride; if transposed, below max(stride, dilation)."),
    # T: types
    ("T1", InvalidDataTypeError, f"An operand is an array of {LISTED}."),
    ("T2", InvalidDataTypeError, "All operands have the same type."),
    ("T3", InvalidDataTypeError, "A shape operand contains integers."),
    ("T4", InvalidDataTypeError, "`dtype` is one of the types in T1, and f64 only for f64 operands."),
    ("T5", InvalidDataTypeError,
     "`out` is a PyTorch tensor or NumPy array of the result's type, in native byte order."),
    ("T6", InvalidDataTypeError, "Operands of a compiled call, and cotangents, have the expected type."),
    # G: geometry
    ("G1", InvalidShapeError, "All tensors have the same rank: the number of spatial axes + 2, at least 3."),
    ("G2", InvalidShapeError, "All batches have the same size."),
    ("G3", InvalidShapeError, "`groups` divides the channels of src and of dst."),
    ("G4", InvalidShapeError, "Data and weights have the same channels, multiplied by `groups` on the input side."),
    ("G5", InvalidShapeError, "No dimension of the weights is 0."),
    ("G6", InvalidShapeError, "The extents fit: O = floor((I + P - E)/s) + 1, or 0 if the kernel does not fit."),
    ("G7", InvalidShapeError, "The extents of a transposed operator fit: L = s(l - 1) + E - P + op."),
    ("G8", InvalidShapeError, "An output extent of a forward is at least 1. It is 0 if the input extent is 0."),
    ("G9", InvalidShapeError, "A shape is a 1-D list of non-negative integers, one per axis of the tensor."),
    ("G10", InvalidShapeError, "Extents and sizes in bytes fit into 63 bits."),
    ("G11", InvalidShapeError, "`bias` is 1-D and has one value per channel."),
    # D: arrays and options
    ("D1", UnsupportedError, "An operand is in memory that the CPU can read."),
    ("D2", InvalidShapeError, "`out` has the shape of the result."),
    ("D3", InvalidShapeError, "`out` is writable."),
    ("D4", InvalidShapeError, "`out` overlaps neither an operand nor itself."),
    ("D5", InvalidAttributeError, "`accumulate` is a bool. It is true only together with `out`."),
    ("D6", InvalidAttributeError, "`threads` is a positive integer, at most 4096."),
    ("D7", InvalidShapeError, "Operands of a compiled call, and cotangents, have the expected shape."),
    ("D8", UnsupportedError, "An operand is a plain array: it records no gradients and is not a tracer."),
    ("D9", InvalidAttributeError, "`max_error` is a number, at least 1."),
    ("D10", InvalidAttributeError, "`bound` is paths, norms or kappa."),
    ("D11", InvalidAttributeError, "`pool` is own or openmp."),
    ("D12", UnsupportedError, "`pool` is openmp only if the process has a usable OpenMP runtime."),
    ("D13", InvalidAttributeError, "`activation` is None, or relu for Convolution, ConvTranspose or BiasAdd."),
    # P: parts of a batch
    ("P1", InvalidOpError, "Only weight gradients and bias gradients have parts."),
    ("P2", UnsupportedError, "Parts need generated kernels and operands other than f64."),
    ("P3", InvalidAttributeError, "A part begins with a leaf: `first` is a multiple of the images per leaf."),
    ("P4", InvalidShapeError, "Parts are results of `partials` for the same problem. Only their images differ."),
    ("P5", InvalidShapeError, "Parts contain every image once. Only the last part may end inside a leaf."),
    # S: samples of a batch
    ("S1", InvalidShapeError, "`scale` has one value per image."),
    ("S2", InvalidAttributeError, "`max_norm` is a positive number."),
    # M: memory of a call in parts
    ("M1", InvalidAttributeError, "`memory` is a positive number of bytes, or a string that states one."),
    ("M2", InvalidAttributeError, "`memory` is enough for the smallest part of the call."),
    # K: checkpoints and progress of a call in parts
    ("K1", InvalidAttributeError, "`checkpoint` is a path. Forwards and data gradients need `out`, not accumulated."),
    ("K2", InvalidAttributeError, "`progress` is True or a callable that accepts a Progress."),
)  # fmt: skip

RULES = {row[0]: Rule(*row) for row in _ROWS}


def refuse(rule_id: str, operator: str, sentence: str) -> NoReturn:
    """Raise the error of a rule. Its message has the operator, the condition, the given value and the rule's id."""
    rule = RULES[rule_id]
    raise rule.error(f"{operator}: {sentence} [{rule.id}]")


def hinted(error: ConvgradError, hint: str) -> ConvgradError:
    """Return the error of a rule with a hint inserted before the rule's id.

    >>> print(hinted(InvalidShapeError("Convolution: src must fit; got 3 [G4]"), "; 4 would"))
    Convolution: src must fit; got 3; 4 would [G4]
    """
    sentence, _, rule_id = error.args[0].rpartition(" [")
    return type(error)(f"{sentence}{hint} [{rule_id}")
