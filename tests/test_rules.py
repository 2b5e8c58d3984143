"""Every rule: a call that breaks it, the class it raises, the words it says, and the legal values it lists."""

from __future__ import annotations

import re
import tracemalloc
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import convgrad
from convgrad import ConvgradError, InvalidAttributeError, InvalidShapeError, infer_shapes, run
from convgrad.spec.operators import OPERATORS
from convgrad.spec.rules import RULES

F32 = np.float32


@dataclass(frozen=True)
class Row:
    """A call that breaks a rule. Operands: a tuple is the shape of an f32 array, anything else is passed as it is.

    ``operator`` is a name, for run with strides and dilations of 1 where not given, or a function and its operator.
    """

    rule: str
    operator: str | tuple[Callable[..., Any], str]
    operands: Sequence[Any]
    attributes: dict[str, Any]
    fragments: tuple[str, ...] = field(hash=False)

    @property
    def name(self) -> str:
        return self.operator if isinstance(self.operator, str) else self.operator[1]

    def call(self) -> Any:
        operands = [np.ones(o, F32) if isinstance(o, tuple) else o for o in self.operands]
        if not isinstance(self.operator, str):
            return self.operator[0](*operands, **self.attributes)
        return run(self.operator, *operands, **(ones(self.operator, operands) | self.attributes))


def ones(operator: str, operands: Sequence[Any]) -> dict[str, Any]:
    if operator.startswith("Bias") or operator not in NAMES:
        return {}
    axes = max(operands[0].ndim - 2, 0) if operands and isinstance(operands[0], np.ndarray) else 1
    return {"strides": [1] * axes, "dilations": [1] * axes}


NAMES = {op.name for op in OPERATORS}
ALL_NAMES = ", ".join(dict.fromkeys(op.name for op in OPERATORS))

CONV, DATA, WEIGHTS = "Convolution", "ConvolutionBackwardData", "ConvolutionBackwardWeights"
TRANSPOSE, T_DATA, T_WEIGHTS = "ConvTranspose", "ConvTransposeBackwardData", "ConvTransposeBackwardWeights"
OLD_DATA, OLD_FILTERS, OLD_WEIGHTS = (
    "ConvolutionBackpropData-1",
    "ConvolutionBackpropFilters-1",
    "ConvolutionBackpropWeights-1",
)

X, W, Y = (1, 6, 1), (3, 1, 1), (1, 4, 1)  # src, weights, dst of a legal Convolution of strides 1
T_SRC, T_W, T_DST = (1, 3, 1), (3, 1, 1), (1, 7, 1)  # src, weights, dst of a legal ConvTranspose of strides 2

convolution = (convgrad.convolution, CONV)
backward_data = (convgrad.convolution_backward_data, DATA)
backward_weights = (convgrad.convolution_backward_weights, WEIGHTS)
backprop_data = (convgrad.convolution_backprop_data, OLD_DATA)
huge = 2**62


def read_only(shape: tuple[int, ...]) -> np.ndarray:
    array = np.zeros(shape, F32)
    array.flags.writeable = False
    return array


def overlapping_itself(shape: tuple[int, ...]) -> np.ndarray:
    return np.lib.stride_tricks.as_strided(np.zeros(1, F32), shape, (0,) * len(shape), writeable=True)


class OnGpu:
    """An object whose DLPack device is no CPU."""

    def __dlpack__(self, **_: Any) -> Any:
        raise AssertionError("not to be called")

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 1


SHARED = np.ones(X, F32)  # an operand and out at once

