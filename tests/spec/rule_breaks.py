"""Calls that break each rule, and what the errors say: the table of tests/spec/test_rules.py."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

import convgrad
from convgrad import libraries, run
from convgrad.formats import FORMATS
from convgrad.libraries.library import Library, Refusal
from convgrad.spec.operators import OPERATORS

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
BIAS = "BiasAddBackward"
OLD_DATA, OLD_FILTERS, OLD_WEIGHTS = (
    "ConvolutionBackpropData-1",
    "ConvolutionBackpropFilters-1",
    "ConvolutionBackpropWeights-1",
)

X, W, Y = (1, 6, 1), (3, 1, 1), (1, 4, 1)  # src, weights, dst of a legal Convolution of strides 1
T_SRC, T_W, T_DST = (1, 3, 1), (3, 1, 1), (1, 7, 1)  # src, weights, dst of a legal ConvTranspose of strides 2

convolution = (convgrad.convolution, CONV)
compiled = (lambda x, w, *given: convgrad.compile(CONV, x, w, strides=[1], dilations=[1])(*given), CONV)
asked = (lambda x, w, v, needs: convgrad.vjp(CONV, x, w)[1](v, needs), CONV)
without_name = (convgrad.run, "ndarray")
by_function = (lambda *given: convgrad.run(convgrad.convolution, *given), "convolution")
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


class Recorded:
    """An array of a library, of which gradients are recorded."""


RECORDS = Library(
    __name__,
    "Recorded",
    "",
    array=lambda module, value: np.ones(X, F32),
    like=lambda module, value: lambda array: array,
    written=lambda module, value: None,
    detached=lambda module, value: value,
    refused=(Refusal(lambda module, value: True, "D8", "{name} must not be recorded; got a {got.__class__.__name__}"),),
    not_written=(),
)


def beside_a_library(*operands: Any, **attributes: Any) -> Any:
    with mock.patch.object(libraries, "LIBRARIES", (RECORDS,)):
        return run(CONV, *operands, strides=[1], dilations=[1], **attributes)


SHARED = np.ones(X, F32)  # an operand and out at once

ROWS = [
    # O1, O2
    Row("O1", "Convolutoin", [X, W], {}, ("one of the table", "did you mean Convolution")),
    Row("O1", "ConvolutionBackwardFilter", [X], {}, ("did you mean", WEIGHTS)),
    Row("O1", "Convolution-2", [X], {}, ("Convolution-1",)),
    Row("O1", "conv", [X], {}, ("did you mean Convolution",)),
    Row("O1", by_function, [X, W], {}, ("convolution: the operator must be", "by its name; did you mean Convolution")),
    Row("O1", without_name, [X, W], {}, ("ndarray: the operator must be one of the table, by its name; it has",)),
    Row("O1", "?", [], {}, (f"it has {ALL_NAMES} [O1]",)),
    Row("O2", CONV, [X], {}, ("src, weights, [bias]", "got 1")),
    Row("O2", CONV, [], {}, ("src, weights, [bias]", "got 0")),
    Row("O2", CONV, [X, W, (1,), (1,)], {}, ("got 4",)),
    Row("O2", convolution, [X, None], {}, ("got 1",)),
    Row("O2", T_DATA, [T_DST, T_W, [1, 3, 1]], {}, ("diff_dst, weights;", "got 3")),
    Row("O2", "BiasAddBackward", [Y, (1,)], {}, ("diff_dst;", "got 2")),
    Row("O2", OLD_FILTERS, [X, [3, 1, 1]], {}, ("input, filters_shape, output_delta", "got 2")),
    # O3
    Row("O3", asked, [X, W, Y, ["bias"]], {}, ("needs must hold names or numbers of src, weights; got 'bias'",)),
    Row("O3", asked, [X, W, Y, "src"], {}, ("a tuple of names or numbers of src, weights; got 'src'; ('src',) would",)),
    Row("O3", asked, [X, W, Y, 1], {}, ("must be a tuple of", "got 1; (1,) would do")),
    # A1
    Row("A1", CONV, [X, W], {"stride": [1]}, ("unknown attribute 'stride'", "did you mean strides=[1]?")),
    Row("A1", CONV, [X, W], {"output_padding": [0]}, ("unknown attribute 'output_padding'",)),
    Row("A1", CONV, [X, W], {"colour": 1}, ("attribute 'colour'", "it has strides, pads_begin", "weights_format")),
    Row("A1", CONV, [X, W], {"colour": None}, ("unknown attribute 'colour'",)),
    Row("A1", "Convolution-1", [X, W], {"weights_format": "XIO"}, ("did you mean filter_format?",)),
    Row("A1", OLD_DATA, [Y, W], {"dst_shape": X}, ("did you mean output_shape?",)),
    Row("A1", "BiasAdd", [X, (1,)], {"strides": [1]}, ("unknown attribute 'strides'", "data_format")),
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
    Row("T1", CONV, [np.ones(X, np.int8), W], {}, ("src must be an array of f32", "int8; src.astype(numpy.float32)")),
    Row("T1", CONV, [[[[1]]], W], {}, ("got int64; f32 would do",)),
    Row("T1", CONV, [X, np.ones(W, bool)], {}, ("weights must be", "got bool", "weights.astype")),
    Row("T1", CONV, [X, np.ones(W, complex)], {}, ("weights must be", "got complex128")),
    Row("T1", CONV, [X, W, np.ones(1, np.longdouble)], {}, ("bias must be",)),
    Row("T1", CONV, [[[[1], [2], [3]]], W], {}, ("src must be", "got int64")),
    Row("T1", CONV, [[[1.0], [2.0, 3.0]], W], {}, ("src must be an array; got list",)),
    Row("T1", CONV, ["a.npy", W], {}, ("src must be an array of f32", "got str; numpy.load of a path would do")),
    Row("T1", CONV, [Path(), W], {}, ("; numpy.load of a path would do",)),
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
    Row("T4", CONV, [X, W], {"dtype": "int8"}, (f"dtype must be one of {', '.join(FORMATS)}; got 'int8'",)),
    Row("T4", CONV, [X, W], {"dtype": int}, ("dtype must be one of", "int")),
    Row("T4", CONV, [X, W], {"dtype": 5}, ("dtype must be one of", "got 5")),
    Row("T4", CONV, [X, W], {"dtype": "f64"}, ("dtype f64 needs f64 operands", "f32")),
    Row("T4", CONV, [X, W], {"dtype": float}, ("dtype f64 needs f64 operands",)),
    Row("T5", CONV, [X, W], {"out": np.zeros(Y)}, ("a PyTorch tensor or a NumPy array of f32, the", "got f64")),
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
    Row("G4", WEIGHTS, [(1, 6, 5), (1, 4, 2), [2, 5, 3]], {}, ("XIO); these shapes fit data_format='NXC', weights_f",)),
    Row("G4", CONV, [(1, 3, 2), (4, 3, 1)], {}, ("got 2 and", "fit data_format='NCX', weights_format='OIX' [G4]")),
    Row("G4", WEIGHTS, [(1, 5, 6), (1, 3, 5), [2, 5, 3]], {}, ("fit data_format='NCX', weights_format='XIO' [G4]",)),
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
    Row("G11", "BiasAdd", [(1, 6, 3), (6,)], {}, ("channel of src, 3; got (6,)", "fit data_format='NCX'")),
    Row("G11", "BiasAdd-1", [(1, 6, 3), (3,)], {"data_format": "NCX"}, ("channel of input, 6", "data_format='NXC'")),
    Row("T6", compiled, [X, W, np.ones(X), np.ones(W)], {}, ("src must be of f32, the type it was", "got f64")),
    Row("T6", compiled, [X, W, X, np.ones(W, np.float16)], {}, ("weights must be of f32", "got f16")),
    Row("D7", compiled, [X, W, X, Y], {}, ("weights must have the shape it was", "(3, 1, 1); got (1, 4, 1)")),
    Row("D7", compiled, [X, W, (2, 6, 1), W], {}, ("src must have the shape", "(1, 6, 1); got (2, 6, 1)")),
    Row("O2", compiled, [X, W, X], {}, ("it was compiled for the operands src, weights; got 1",)),
    Row("T1", compiled, [X, W, X, np.ones(W, np.int8)], {}, ("weights must be an array of f32", "got int8")),
    Row("D8", (beside_a_library, CONV), [Recorded(), W], {}, ("src must not be recorded; got a Recorded",)),
    Row("D8", (beside_a_library, CONV), [X, W], {"out": Recorded()}, ("out must not be recorded",)),
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
    Row("D6", CONV, [X, W], {"threads": 2**63}, ("got 9223372036854775808",)),
]  # fmt: skip
