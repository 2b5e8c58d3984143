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
    ("O1", InvalidOpError, "the operator is one of the operator table"),
    ("O2", InvalidOpError, "the number of operands is one the operator takes"),
    ("O3", InvalidAttributeError, "what is asked for or given by name belongs to an input, or to its gradient"),
    # A: attributes
    ("A1", InvalidAttributeError, "every attribute is one of the operator's"),
    ("A2", InvalidAttributeError, "an attribute has the type of the table: int, list of int, string; bool is no int"),
    ("A3", InvalidAttributeError, "a required attribute is given"),
    ("A4", InvalidAttributeError, "an integer attribute lies in its range: strides, dilations, groups > 0; pads >= 0"),
    ("A5", InvalidAttributeError, "a string attribute is one of its choices"),
    ("A6", InvalidShapeError, "a list attribute has one value per spatial axis"),
    ("A7", InvalidAttributeError, "weights_shape is given, as operand or attribute: it cannot be inferred"),
    ("A8", InvalidAttributeError, "dst_shape is given, or follows from output_padding, auto_pad same, or stride 1"),
    ("A9", InvalidAttributeError, "output_padding < stride in a data gradient, < max(stride, dilation) transposed"),
    # T: types
    ("T1", InvalidDataTypeError, f"an operand is an array of {LISTED}"),
    ("T2", InvalidDataTypeError, "all operands have one type"),
    ("T3", InvalidDataTypeError, "a shape operand holds integers"),
    ("T4", InvalidDataTypeError, f"dtype is {LISTED}; f64 only from f64 operands"),
    ("T5", InvalidDataTypeError, "out is a PyTorch tensor or a NumPy array of the output's type in native byte order"),
    ("T6", InvalidDataTypeError, "operands of a compiled call have the type it was made for, a cotangent its result's"),
    # G: geometry
    ("G1", InvalidShapeError, "all tensors have one rank, the spatial axes + 2, with at least one spatial axis"),
    ("G2", InvalidShapeError, "batches agree"),
    ("G3", InvalidShapeError, "groups divides the channels on both sides"),
    ("G4", InvalidShapeError, "channels of the data are the channels of the weights (x groups on the input side)"),
    ("G5", InvalidShapeError, "weights have no empty dimension"),
    ("G6", InvalidShapeError, "convolution extents: O = floor((I + P - E)/s) + 1, or 0 where the kernel does not fit"),
    ("G7", InvalidShapeError, "transposed extents: L = s(l - 1) + E - P + op"),
    ("G8", InvalidShapeError, "a forward output extent is at least 1, or 0 where the input extent is 0"),
    ("G9", InvalidShapeError, "a shape is a 1-D list of as many non-negative integers as the tensor has axes"),
    ("G10", InvalidShapeError, "extents and sizes in bytes fit 63 bits"),
    ("G11", InvalidShapeError, "bias is 1-D with one value per channel"),
    # D: arrays and options
    ("D1", UnsupportedError, "an operand lies in memory the CPU can read"),
    ("D2", InvalidShapeError, "out has the output's shape"),
    ("D3", InvalidShapeError, "out is writable"),
    ("D4", InvalidShapeError, "out overlaps neither an operand nor itself"),
    ("D5", InvalidAttributeError, "accumulate is a bool, and true only with out"),
    ("D6", InvalidAttributeError, "threads is a positive integer, 4096 at most"),
    ("D7", InvalidShapeError, "operands of a compiled call have the shapes it was made for, a cotangent its result's"),
    ("D8", UnsupportedError, "an operand is an array: no gradients are recorded of it, and it stands for no other"),
    ("D9", InvalidAttributeError, "max_error is a number, 1 at least"),
    ("D10", InvalidAttributeError, "bound is paths, norms or kappa"),
    ("D11", InvalidAttributeError, "pool is own or openmp"),
    ("D12", UnsupportedError, "pool is openmp only where the process has a runtime of OpenMP that can be used"),
    ("D13", InvalidAttributeError, "activation is None or relu, of Convolution, ConvTranspose or BiasAdd"),
    # P: parts of a batch
    ("P1", InvalidOpError, "pieces are of an operator that sums over the batch: a weight or bias gradient"),
    ("P2", UnsupportedError, "sums in pieces have an order: operands other than f64 on the generated engine"),
    ("P3", InvalidAttributeError, "a piece begins with a leaf of the batch's tree, at a multiple of its images"),
    ("P4", InvalidShapeError, "parts are what partials returns, of one problem but for their images"),
    ("P5", InvalidShapeError, "parts have every image once; nothing follows one that ends inside a leaf"),
    # S: samples of a batch
    ("S1", InvalidShapeError, "scale has one value per image"),
    ("S2", InvalidAttributeError, "max_norm is a positive number"),
    # M: memory of a call in parts
    ("M1", InvalidAttributeError, "memory is a positive number of bytes, or a text of one"),
    ("M2", InvalidAttributeError, "memory holds the smallest piece that a call can be cut into"),
    # K: checkpoints and progress of a call in parts
    ("K1", InvalidAttributeError, "a checkpoint is a path; where a call writes piece by piece, with out, not added to"),
    ("K2", InvalidAttributeError, "progress is True, or a callable that takes how far a call is"),
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