ROWS = [
    # O1, O2
    Row("O1", "Convolutoin", [X, W], {}, ("one of the table", "did you mean Convolution")),
    Row("O1", "ConvolutionBackwardFilter", [X], {}, ("did you mean", WEIGHTS)),
    Row("O1", "Convolution-2", [X], {}, ("Convolution-1",)),
    Row("O1", "?", [], {}, (f"did you mean {ALL_NAMES}?",)),
    Row("O2", CONV, [X], {}, ("src, weights, [bias]", "got 1")),
    Row("O2", CONV, [], {}, ("src, weights, [bias]", "got 0")),
    Row("O2", CONV, [X, W, (1,), (1,)], {}, ("got 4",)),
    Row("O2", convolution, [X, None], {}, ("got 1",)),
    Row("O2", T_DATA, [T_DST, T_W, [1, 3, 1]], {}, ("diff_dst, weights;", "got 3")),
    Row("O2", "BiasAddBackward", [Y, (1,)], {}, ("diff_dst;", "got 2")),
    Row("O2", OLD_FILTERS, [X, [3, 1, 1]], {}, ("input, filters_shape, output_delta", "got 2")),
    # A1
    Row("A1", CONV, [X, W], {"stride": [1]}, ("got stride", "did you mean strides?")),
    Row("A1", CONV, [X, W], {"output_padding": [0]}, ("got output_padding",)),
    Row("A1", CONV, [X, W], {"colour": 1}, ("got colour", "it has strides, pads_begin", "weights_format")),
    Row("A1", CONV, [X, W], {"colour": None}, ("got colour",)),
    Row("A1", "Convolution-1", [X, W], {"weights_format": "XIO"}, ("did you mean filter_format?",)),
    Row("A1", OLD_DATA, [Y, W], {"dst_shape": X}, ("did you mean output_shape?",)),
    Row("A1", "BiasAdd", [X, (1,)], {"strides": [1]}, ("got strides", "data_format")),
    # A2
    Row("A2", CONV, [X, W], {"strides": [1.0]}, ("strides must be a list of integers", "one per spatial axis", "1.0")),
    Row("A2", CONV, [X, W], {"strides": np.array([1.0])}, ("strides", "ndarray")),
    Row("A2", CONV, [X, W], {"strides": [True]}, ("strides", "[True] (list)")),
    Row("A2", CONV, [X, W], {"strides": np.array([True])}, ("strides", "ndarray")),
    Row("A2", CONV, [X, W], {"strides": 1}, ("strides must be a list", "got 1 (int)")),
    Row("A2", CONV, [X, W], {"strides": "1"}, ("strides must be a list", "'1' (str)")),
    Row("A2", CONV, [X, W], {"strides": np.ones((1, 1), int)}, ("strides", "ndarray")),
    Row("A2", CONV, [X, W], {"pads_begin": [None]}, ("pads_begin", "[None]")),
    Row("A2", CONV, [X, W], {"groups": True}, ("groups must be an integer", "True (bool)")),
    Row("A2", CONV, [X, W], {"groups": np.True_}, ("groups must be an integer",)),
    Row("A2", CONV, [X, W], {"groups": 1.0}, ("groups must be an integer", "1.0 (float)")),
    Row("A2", CONV, [X, W], {"groups": [1]}, ("groups must be an integer", "[1] (list)")),
    Row("A2", CONV, [X, W], {"auto_pad": 0}, ("must be one of none, same_upper, same_lower, valid", "0 (int)")),
    Row("A2", CONV, [X, W], {"data_format": b"NXC"}, ("data_format must be one of NXC, NCX", "bytes")),
    Row("A2", WEIGHTS, [X, Y], {"weights_shape": [3.0, 1, 1]}, ("weights_shape must be a list of integers;", "3.0")),
    Row("A2", WEIGHTS, [X, Y], {"weights_shape": 3}, ("weights_shape must be a list of integers", "3 (int)")),
    Row("A2", convolution, [X, W], {"strides": 1.0}, ("strides", "1.0 (float)")),
    Row("A2", convolution, [X, W], {"dilations": True}, ("dilations", "True (bool)")),
    # A3
    Row("A3", CONV, [X, W], {"strides": None}, ("strides is required", "a list of integers, one per spatial axis")),
    Row("A3", T_WEIGHTS, [T_SRC, T_DST, [3, 1, 1]], {"dilations": None}, ("dilations is required",)),
    # A4
    Row("A4", CONV, [X, W], {"strides": [0]}, ("strides must be positive", "got [0]")),
    Row("A4", CONV, [X, W], {"strides": [-1]}, ("strides must be positive", "got [-1]")),
    Row("A4", CONV, [X, W], {"strides": [2**63]}, ("below 2^63", str(2**63))),
    Row("A4", CONV, [X, W], {"dilations": [0]}, ("dilations must be positive", "got [0]")),
    Row("A4", CONV, [X, W], {"groups": 0}, ("groups must be positive", "got 0")),
    Row("A4", CONV, [X, W], {"groups": -2}, ("groups must be positive", "got -2")),
    Row("A4", CONV, [X, W], {"pads_begin": [-1]}, ("pads_begin must be non-negative", "[-1]", "cropping")),
    Row("A4", CONV, [X, W], {"pads_end": [-1]}, ("pads_end must be non-negative", "negative pads (cropping)")),
    Row("A4", CONV, [X, W], {"pads_end": [-1], "auto_pad": "valid"}, ("pads_end must be non-negative",)),
    Row("A4", TRANSPOSE, [T_SRC, T_W], {"output_padding": [-1]}, ("output_padding must be non-negative", "[-1]")),
    Row("A4", convolution, [X, W], {"pads_begin": -3}, ("pads_begin", "-3", "cropping")),
    # A5
    Row("A5", CONV, [X, W], {"data_format": "NHWC"}, ("must be one of NXC, NCX", "'NHWC'", "that layout is spelt NXC")),
    Row("A5", CONV, [X, W], {"data_format": "ncdhw"}, ("'ncdhw'", "that layout is spelt NCX here")),
    Row("A5", CONV, [X, W], {"data_format": "nxc"}, ("that layout is spelt NXC here",)),
    Row("A5", CONV, [X, W], {"data_format": "OIX"}, ("must be one of NXC, NCX; got 'OIX'",)),
    Row("A5", CONV, [X, W], {"weights_format": "HWIO"}, ("must be one of XIO, OIX", "that layout is spelt XIO here")),
    Row("A5", CONV, [X, W], {"weights_format": "OIHW"}, ("that layout is spelt OIX here",)),
    Row("A5", CONV, [X, W], {"weights_format": "IOX"}, ("must be one of XIO, OIX; got 'IOX'",)),
    Row("A5", TRANSPOSE, [T_SRC, T_W], {"weights_format": "IOHW"}, ("one of XOI, IOX", "is spelt IOX here")),
    Row("A5", TRANSPOSE, [T_SRC, T_W], {"weights_format": "OIX"}, ("'OIX'", "of the Convolution operators", "IOX")),
    Row("A5", TRANSPOSE, [T_SRC, T_W], {"weights_format": "XIO"}, ("of the Convolution operators", "XOI puts")),
    Row("A5", "ConvTranspose-1", [T_SRC, T_W], {"filter_format": "OIX"}, ("filter_format", "IOX puts (in_channels,")),
    Row("A5", CONV, [X, W], {"auto_pad": "same"}, ("none, same_upper, same_lower, valid", "'same'")),
    Row("A5", CONV, [X, W], {"auto_pad": ""}, ("none, same_upper, same_lower, valid", "''")),
    Row("A5", "BiasAdd", [X, (1,)], {"data_format": "NCHW"}, ("that layout is spelt NCX here",)),
    # A6
    Row("A6", CONV, [X, W], {"strides": [1, 1]}, ("strides must have one value per spatial axis, 1 here", "[1, 1]")),
    Row("A6", CONV, [X, W], {"strides": []}, ("strides must have one value per spatial axis, 1 here", "[]")),
    Row("A6", CONV, [(1, 6, 6, 1), (3, 3, 1, 1)], {"pads_begin": [1]}, ("pads_begin", "2 here; got [1]")),
    Row("A6", CONV, [X, W], {"pads_end": [0, 0], "auto_pad": "same_upper"}, ("pads_end", "1 here; got [0, 0]")),
    Row("A6", TRANSPOSE, [T_SRC, T_W], {"output_padding": [0, 0]}, ("output_padding", "1 here; got [0, 0]")),
    Row("A6", convolution, [X, W], {"strides": (1, 1)}, ("strides", "1 here; got [1, 1]")),
    # A7
    Row("A7", WEIGHTS, [X, Y], {}, ("weights_shape must be given, as operand or attribute", "got none")),
    Row("A7", T_WEIGHTS, [T_SRC, T_DST], {}, ("weights_shape must be given",)),
    Row("A7", OLD_FILTERS, [X, Y], {}, ("filter_shape must be given",)),
    Row("A7", OLD_WEIGHTS, [X, Y], {}, ("weights_shape must be given",)),
    Row("A7", backward_weights, [X, Y], {}, ("weights_shape must be given",)),
    # A8, in each of its ways
    Row("A8", DATA, [Y, W], {"strides": [2]}, ("dst_shape must be given, or give output_padding", "0: 9, 10 [A8]")),
    Row("A8", DATA, [Y, W], {"strides": [2], "auto_pad": "valid"}, ("give output_padding", "axis 0: 9, 10")),
    Row("A8", DATA, [Y, W], {"strides": [2], "auto_pad": "same_upper", "output_padding": [1]},
        ("leave output_padding out where E >= s", "axis 0: 7, 8")),
    Row("A8", DATA, [Y, W], {"auto_pad": "same_lower", "output_padding": [0]}, ("leave output_padding", "axis 0: 4")),
    Row("A8", DATA, [Y, W], {"strides": [4], "auto_pad": "same_upper"}, ("axis 0: 13, 14, 15, 16",)),
    Row("A8", DATA, [(1, 4, 4, 1), (3, 3, 1, 1)], {"strides": [1, 3]}, ("axis 0: 6; axis 1: 12, 13, 14",)),
    Row("A8", OLD_DATA, [Y, W], {"strides": [2]}, ("output_shape must be given, or give output_padding",)),
    Row("A8", DATA, [Y, W], {"strides": [20]}, ("axis 0: 63, 64, ... 82",)),
    Row("A8", backward_data, [Y, W], {"strides": 2}, ("dst_shape must be given", "axis 0: 9, 10")),
    # A9
    Row("A9", DATA, [Y, W], {"strides": [2], "output_padding": [2]}, ("less than the stride; got 2 and 2",)),
    Row("A9", DATA, [Y, W], {"output_padding": [1]}, ("on spatial axis 0", "less than the stride; got 1 and 1")),
    Row("A9", DATA, [Y, W], {"dilations": [5], "output_padding": [1]}, ("got 1 and 1",)),
    Row("A9", TRANSPOSE, [T_SRC, T_W], {"strides": [2], "output_padding": [2]}, ("max(stride, dilation) = 2; got 2",)),
    Row("A9", T_DATA, [T_DST, T_W], {"dilations": [3], "output_padding": [3]}, ("max(stride, dilation) = 3; got 3",)),
    Row("A9", T_WEIGHTS, [T_SRC, T_DST, [3, 1, 1]], {"strides": [2], "output_padding": [5]}, ("= 2; got 5",)),
    # T1 to T5
    Row("T1", CONV, [np.ones(X, np.int8), W], {}, ("src must be an array of f32, bf16, f16 or f64", "got int8",
                                                    "src.astype(numpy.float32) would do")),
    Row("T1", CONV, [X, np.ones(W, bool)], {}, ("weights must be", "got bool", "weights.astype")),
    Row("T1", CONV, [X, np.ones(W, complex)], {}, ("weights must be", "got complex128")),
    Row("T1", CONV, [X, W, np.ones(1, np.longdouble)], {}, ("bias must be",)),
    Row("T1", CONV, [[[[1], [2], [3]]], W], {}, ("src must be", "got int64")),
    Row("T1", CONV, [[[1.0], [2.0, 3.0]], W], {}, ("src must be an array; got list",)),
    Row("T1", CONV, ["text", W], {}, ("src must be",)),
    Row("T1", CONV, [None, W], {"strides": [1]}, ("src must be an array; got None",)),
    Row("T1", CONV, [np.ma.masked_array(np.ones(X, F32), False), W], {}, ("src must be a plain array; got a masked",)),
    Row("T2", CONV, [X, np.ones(W)], {}, ("all operands must have one type; got src f32, weights f64",)),
    Row("T2", CONV, [X, W, np.ones(1, np.float16)], {}, ("got src f32, weights f32, bias f16",)),
    Row("T2", OLD_FILTERS, [X, [3, 1, 1], np.ones(Y)], {}, ("input f32, output_delta f64",)),
    Row("T2", "Convolution-1", [X, [[[1.0]]]], {}, ("input f32, filter f64",)),
    Row("T3", WEIGHTS, [X, Y, [3.0, 1, 1]], {}, ("weights_shape must be a 1-D array of integers", "3.0")),
    Row("T3", WEIGHTS, [X, Y, np.array([3.0, 1, 1])], {}, ("weights_shape", "got f64 of shape (3,)")),
    Row("T3", WEIGHTS, [X, Y, np.ones((1, 3), int)], {}, ("weights_shape", "got int64 of shape (1, 3)")),
    Row("T3", WEIGHTS, [X, Y, 3], {}, ("weights_shape must be a 1-D array of integers",)),
    Row("T3", WEIGHTS, [X, Y, "311"], {}, ("weights_shape", "311")),
    Row("T3", WEIGHTS, [X, Y, [True, 1, 1]], {}, ("weights_shape", "True")),
    Row("T3", DATA, [Y, W, [1, None, 1]], {}, ("dst_shape", "None")),
    Row("T4", CONV, [X, W], {"dtype": "int8"}, ("dtype must be one of f32, bf16, f16, f64; got 'int8'",)),
    Row("T4", CONV, [X, W], {"dtype": int}, ("dtype must be one of", "int")),
    Row("T4", CONV, [X, W], {"dtype": 5}, ("dtype must be one of", "got 5")),
    Row("T4", CONV, [X, W], {"dtype": "f64"}, ("dtype f64 needs f64 operands", "f32")),
    Row("T4", CONV, [X, W], {"dtype": float}, ("dtype f64 needs f64 operands",)),
    Row("T5", CONV, [X, W], {"out": np.zeros(Y)}, ("out must be a NumPy array of f32, the output's type; got f64",)),
    Row("T5", CONV, [X, W], {"out": np.zeros(Y, F32), "dtype": "bf16"}, ("array of bf16", "got f32")),
    Row("T5", CONV, [X, W], {"out": np.zeros(Y, np.int32)}, ("got int32",)),
    Row("T5", CONV, [X, W], {"out": np.zeros(Y, ">f4")}, ("got f32 in foreign byte order",)),
    Row("T5", CONV, [X, W], {"out": [[[0.0]] * 4]}, ("NumPy array of f32", "got list")),
    # G1
    Row("G1", CONV, [(1, 6, 6, 1), W], {}, ("spatial axes + 2 and at least 3", "src of rank 4, weights of rank 3")),
    Row("G1", WEIGHTS, [X, (1, 4, 1, 1), [3, 1, 1]], {}, ("src of rank 3", "diff_dst of rank 4", "weights_shape of")),
    Row("G1", CONV, [X, (3, 1)], {}, ("src of rank 3, weights of rank 2",)),
    Row("G1", CONV, [X, (3,)], {}, ("src of rank 3, weights of rank 1",)),
    Row("G1", CONV, [X, ()], {}, ("src of rank 3, weights of rank 0",)),
    Row("G1", WEIGHTS, [X, (), [3, 1, 1]], {}, ("src of rank 3", "diff_dst of rank 0")),
    Row("G1", convolution, [(6, 1), (1, 1)], {}, ("at least 3; got src of rank 2",)),
    Row("G1", convolution, [(6,), W], {}, ("at least 3; got src of rank 1",)),
    Row("G1", convolution, [(), W], {}, ("at least 3; got src of rank 0",)),
    Row("G1", "BiasAdd", [(6,), (1,)], {}, ("a rank of at least 2", "of rank 1")),
    Row("G1", "BiasAddBackward", [()], {}, ("a rank of at least 2", "of rank 0")),
    # G2
    Row("G2", WEIGHTS, [X, (2, 4, 1), [3, 1, 1]], {}, ("src and diff_dst must have one batch; got 1 and 2",)),
    Row("G2", DATA, [Y, W, [0, 6, 1]], {}, ("dst_shape and diff_dst must have one batch; got 0 and 1",)),
    Row("G2", T_WEIGHTS, [(3, 3, 1), T_DST, [3, 1, 1]], {}, ("diff_dst and src must have one batch; got 1 and 3",)),
    Row("G2", OLD_FILTERS, [X, [3, 1, 1], (2, 4, 1)], {}, ("input and output_delta", "got 1 and 2")),
    # G3
    Row("G3", CONV, [(1, 6, 3), (3, 1, 4)], {"groups": 2}, ("groups must divide src channels; got 2 and 3",)),
    Row("G3", CONV, [(1, 6, 4), (3, 2, 3)], {"groups": 2}, ("groups must divide the channels of dst", "(3, 2, 3)")),
    Row("G3", WEIGHTS, [(1, 6, 4), (1, 4, 3), [3, 2, 3]], {"groups": 2}, ("divide diff_dst channels; got 2 and 3",)),
    Row("G3", DATA, [(1, 4, 4), (3, 1, 4), [1, 6, 3]], {"groups": 2}, ("divide dst_shape channels; got 2 and 3",)),
    Row("G3", TRANSPOSE, [(1, 3, 3), (3, 1, 3)], {"groups": 2}, ("groups must divide src channels; got 2 and 3",)),
    Row("G3", T_DATA, [(1, 7, 3), (3, 1, 4)], {"groups": 2}, ("groups must divide diff_dst channels; got 2 and 3",)),
    Row("G3", CONV, [(1, 6, 1), (3, 1, 1)], {"groups": huge}, (f"got {huge} and 1",)),
    # G4, with the hint that fits
    Row("G4", CONV, [(1, 6, 5), (3, 4, 2)], {}, ("src channels must be weights channels x groups = 4 x 1", "got 5",
                                                 "(3, 4, 2) (XIO)")),
    Row("G4", CONV, [(1, 6, 12), (3, 4, 2)], {"groups": 2}, ("= 4 x 2", "got 12")),
    Row("G4", CONV, [(1, 6, 1), (4, 1, 3)], {"weights_format": "OIX", "data_format": "NCX"},
        ("src channels must be weights channels x groups = 1 x 1", "got 6", "(4, 1, 3) (OIX)")),
    Row("G4", CONV, [(1, 6, 5), (4, 5, 3)], {"weights_format": "OIX", "groups": 5}, ("= 5 x 5", "got 5")),
    Row("G4", WEIGHTS, [(1, 6, 5), (1, 4, 2), [2, 5, 3]], {}, ("diff_dst channels must be weights channels = 3",)),
    Row("G4", WEIGHTS, [(1, 6, 5), (1, 4, 2), [2, 5, 3]], {}, ("(2, 5, 3) (XIO)", "they fit weights_format=OIX")),
    Row("G4", DATA, [(1, 4, 2), (3, 5, 4)], {}, ("diff_dst channels must be weights channels = 4", "got 2")),
    Row("G4", DATA, [(1, 4, 2), (3, 5, 2), [1, 6, 7]], {}, ("dst_shape channels must be", "= 5 x 1", "got 7")),
    Row("G4", TRANSPOSE, [(1, 3, 2), (3, 2, 4)], {}, ("src channels must be weights channels = 4", "(XOI)")),
    # ConvTranspose weights are (in, out/g); (in/g, out) is a slip that gets its own words
    Row("G4", TRANSPOSE, [(1, 4, 3), (2, 8, 3)], {"groups": 2, "data_format": "NCX", "weights_format": "IOX"},
        ("src channels must be weights channels = 2; got 4", "they fit (in_channels / groups, out_channels)",
         "ConvTranspose weights are (in_channels, out_channels / groups)", "here (4, 4)")),
    Row("G4", TRANSPOSE, [(1, 3, 4), (3, 8, 2)], {"groups": 2}, ("they fit (in_channels / groups,", "(4, 4)")),
    Row("G4", T_DATA, [(1, 7, 8), (3, 8, 2)], {"groups": 2}, (
        "diff_dst channels must be weights channels x groups = 8 x 2", "(in_channels, out_channels / groups)", "(4, 4)",
    )),
    Row("G4", T_WEIGHTS, [(1, 3, 4), (1, 7, 8), [3, 8, 2]], {"groups": 2}, ("(in_channels / groups, out", "(4, 4)")),
    # G5
    Row("G5", CONV, [X, (0, 1, 1)], {}, ("weights must have no empty dimension; got (0, 1, 1)",)),
    Row("G5", WEIGHTS, [X, Y, [3, 0, 1]], {}, ("weights_shape must have no empty dimension; got (3, 0, 1)",)),
    Row("G5", T_DATA, [T_DST, (3, 1, 0)], {}, ("weights must have no empty dimension; got (3, 1, 0)",)),
    # G6
    Row("G6", WEIGHTS, [X, (1, 3, 1), [3, 1, 1]], {}, ("diff_dst extent", "floor((6 + 0 - 3)/1) + 1 = 4; got 3",
                                                       "kernels that fit: 4 [G6]")),
    Row("G6", WEIGHTS, [X, (1, 4, 1), [3, 1, 1]], {"strides": [2]}, ("floor((6 + 0 - 3)/2) + 1 = 2; got 4",
                                                                     "kernels that fit: none")),
    Row("G6", WEIGHTS, [X, Y, [3, 1, 1]], {"auto_pad": "same_upper"}, ("= floor((6 + 2 - 3)/1) + 1 = 6; got 4",)),
    Row("G6", WEIGHTS, [(1, 1, 1), (1, 1, 1), [2, 1, 1]], {"strides": [2]}, ("= 0; got 1", "kernels that fit: 1")),
    Row("G6", DATA, [Y, W, [1, 5, 1]], {}, ("dst_shape extent I must satisfy floor((I + P - E)/s) + 1 = O",
                                            "floor((5 + 0 - 3)/1) + 1 = 3; got O = 4", "legal extents: 6;",
                                            "or pads that total 1 [G6]")),
    Row("G6", DATA, [Y, W, [1, 7, 1]], {}, ("floor((7 + 0 - 3)/1) + 1 = 5; got O = 4", "legal extents: 6 [G6]")),
    Row("G6", DATA, [Y, W, [1, 11, 1]], {"strides": [2]}, ("legal extents: 9, 10",)),
    Row("G6", DATA, [(1, 2, 2, 1), (3, 3, 1, 1), [1, 4, 9, 1]], {}, ("on spatial axis 1", "legal extents: 4")),
    Row("G6", DATA, [Y, W, [1, 9, 1]], {"strides": [2], "auto_pad": "same_lower"}, ("legal extents: 7, 8 [G6]",)),
    Row("G6", DATA, [(1, 1, 1), W], {"pads_begin": [4]}, ("no diff_src extent", "= 1(1 - 1) + 3 - 4 + 0 = -1",
                                                          "legal extents: none")),
    Row("G6", OLD_DATA, [Y, W, [8]], {}, ("output_shape extent I", "legal extents: 6")),
    # G7
    Row("G7", T_DATA, [(1, 8, 1), T_W], {"strides": [2], "output_padding": [0]}, (
        "diff_dst extent must be L = s(l - 1) + E - P + op = 2(l - 1) + 3 - 0 + 0; got 8", "legal extents: 7, 9")),
    Row("G7", T_WEIGHTS, [T_SRC, (1, 9, 1), [3, 1, 1]], {"strides": [2]}, (
        "= 2(3 - 1) + 3 - 0 + op, 0 <= op < max(s, d) = 2; got 9", "legal extents: 7, 8 [G7]")),
    Row("G7", T_WEIGHTS, [T_SRC, (1, 8, 1), [3, 1, 1]], {"strides": [2], "output_padding": [0]}, (
        "= 2(3 - 1) + 3 - 0 + 0; got 8", "legal extents: 7 [G7]")),
    Row("G7", T_WEIGHTS, [T_SRC, (1, 5, 1), [3, 1, 1]], {"strides": [2], "auto_pad": "valid"}, ("extents: 7, 8",)),
    Row("G7", T_WEIGHTS, [T_SRC, (1, 5, 1), [3, 1, 1]], {"strides": [2], "auto_pad": "same_upper"}, (
        "2(3 - 1) + 3 - 1", "legal extents: 6, 7")),
    Row("G7", "ConvTransposeBackpropFilters-1", [T_SRC, (1, 1, 1), [3, 1, 1]], {"strides": [20]}, (
        "output_delta extent", "legal extents: 43, 44, ... 62")),
    # G8
    Row("G8", CONV, [(1, 2, 1), W], {}, ("extent of dst must be at least 1", "floor((2 + 0 - 3)/1) + 1 = 0")),
    Row("G8", CONV, [(1, 1, 1), (2, 1, 1)], {"strides": [2]}, ("floor((1 + 0 - 2)/2) + 1 = 0",)),
    Row("G8", CONV, [(1, 0, 1), W], {"dilations": [3]}, ("floor((0 + 0 - 7)/1) + 1 = -6",)),
    Row("G8", TRANSPOSE, [(1, 1, 1), W], {"pads_begin": [2], "pads_end": [1]}, ("of dst", "1(1 - 1) + 3 - 3 + 0 = 0")),
    Row("G8", T_DATA, [(1, 2, 1), W], {}, ("extent of diff_src must be at least 1", "floor((2 + 0 - 3)/1) + 1 = 0")),
    Row("G8", T_DATA, [(1, 5, 1), (9, 1, 1)], {"strides": [2], "output_padding": [0]}, ("extent of diff_src",)),
    # G9
    Row("G9", WEIGHTS, [X, Y, [3, 1]], {}, ("weights_shape must hold 3 non-negative extents", "rank of src", "[3, 1]")),
    Row("G9", WEIGHTS, [X, Y, [-3, 1, 1]], {}, ("weights_shape must hold 3 non-negative extents", "[-3, 1, 1]")),
    Row("G9", WEIGHTS, [X, Y], {"weights_shape": []}, ("weights_shape must hold 3", "got []")),
    Row("G9", DATA, [Y, W, [6]], {}, ("dst_shape must hold 3 non-negative extents, the rank of diff_dst; got [6]",)),
    Row("G9", DATA, [Y, W], {"dst_shape": [1, -6, 1]}, ("dst_shape must hold 3", "[1, -6, 1]")),
    Row("G9", OLD_DATA, [Y, W, [1, 6]], {}, ("output_shape must hold 3", "[1, 6]")),
    Row("G9", OLD_DATA, [Y, W, [-6]], {}, ("output_shape must hold 3 non-negative extents",)),
    Row("G9", backprop_data, [Y, W, [6]], {}, ("output_shape must hold 3 non-negative extents", "got [6]")),
    # G10
    Row("G10", CONV, [X, W], {"pads_begin": [huge]}, ("size in bytes must fit 63 bits", str(huge + 4))),
    Row("G10", TRANSPOSE, [T_SRC, T_W], {"strides": [huge]}, ("63 bits", str(2 * huge + 3))),
    Row("G10", DATA, [(1, 1, 1), (1, 1, 1), [1, huge, 1]], {"strides": [huge]}, ("63 bits", str(huge))),
    # G11
    Row("G11", CONV, [X, W, (2,)], {}, ("bias must be 1-D with one value per channel of dst, 1; got shape (2,)",)),
    Row("G11", CONV, [X, W, (1, 1)], {}, ("bias must be 1-D", "(1, 1)")),
    Row("G11", CONV, [X, W, ()], {}, ("bias must be 1-D", "got shape ()")),
    Row("G11", TRANSPOSE, [(1, 3, 4), (3, 3, 4), (3,)], {"groups": 2}, ("channel of dst, 6; got shape (3,)",)),
    Row("G11", "BiasAdd", [(1, 6, 3), (4,)], {}, ("channel of src, 3; got (4,) [G11]",)),
    Row("G11", "BiasAdd", [(1, 6, 3), (6,)], {}, ("channel of src, 3; got (6,)", "it fits data_format=NCX")),
    Row("G11", "BiasAdd-1", [(1, 6, 3), (3,)], {"data_format": "NCX"}, ("channel of input, 6", "data_format=NXC")),
    # D1 to D6
    Row("D1", CONV, [OnGpu(), W], {"strides": [1]}, ("src must lie in CPU memory", "device (2, 1); copy it")),
    Row("D1", WEIGHTS, [X, OnGpu(), [3, 1, 1]], {}, ("diff_dst must lie in CPU memory",)),
    Row("D2", CONV, [X, W], {"out": np.zeros((1, 4), F32)}, ("the output's shape (1, 4, 1); got (1, 4)",)),
    Row("D2", CONV, [X, W], {"out": np.zeros(X, F32)}, ("(1, 4, 1); got (1, 6, 1)",)),
    Row("D3", CONV, [X, W], {"out": read_only(Y)}, ("out must be writable; got a read-only array",)),
    Row("D4", CONV, [SHARED, W], {"out": SHARED[:, 1:5]}, ("not overlap an operand", "memory shared with src")),
    Row("D4", CONV, [X, SHARED[:, :3].reshape(W), SHARED[0, 0]], {"out": SHARED[:, 2:]}, ("shared with weights",)),
    Row("D4", CONV, [X, W, SHARED[0, 5]], {"out": SHARED[:, 2:]}, ("shared with bias",)),
    Row("D4", CONV, [X, W], {"out": overlapping_itself(Y)}, ("not overlap itself", "(1, 4, 1) with strides (0, 0, 0)")),
    Row("D5", CONV, [X, W], {"accumulate": 1}, ("accumulate must be a bool; got 1",)),
    Row("D5", CONV, [X, W], {"accumulate": None}, ("accumulate must be a bool; got None",)),
    Row("D5", CONV, [X, W], {"accumulate": True}, ("must come with out",)),
    Row("D6", CONV, [X, W], {"threads": 0}, ("threads must be a positive integer; got 0",)),
    Row("D6", CONV, [X, W], {"threads": -1}, ("got -1",)),
    Row("D6", CONV, [X, W], {"threads": 1.0}, ("got 1.0",)),
    Row("D6", CONV, [X, W], {"threads": True}, ("got True",)),
    Row("D6", CONV, [X, W], {"threads": "2"}, ("got '2'",)),
]  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=[f"{row.rule}-{row.name}-{i}" for i, row in enumerate(ROWS)])
def test_breaking_a_rule_says_so(row: Row) -> None:
    with pytest.raises(ConvgradError) as caught:
        row.call()
    message = str(caught.value)
    assert message.endswith(f" [{row.rule}]"), message
    assert type(caught.value) is RULES[row.rule].error
    assert message.startswith(f"{row.name}: "), message
    assert "\n" not in message
    for fragment in row.fragments:
        assert fragment in message, message


def test_every_rule_has_a_row_and_a_comment_where_it_is_enforced() -> None:
    assert {row.rule for row in ROWS} == set(RULES)
    commented: set[str] = set()
    for path in Path(convgrad.__file__).parent.rglob("*.py"):
        text = path.read_text()
        comments = {rule for comment in re.findall(r"# (.*)", text) for rule in re.findall(r"\b[A-Z]\d+\b", comment)}
        refused = set(re.findall(r"refuse\(\s*\"([A-Z]\d+)\"", text)) & set(RULES)
        assert refused <= comments, path
        commented |= comments
    assert set(RULES) <= commented


@pytest.mark.parametrize("rule", RULES)
def test_every_error_is_a_convgrad_error_and_a_builtin(rule: str) -> None:
    error = RULES[rule].error
    assert issubclass(error, ConvgradError)
    assert issubclass(error, ValueError | TypeError | NotImplementedError)


# -- what is accepted ----------------------------------------------------------------------------------------------

SAME = {"auto_pad": "same_upper"}

# (name, attributes, attributes that mean the same)
ACCEPTED: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("tuple", {"strides": (2,)}, {"strides": [2]}),
    ("array", {"strides": np.array([2])}, {"strides": [2]}),
    ("unsigned array", {"strides": np.array([2], np.uint8)}, {"strides": [2]}),
    ("numpy integer", {"strides": [np.int16(2)], "groups": np.int64(1)}, {"strides": [2]}),
    ("0-d array", {"groups": np.array(1)}, {}),
    ("range", {"strides": range(2, 3)}, {"strides": [2]}),
    ("empty pads", {"pads_begin": [], "pads_end": []}, {"pads_begin": [0], "pads_end": [0]}),
    ("empty pads_end", {"pads_begin": [1], "pads_end": ()}, {"pads_begin": [1], "pads_end": [0]}),
    ("absent pads", {"pads_begin": None, "pads_end": None}, {}),
    ("None counts as absent", {"auto_pad": None, "groups": None, "data_format": None, "weights_format": None}, {}),
    ("pads beside auto_pad", {"pads_begin": [2], "pads_end": [3]} | SAME, SAME),
    ("pads beside valid", {"pads_begin": [2], "pads_end": [3], "auto_pad": "valid"}, {}),
    *((f"auto_pad {a}", {"auto_pad": a, "pads_end": [1]}, {"pads_end": [1]}) for a in (
        "none", "None", "NONE", "notset", "NOTSET", "NotSet", "explicit", "EXPLICIT")),
    *((f"auto_pad {a}", {"auto_pad": a}, SAME) for a in ("SAME_UPPER", "Same_Upper")),
    *((f"auto_pad {a}", {"auto_pad": a}, {"auto_pad": "same_lower"}) for a in ("SAME_LOWER", "Same_lower")),
    *((f"auto_pad {a}", {"auto_pad": a}, {"auto_pad": "valid"}) for a in ("VALID", "Valid")),
]  # fmt: skip


@pytest.mark.parametrize(("given", "meant"), [row[1:] for row in ACCEPTED], ids=[row[0] for row in ACCEPTED])
def test_other_ways_to_say_the_same(given: dict[str, Any], meant: dict[str, Any]) -> None:
    src = np.arange(12, dtype=F32).reshape(1, 12, 1)
    weights = np.array([1, -2, 3, 5], F32).reshape(4, 1, 1)
    default = {"strides": [1], "dilations": [1]}
    expected = run(CONV, src, weights, **(default | meant))
    assert np.array_equal(run(CONV, src, weights, **(default | given)), expected)
    assert infer_shapes(CONV, src.shape, weights.shape, **(default | given)) == expected.shape
    assert np.array_equal(convgrad.convolution(src, weights, **given), expected)


SHAPES: list[Any] = [[3, 1, 1], (3, 1, 1), np.array([3, 1, 1], np.int32), np.array([3, 1, 1]), [np.int8(3), 1, 1]]


@pytest.mark.parametrize("shape", SHAPES, ids=["list", "tuple", "int32", "int64", "numpy integers"])
def test_backprop_filters_takes_both_orders(shape: Any) -> None:
    src, delta = np.arange(6, dtype=F32).reshape(X), np.array([1, -1, 2, 3], F32).reshape(Y)
    attributes: dict[str, Any] = {"strides": [1], "dilations": [1]}
    expected = convgrad.convolution_backward_weights(src, delta, (3, 1, 1))
    for operands in ((src, delta, shape), (src, shape, delta)):
        assert np.array_equal(run(OLD_FILTERS, *operands, **attributes), expected)
    assert np.array_equal(run(OLD_FILTERS, src, delta, filter_shape=shape, **attributes), expected)
    assert infer_shapes(OLD_FILTERS, X, Y, shape, **attributes) == (3, 1, 1)


def test_a_shape_operand_beats_the_attribute() -> None:
    attributes: dict[str, Any] = {"strides": [2], "dilations": [1]}
    src, delta = np.ones((1, 7, 1), F32), np.ones((1, 3, 1), F32)
    got = run(WEIGHTS, src, delta, [3, 1, 1], weights_shape=[2, 1, 1], **attributes)
    assert got.shape == (3, 1, 1)
    assert run(WEIGHTS, src, delta, None, weights_shape=[2, 1, 1], **attributes).shape == (2, 1, 1)
    assert run(DATA, delta, np.ones(W, F32), [1, 8, 1], dst_shape=[5, 5, 5, 5], **attributes).shape == (1, 8, 1)


@pytest.mark.parametrize("data_format", ["NXC", "NCX"])
@pytest.mark.parametrize("filter_format", ["XIO", "OIX"])
def test_backprop_data_takes_spatial_extents_in_run(data_format: str, filter_format: str) -> None:
    """Batch 2, 4 channels from 6 in 2 groups, 4 x 5 positions from 9 x 7."""
    data = np.arange(2 * 4 * 5 * 6, dtype=F32).reshape((2, 4, 5, 6) if data_format == "NXC" else (2, 6, 4, 5))
    weights = np.arange(3 * 3 * 2 * 6, dtype=F32).reshape((3, 3, 2, 6) if filter_format == "XIO" else (6, 2, 3, 3))
    full = (2, 9, 7, 4) if data_format == "NXC" else (2, 4, 9, 7)
    attributes: dict[str, Any] = {"strides": [2, 1], "groups": 2, "data_format": data_format}
    attributes |= {"dilations": [1, 1], "filter_format": filter_format}
    expected = run(OLD_DATA, data, weights, full, **attributes)
    assert expected.shape == full
    assert np.array_equal(run(OLD_DATA, data, weights, (9, 7), **attributes), expected)
    assert np.array_equal(run(OLD_DATA, data, weights, output_shape=[9, 7], **attributes), expected)
    assert infer_shapes(OLD_DATA, data.shape, weights.shape, (9, 7), **attributes) == full


# -- output_padding that is ignored ----------------------------------------------------------------------------------


def ignoring_calls() -> Iterable[tuple[str, Callable[[int], np.ndarray]]]:
    dy, w = np.ones((1, 2, 1), F32), np.ones(W, F32)
    strict: dict[str, Any] = {"strides": [2], "dilations": [1]}
    yield "function", lambda op: convgrad.convolution_backward_data(dy, w, (1, 6, 1), strides=2, output_padding=op)
    yield (
        "older function",
        lambda op: convgrad.convolution_backprop_data(dy, w, (1, 6, 1), strides=2, output_padding=op),
    )
    yield "run, operand", lambda op: run(DATA, dy, w, [1, 6, 1], output_padding=[op], **strict)
    yield "run, attribute", lambda op: run(DATA, dy, w, dst_shape=[1, 6, 1], output_padding=[op], **strict)


@pytest.mark.parametrize("call", [c for _, c in ignoring_calls()], ids=[name for name, _ in ignoring_calls()])
@pytest.mark.parametrize("padding", [0, 5])
def test_output_padding_beside_a_shape_that_disagrees_warns(call: Callable[[int], np.ndarray], padding: int) -> None:
    with pytest.warns(UserWarning, match=r"output_padding \[\d\] is ignored") as caught:
        result = call(padding)
    assert len(caught) == 1
    assert caught[0].filename == __file__
    message = str(caught[0].message)
    assert re.search(r"because (dst|output)_shape is given", message)
    assert f"would make {5 + padding}, not 6" in message
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.array_equal(call(1), result)  # 2(2 - 1) + 3 + 1 = 6 agrees


# -- the listed extents are exactly the legal ones ---------------------------------------------------------------------

STRIDES, DILATIONS, KERNELS = range(1, 4), range(1, 4), range(1, 4)
PADS: list[dict[str, Any]] = [
    {"pads_begin": [0], "pads_end": [0]},
    {"pads_begin": [1], "pads_end": [2]},
    {"auto_pad": "valid", "pads_end": [2]},
    {"auto_pad": "same_upper"},
    {"auto_pad": "same_lower"},
]
PAD_IDS = ["none", "padded", "valid", "same_upper", "same_lower"]


@dataclass(frozen=True)
class Window:
    """A kernel that steps over an extent, by counting: no formula of the library's."""

    stride: int
    dilation: int
    kernel: int
    pads: dict[str, Any] = field(hash=False)

    @property
    def attributes(self) -> dict[str, Any]:
        return {"strides": [self.stride], "dilations": [self.dilation], **self.pads}

    @property
    def span(self) -> int:
        return len(range(0, self.dilation * self.kernel, self.dilation)[:-1]) * self.dilation + 1

    @property
    def same(self) -> bool:
        return str(self.pads.get("auto_pad")).startswith("same")

    @property
    def total(self) -> int:
        """Explicit pads; what a transposed operator makes of same."""
        if self.same:
            return max(self.span - self.stride, 0)
        return 0 if "auto_pad" in self.pads else int(self.pads["pads_begin"][0] + self.pads["pads_end"][0])

    def positions(self, src: int) -> int:
        """Count where the kernel fits into a padded source; same: the strides begun in it."""
        if self.same:
            return len(range(0, src, self.stride))
        return len(range(0, src + self.total - self.span + 1, self.stride))

    def large(self, small: int, padding: int = 0) -> int:
        """Return what a transposed operator makes of ``small``: its last tap's position, plus the rest."""
        return self.stride * small - self.stride + self.span - self.total + padding


WINDOWS = list(product(STRIDES, DILATIONS, KERNELS))


def windows(pads: dict[str, Any]) -> Iterable[Window]:
    return (Window(*numbers, pads) for numbers in WINDOWS)


def refusal(operator: str, *shapes: Any, **attributes: Any) -> str | None:
    """Return why a call is refused, or None."""
    try:
        infer_shapes(operator, *shapes, **attributes)
    except (InvalidShapeError, InvalidAttributeError) as error:
        return str(error)
    return None


def accepted(candidates: Iterable[int], call: Callable[[int], str | None]) -> list[int]:
    return [n for n in candidates if call(n) is None]


def listed(message: str, label: str, stop: int = 0) -> list[int]:
    """Read the numbers after a label: "none", "3, 4", "3, 4, ... 20", or "3 or more", which goes to ``stop``."""
    text = re.search(re.escape(label) + r"([^;\[]*)", message)
    assert text, message
    numbers = [int(n) for n in re.findall(r"-?\d+", text[1])]
    if "or more" in text[1]:
        return list(range(numbers[0], stop))
    return list(range(numbers[0], numbers[-1] + 1)) if "..." in text[1] else numbers


@pytest.mark.parametrize("pads", PADS, ids=PAD_IDS)
def test_g8_convolution_counts_positions(pads: dict[str, Any]) -> None:
    for window, src in product(windows(pads), range(9)):
        got = refusal(CONV, (1, src, 1), (window.kernel, 1, 1), **window.attributes)
        count = window.positions(src)
        if count:
            assert infer_shapes(CONV, (1, src, 1), (window.kernel, 1, 1), **window.attributes) == (1, count, 1)
        else:
            assert (got is None) == (src == 0 and (window.same or src + window.total - window.span >= -window.stride))


@pytest.mark.parametrize("pads", PADS, ids=PAD_IDS)
def test_g6_data_gradient_lists_its_legal_extents(pads: dict[str, Any]) -> None:
    refused = 0
    for window, dst in product(windows(pads), range(4)):

        def call(src: int, window: Window = window, dst: int = dst) -> str | None:
            return refusal(DATA, (1, dst, 1), (window.kernel, 1, 1), (1, src, 1), **window.attributes)

        legal = accepted(range(24), call)
        assert legal == [src for src in range(24) if window.positions(src) == dst], (window, dst)
        for src in {*range(24)} - {*legal}:
            message = call(src)
            assert message
            assert listed(message, "legal extents: ") == legal, message
            refused += 1
    assert refused > 1000


@pytest.mark.parametrize("pads", PADS[:2], ids=PAD_IDS[:2])
def test_g6_data_gradient_lists_the_pads_that_fit(pads: dict[str, Any]) -> None:
    for window, dst, src in product(windows(pads), range(4), range(0, 16, 3)):
        dy, w, shape = (1, dst, 1), (window.kernel, 1, 1), (1, src, 1)
        message = refusal(DATA, dy, w, shape, **window.attributes)
        if message is None:
            continue
        explicit = {"strides": [window.stride], "dilations": [window.dilation]}
        fit = [t for t in range(24) if refusal(DATA, dy, w, shape, pads_begin=[t], **explicit) is None]
        assert (listed(message, "pads that total ") if "pads" in message else []) == fit, message


@pytest.mark.parametrize("pads", PADS, ids=PAD_IDS)
def test_a8_data_gradient_without_a_shape_lists_or_infers(pads: dict[str, Any]) -> None:
    """It is refused just where neither output_padding, nor auto_pad same, nor stride 1 makes the extent known."""
    for window, dst, padding in product(windows(pads), range(1, 4), [None, [0]]):
        dy, w = (1, dst, 1), (window.kernel, 1, 1)
        attributes = window.attributes | ({} if padding is None else {"output_padding": padding})
        message = refusal(DATA, dy, w, **attributes)
        known = padding is None and window.span >= window.stride
        known = known if window.same else padding is not None or window.stride == 1
        legal = [src for src in range(24) if window.positions(src) == dst]
        if not known:
            assert message
            assert message.endswith("[A8]"), message
            assert listed(message, "axis 0: ") == legal, message
        elif message:
            assert message.endswith("[G6]"), message
            assert listed(message, "legal extents: ") == legal, message
            assert min(legal, default=1) > window.large(dst)
        else:
            src = infer_shapes(DATA, dy, w, **attributes)[1]
            assert src == (window.stride * dst if window.same else window.large(dst))
            assert src in legal


@pytest.mark.parametrize("pads", PADS, ids=PAD_IDS)
def test_g6_weight_gradient_accepts_what_the_forward_makes(pads: dict[str, Any]) -> None:
    for window, src in product(windows(pads), range(8)):
        call = [
            refusal(WEIGHTS, (1, src, 1), (1, dst, 1), (window.kernel, 1, 1), **window.attributes) for dst in range(12)
        ]
        assert [dst for dst, message in enumerate(call) if message is None] == [window.positions(src)]
        for dst, message in enumerate(call):
            assert message is None or f"= {window.positions(src)}; got {dst}" in message


@pytest.mark.parametrize("pads", PADS[:3], ids=PAD_IDS[:3])
def test_g6_weight_gradient_lists_the_kernels_that_fit(pads: dict[str, Any]) -> None:
    """All that fit: none, a few, or without an end for an empty diff_dst."""
    for stride, dilation, src, dst in product(STRIDES, DILATIONS, range(0, 9, 2), range(5)):
        fit, messages = [], []
        for kernel in range(1, 16):
            window = Window(stride, dilation, kernel, pads)
            message = refusal(WEIGHTS, (1, src, 1), (1, dst, 1), (kernel, 1, 1), **window.attributes)
            assert (message is None) == (window.positions(src) == dst)
            fit += [kernel] if message is None else []
            messages += [message] if message else []
        for message in messages:
            assert listed(message, "kernels that fit: ", 16) == fit, message


@pytest.mark.parametrize("pads", PADS, ids=PAD_IDS)
def test_g7_transposed_weight_gradient_lists_its_legal_extents(pads: dict[str, Any]) -> None:
    for window, small, padding in product(windows(pads), range(4), [None, 0, 1]):
        limit = max(window.stride, window.dilation)
        if padding is not None and padding >= limit:
            continue
        attributes = window.attributes | ({} if padding is None else {"output_padding": [padding]})

        def call(large: int, window: Window = window, small: int = small, given: Any = attributes) -> str | None:
            return refusal(T_WEIGHTS, (1, small, 1), (1, large, 1), (window.kernel, 1, 1), **given)

        legal = accepted(range(24), call)
        made = [window.large(small, p) for p in (range(limit) if padding is None else [padding])]
        assert legal == [n for n in made if n >= 0], (window, small, padding)
        for large in {*range(0, 24, 5)} - {*legal}:
            message = call(large)
            assert message
            assert listed(message, "legal extents: ") == legal, message


@pytest.mark.parametrize("pads", PADS, ids=PAD_IDS)
def test_g7_transposed_data_gradient_lists_the_nearest_legal_extents(pads: dict[str, Any]) -> None:
    """With output_padding: exactly what the forward makes, the nearest below and above being listed."""
    for window, padding in product(windows(pads), [0, 1]):
        if padding >= max(window.stride, window.dilation):
            continue

        def call(large: int, window: Window = window, padding: int = padding) -> str | None:
            return refusal(T_DATA, (1, large, 1), (window.kernel, 1, 1), output_padding=[padding], **window.attributes)

        legal = accepted(range(30), call)
        made = {window.large(small, padding) for small in range(40)}
        assert legal == [n for n in range(30) if n in made], (window, padding)
        for large in {*range(20)} - {*legal}:
            message = call(large)
            assert message
            if message.endswith("[G7]"):
                nearest = [*[n for n in legal if n < large][-1:], *[n for n in legal if n > large][:1]]
                assert listed(message, "legal extents: ") == nearest, message


@pytest.mark.parametrize("pads", PADS, ids=PAD_IDS)
def test_g8_transposed_data_gradient_without_padding_counts(pads: dict[str, Any]) -> None:
    for window, large in product(windows(pads), range(1, 12)):
        shapes = (1, large, 1), (window.kernel, 1, 1)
        count = len(range(0, large + window.total - window.span + 1, window.stride))
        message = refusal(T_DATA, *shapes, **window.attributes)
        if count:
            assert infer_shapes(T_DATA, *shapes, **window.attributes) == (1, count, 1)
        else:
            assert message
            assert message.endswith("[G8]"), message


@pytest.mark.parametrize("operator", [DATA, TRANSPOSE, T_DATA, T_WEIGHTS])
def test_a9_output_padding_is_accepted_below_its_limit(operator: str) -> None:
    for stride, dilation, padding in product(range(1, 5), range(1, 5), range(7)):
        window = Window(stride, dilation, 3, PADS[0])
        large = (1, window.large(3, padding), 1)
        shapes: dict[str, tuple[Any, ...]] = {
            DATA: (T_SRC, W),
            TRANSPOSE: (T_SRC, W),
            T_DATA: (large, W),
            T_WEIGHTS: (T_SRC, large, W),
        }
        message = refusal(operator, *shapes[operator], output_padding=[padding], **window.attributes)
        limit = stride if operator == DATA else max(stride, dilation)
        assert (message is None) == (padding < limit), message
        assert message is None or message.endswith(f"got {padding}" + f" and {limit}" * (operator == DATA) + " [A9]")


# (operator, shapes, attributes, label, legal extents)
FAR = 10**5
LONG: list[tuple[str, tuple[Any, ...], dict[str, Any], str, range]] = [
    (DATA, (T_SRC, W, (1, 5, 1)), {}, "legal extents: ", range(2 * FAR + 3, 3 * FAR + 3)),
    (DATA, (T_SRC, W, (1, 5, 1)), {"auto_pad": "same_upper"}, "legal extents: ", range(2 * FAR + 1, 3 * FAR + 1)),
    (DATA, (T_SRC, W), {}, "axis 0: ", range(2 * FAR + 3, 3 * FAR + 3)),
    (WEIGHTS, ((1, FAR, 1), (1, 2, 1), (FAR, 1, 1)), {"pads_end": [9]}, "kernels that fit: ", range(1, 10)),
    (T_WEIGHTS, (T_SRC, (1, 5, 1), W), {}, "legal extents: ", range(2 * FAR + 3, 3 * FAR + 3)),
    (T_WEIGHTS, (T_SRC, (1, FAR, 1), W), {"pads_end": [2 * FAR + 5]}, "legal extents: ", range(FAR - 2)),
]


@pytest.mark.parametrize(
    ("operator", "shapes", "attributes", "label", "legal"), LONG, ids=[f"{row[0]}-{i}" for i, row in enumerate(LONG)]
)
def test_long_lists_are_abbreviated_and_cost_no_memory(
    operator: str, shapes: tuple[Any, ...], attributes: dict[str, Any], label: str, legal: range
) -> None:
    """A stride may be as long as 2^63: nothing may be built that is as long."""
    tracemalloc.start()
    try:
        message = refusal(operator, *shapes, strides=[FAR], dilations=[1], **attributes)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert message
    assert f"{label}{legal[0]}, {legal[1]}, ... {legal[-1]}" in message, message
    assert peak < 10**6
