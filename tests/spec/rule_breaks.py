"""Calls that break a rule of operands, attributes or options, and what the errors say: rows of test_rules.py."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from ml_dtypes import float8_e4m3fnuz

import convgrad
from convgrad import run
from convgrad.arrays import libraries
from convgrad.arrays.libraries.library import Library, Refusal
from convgrad.formats import FORMATS, LISTED
from convgrad.spec.operators import OPERATORS
from tests.support.roles import BF16, Tensor

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

    def arrays(self) -> list[np.ndarray]:
        out = self.attributes.get("out")
        given = (*self.operands, *(out.values() if isinstance(out, dict) else [out]))
        return [one for one in given if isinstance(one, np.ndarray)]

    def call(self, **options: Any) -> Any:
        operands = [np.ones(o, F32) if isinstance(o, tuple) else o for o in self.operands]
        if not isinstance(self.operator, str):
            return self.operator[0](*operands, **self.attributes, **options)
        return run(self.operator, *operands, **(ones(self.operator, operands) | self.attributes | options))


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
without_name = (convgrad.run, "ndarray")
by_function = (lambda *given: convgrad.run(convgrad.convolution, *given), "convolution")
backward_data = (convgrad.convolution_backward_data, DATA)
backward_weights = (convgrad.convolution_backward_weights, WEIGHTS)


def read_only(shape: tuple[int, ...]) -> np.ndarray:
    array = np.zeros(shape, F32)
    array.flags.writeable = False
    return array


def overlapping_itself(shape: tuple[int, ...], strides: tuple[int, ...]) -> np.ndarray:
    return np.lib.stride_tricks.as_strided(np.zeros(64, F32), shape, strides, writeable=True)


class Raises:
    """An object that shares no memory by DLPack, on the CPU or elsewhere."""

    def __init__(self, error: Exception, device: int = 1) -> None:
        self.error, self.device = error, device

    def __dlpack__(self, **_: Any) -> Any:
        raise self.error

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device, 1


class NoDevice:
    """An object that does not say where its memory is."""

    def __dlpack__(self, **_: Any) -> Any:
        raise BufferError("nothing to share")


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
NO_DTYPES: list[Any] = [int, 5, "(2,", {"names": ["a"]}, {"a": 1}, [], "f4,f4", print]
ON_GPU = Raises(AssertionError("not to be called"), device=2)

ROWS = [
    # O1, O2
    Row("O1", "Convolutoin", [X, W], {}, ("a name in the operator table", "Did you mean Convolution")),
    Row("O1", "ConvolutionBackwardFilter", [X], {}, ("Did you mean", WEIGHTS)),
    Row("O1", "Convolution-2", [X], {}, ("Convolution-1",)),
    Row("O1", "conv", [X], {}, ("Did you mean Convolution",)),
    Row("O1", "conv2d", [X], {}, ("table. Did you mean Convolution? [O1]",)),
    Row("O1", "torch.nn.ConvTranspose3d", [X], {}, ("table. Did you mean ConvTranspose? [O1]",)),
    Row("O1", "conv_transpose1d_weight", [X], {}, (f"table. Did you mean {T_WEIGHTS}? [O1]",)),
    Row("O1", "Conv2DBackpropInput", [X], {}, (f"table. Did you mean {DATA}? [O1]",)),
    Row("O1", by_function, [X, W], {}, ("convolution: the operator must be", "table. Did you mean Convolution")),
    Row("O1", without_name, [X, W], {}, ("ndarray: the operator must be a name in the operator table. It has",)),
    Row("O1", "?", [], {}, (f"It has {ALL_NAMES} [O1]",)),
    Row("O2", CONV, [X], {}, ("src, weights, [bias]", "got 1")),
    Row("O2", CONV, [], {}, ("src, weights, [bias]", "got 0")),
    Row("O2", CONV, [X, W, (1,), (1,)], {}, ("got 4",)),
    Row("O2", convolution, [X, None], {}, ("got 1",)),
    Row("O2", T_DATA, [T_DST, T_W, [1, 3, 1]], {}, ("diff_dst, weights;", "got 3")),
    Row("O2", "BiasAddBackward", [Y, (1,)], {}, ("diff_dst;", "got 2")),
    Row("O2", OLD_FILTERS, [X, [3, 1, 1]], {}, ("input, filters_shape, output_delta", "got 2")),
    # A1
    Row("A1", CONV, [X, W], {"stride": [1]}, ("unknown attribute 'stride'", "Did you mean strides=[1]?")),
    Row("A1", CONV, [X, W], {"output_padding": [0]}, ("unknown attribute 'output_padding'",)),
    Row("A1", CONV, [X, W], {"colour": 1}, ("attribute 'colour'", "It has strides, pads_begin", "weights_format")),
    Row("A1", CONV, [X, W], {"colour": None}, ("unknown attribute 'colour'",)),
    Row("A1", "Convolution-1", [X, W], {"weights_format": "XIO"}, ("Did you mean filter_format?",)),
    Row("A1", OLD_DATA, [Y, W], {"dst_shape": X}, ("Did you mean output_shape?",)),
    Row("A1", "BiasAdd", [X, (1,)], {"strides": [1]}, ("unknown attribute 'strides'", "data_format")),
    # A2
    Row("A2", CONV, [X, W], {"strides": [1.0]}, ("strides must be a list of integers", "one per spatial axis", "1.0")),
    Row("A2", CONV, [X, W], {"strides": np.array([1.0])}, ("strides", "ndarray")),
    Row("A2", CONV, [X, W], {"strides": [True]}, ("strides", "[True] (list)")),
    Row("A2", CONV, [X, W], {"strides": np.array([True])}, ("strides", "ndarray")),
    Row("A2", CONV, [X, W], {"strides": 1}, ("strides must be a list", "got 1 (int). Use strides=[1]")),
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
    Row("A2", convolution, [X, W], {"pads_begin": "SAME"}, ("'SAME' (str). Use auto_pad='same_upper'",)),
    Row("A2", CONV, [(1, 6, 6, 1), (3, 3, 1, 1)], {"strides": 0}, ("got 0 (int) [A2]",)),
    # A3
    Row("A3", CONV, [X, W], {"strides": None}, ("strides is required", "per spatial axis", "functions is strides=[1]")),
    Row("A3", T_WEIGHTS, [T_SRC, T_DST, [3, 1, 1]], {"dilations": None}, ("dilations is required",)),
    # A4
    Row("A4", CONV, [X, W], {"strides": [-1]}, ("strides must be positive", "got [-1]")),
    Row("A4", CONV, [X, W], {"strides": [2**63]}, ("below 2^63", str(2**63))),
    Row("A4", CONV, [X, W], {"pads_begin": [2**63]}, ("non-negative and below 2^63", str(2**63))),
    Row("A4", CONV, [X, W], {"groups": -2}, ("groups must be positive", "got -2")),
    Row("A4", CONV, [X, W], {"pads_begin": [-1]}, ("pads_begin must be non-negative", "[-1]", "cropping")),
    Row("A4", CONV, [X, W], {"pads_end": [-1]}, ("pads_end must be non-negative", "Negative pads (cropping)")),
    Row("A4", CONV, [X, W], {"pads_end": [-1], "auto_pad": "valid"}, ("pads_end must be non-negative",)),
    Row("A4", TRANSPOSE, [T_SRC, T_W], {"output_padding": [-1]}, ("output_padding must be non-negative", "[-1]")),
    Row("A4", convolution, [X, W], {"pads_begin": -3}, ("pads_begin", "-3", "cropping")),
    # A5
    Row("A5", CONV, [X, W], {"auto_pad": "same"}, ("That auto_pad is called same_upper here (PyTorch's 'same') [A5]",)),
    Row("A5", CONV, [X, W], {"data_format": "NHWC"}, ("must be one of NXC, NCX", "'NHWC'", "layout is called NXC")),
    Row("A5", CONV, [X, W], {"data_format": "ncdhw"}, ("'ncdhw'", "That layout is called NCX here")),
    Row("A5", CONV, [X, W], {"data_format": "nxc"}, ("That layout is called NXC here",)),
    Row("A5", CONV, [X, W], {"data_format": "OIX"}, ("must be one of NXC, NCX; got 'OIX'",)),
    Row("A5", CONV, [X, W], {"weights_format": "HWIO"}, ("must be one of XIO, OIX", "That layout is called XIO here")),
    Row("A5", CONV, [X, W], {"weights_format": "IOX"}, ("must be one of XIO, OIX; got 'IOX'",)),
    Row("A5", TRANSPOSE, [T_SRC, T_W], {"weights_format": "IOHW"}, ("one of XOI, IOX", "is called IOX here")),
    Row("A5", TRANSPOSE, [T_SRC, T_W], {"weights_format": "OIX"}, ("'OIX'", "of the Convolution operators", "IOX")),
    Row("A5", TRANSPOSE, [T_SRC, T_W], {"weights_format": "XIO"}, ("of the Convolution operators", "XOI puts")),
    Row("A5", "ConvTranspose-1", [T_SRC, T_W], {"filter_format": "OIX"}, ("filter_format", "IOX puts (in_channels,")),
    Row("A5", CONV, [X, W], {"data_format": "channels_first"}, ("That layout is called NCX here",)),
    Row("A5", CONV, [X, W], {"weights_format": "IOHW"}, ("'IOHW'. IOX is a layout of the ConvTranspose operators",)),
    Row("A5", CONV, [X, W], {"auto_pad": "same"}, ("none, same_upper, same_lower, valid", "'same'")),
    Row("A5", CONV, [X, W], {"auto_pad": "same_uper"}, ("Did you mean same_upper?",)),
    Row("A5", "BiasAdd", [X, (1,)], {"data_format": "NCHW"}, ("That layout is called NCX here",)),
    # A6
    Row("A6", CONV, [X, W], {"strides": [1, 1]}, ("strides must have one value per spatial axis, 1 here", "[1, 1]")),
    Row("A6", CONV, [X, W], {"strides": []}, ("strides must have one value per spatial axis, 1 here", "[]")),
    Row("A6", CONV, [(1, 6, 6, 1), (3, 3, 1, 1)], {"pads_begin": [1]}, ("pads_begin", "2 here; got [1]")),
    Row("A6", CONV, [X, W], {"pads_end": [0, 0], "auto_pad": "same_upper"}, ("pads_end", "1 here; got [0, 0]")),
    Row("A6", TRANSPOSE, [T_SRC, T_W], {"output_padding": [0, 0]}, ("output_padding", "1 here; got [0, 0]")),
    Row("A6", CONV, [(1, 6, 6, 1), (3, 3, 1, 1)], {"strides": [2]}, ("got [2]. Use strides=[2, 2]",)),
    # A7
    Row("A7", WEIGHTS, [X, Y], {}, ("weights_shape must be given, as operand or attribute", "got none")),
    Row("A7", T_WEIGHTS, [T_SRC, T_DST], {}, ("weights_shape must be given",)),
    Row("A7", OLD_FILTERS, [X, Y], {}, ("filter_shape must be given",)),
    Row("A7", OLD_WEIGHTS, [X, Y], {}, ("weights_shape must be given",)),
    Row("A7", backward_weights, [X, Y], {}, ("weights_shape must be given",)),
    # A8, in each of its ways
    Row("A8", DATA, [Y, W], {"strides": [2]}, ("dst_shape must be given, or give output_padding", "0: 9, 10 [A8]")),
    Row("A8", DATA, [Y, W], {"strides": [2], "auto_pad": "same_upper", "output_padding": [1]},
        ("leave output_padding out", "axis 0: 7, 8")),
    Row("A8", DATA, [Y, W], {"auto_pad": "same_lower", "output_padding": [0]}, ("leave output_padding", "axis 0: 4")),
    Row("A8", DATA, [Y, W], {"strides": [4], "auto_pad": "same_upper"}, ("axis 0: 13, 14, 15, 16",)),
    Row("A8", DATA, [(1, 4, 4, 1), (3, 3, 1, 1)], {"strides": [1, 3]}, ("axis 0: 6; axis 1: 12, 13, 14",)),
    Row("A8", OLD_DATA, [Y, W], {"strides": [2]}, ("output_shape must be given, or give output_padding",)),
    Row("A8", DATA, [Y, W], {"strides": [20]}, ("axis 0: 63, 64, ... 82",)),
    Row("A8", backward_data, [Y, W], {"strides": 2}, ("dst_shape must be given", "axis 0: 9, 10")),
    # A9
    Row("A9", DATA, [Y, W], {"strides": [2], "output_padding": [2]}, ("stride; got output_padding 2 and stride 2",)),
    Row("A9", DATA, [Y, W], {"output_padding": [1]}, ("on spatial axis 0", "got output_padding 1 and stride 1")),
    Row("A9", DATA, [Y, W], {"dilations": [5], "output_padding": [1]}, ("got output_padding 1 and stride 1",)),
    Row("A9", TRANSPOSE, [T_SRC, T_W], {"strides": [2], "output_padding": [2]}, ("max(stride, dilation) = 2; got 2",)),
    Row("A9", T_DATA, [T_DST, T_W], {"dilations": [3], "output_padding": [3]}, ("max(stride, dilation) = 3; got 3",)),
    Row("A9", T_DATA, [(1, 4, 1), W], {"auto_pad": "same_upper", "output_padding": [1]}, ("= 1; got 1",)),
    Row("A9", T_WEIGHTS, [T_SRC, T_DST, [3, 1, 1]], {"strides": [2], "output_padding": [5]}, ("= 2; got 5",)),
    # T1 to T5
    *(Row("T1", CONV, [X, np.zeros(W, dtype)], {}, (
        f"weights must be an array of {LISTED}; got {np.dtype(dtype)}", "Use weights.astype(numpy.float32)"))
      for dtype in (np.int8, np.int64, np.bool_)),
    *(Row("T1", CONV, [np.zeros(X, dtype), W], {}, (f"src must be an array of {LISTED}; got {np.dtype(dtype)} [T1]",))
      for dtype in (complex, np.complex64, np.longdouble, float8_e4m3fnuz, np.object_, "S4", "M8[s]")),
    Row("T1", CONV, [X, np.ones(W, np.uint16)], {}, ("The bits of bf16 are weights.view(ml_dtypes.bfloat16) [T1]",)),
    Row("T1", CONV, [X, Tensor(np.ones(W, np.int32))], {}, ("weights must be", "got int32. Use f32")),
    Row("T1", CONV, [[[[1]]], W], {}, ("got int64. Use f32",)),
    Row("T1", (convgrad.clip_scales, "clip_scales"), [[4, 9], 1.0], {}, (". Use numpy.asarray(norm2, numpy.float32)",)),
    Row("T1", CONV, [X, W, [0, 0]], {}, (". Use numpy.asarray(bias, numpy.float32)",)),
    Row("T1", CONV, [[[1.0], [2.0, 3.0]], W], {}, ("src must be an array; got list",)),
    Row("T1", CONV, ["a.npy", W], {}, ("src must be an array of f32", "got str. Use numpy.load(path)")),
    Row("T1", CONV, [Path(), W], {}, (". Use numpy.load(path)",)),
    Row("T1", CONV, [None, W], {"strides": [1]}, ("src must be an array; got None",)),
    Row("T1", CONV, [np.ma.masked_array(np.ones(X, F32), False), W], {}, ("src must be a plain array; got a masked",)),
    Row("T2", CONV, [X, np.ones(W)], {}, ("all operands must have one type; got src f32, weights f64",)),
    Row("T2", CONV, [X, W, np.ones(1, np.float16)], {}, ("got src f32, weights f32, bias f16",)),
    Row("T2", OLD_FILTERS, [X, [3, 1, 1], np.ones(Y)], {}, ("input f32, output_delta f64",)),
    Row("T2", "Convolution-1", [X, [[[1.0]]]], {}, ("input f32, filter f64",)),
    Row("T3", WEIGHTS, [X, Y, [3.0, 1, 1]], {}, ("weights_shape must be a 1-D array of integers", "3.0")),
    Row("T3", WEIGHTS, [X, Y, np.array([3.0, 1, 1])], {}, ("weights_shape", "got f64 of shape (3,)")),
    Row("T3", WEIGHTS, [X, Y, np.ones((1, 3), int)], {}, ("weights_shape", "got int64 of shape (1, 3)")),
    Row("T3", WEIGHTS, [X, Y, 3], {}, ("weights_shape must be a 1-D array of", "Pass the extents of all axes")),
    Row("T3", WEIGHTS, [X, Y, "311"], {}, ("weights_shape", "311")),
    Row("T3", DATA, [Y, W, [1, None, 1]], {}, ("dst_shape", "None")),
    Row("T4", CONV, [X, W], {"dtype": "int8"}, (f"dtype must be one of {', '.join(FORMATS)}; got 'int8'",)),
    *(Row("T4", "BiasAdd", [X, (1,)], {"dtype": dtype}, (f"dtype must be one of {', '.join(FORMATS)}; got {dtype!r}",))
      for dtype in NO_DTYPES),
    Row("T1", (convgrad.explain, CONV), [CONV], {"operand_type": "fp16"}, ("got 'fp16'. Did you mean f16?",)),
    Row("T4", CONV, [X, W], {"dtype": "f64"}, ("dtype f64 needs f64 operands", "f32")),
    Row("T4", CONV, [X, W], {"dtype": float}, ("dtype f64 needs f64 operands",)),
    Row("T5", CONV, [X, W], {"out": np.zeros(Y)}, ("a PyTorch tensor or a NumPy array of f32, the", "got f64")),
    Row("T5", CONV, [X, W], {"out": np.zeros(Y, F32), "dtype": "bf16"}, ("array of bf16", "got f32")),
    Row("T5", CONV, [X, W], {"out": np.zeros(Y, BF16)}, ("got bf16",)),
    Row("T5", CONV, [X, W], {"out": np.zeros(Y, np.int32)}, ("got int32",)),
    Row("T5", CONV, [X, W], {"out": np.zeros(Y, ">f4")}, ("got f32 in foreign byte order",)),
    *(Row("T5", CONV, [X, W], {"out": out}, ("NumPy array of f32", f"got {type(out).__name__}")) for out in (
        [[[0.0]] * 4], Tensor(np.zeros(Y, F32)), bytearray(16),
        np.ma.masked_array(np.zeros(Y, F32), True, hard_mask=True))),  # a hard mask would leave elements unwritten
    Row("D8", (beside_a_library, CONV), [Recorded(), W], {}, ("src must not be recorded; got a Recorded",)),
    Row("D8", (beside_a_library, CONV), [X, W], {"out": Recorded()}, ("out must not be recorded",)),
    # D1 to D6
    Row("D1", CONV, [ON_GPU, W], {"strides": [1]}, ("src must lie in CPU memory", "device (2, 1); copy it")),
    Row("D1", WEIGHTS, [X, ON_GPU, [3, 1, 1]], {}, ("diff_dst must lie in CPU memory",)),
    *(Row("D1", CONV, [X, given], {}, ("weights must be readable through DLPack; got: ",)) for given in (
        Raises(BufferError("no")), Raises(RuntimeError("no")), Raises(AttributeError("no")), NoDevice(), np.ndarray)),
    Row("D2", CONV, [X, W], {"out": np.zeros((1, 4), F32)}, ("the output's shape (1, 4, 1); got (1, 4)",)),
    Row("D2", CONV, [X, W], {"out": np.zeros(X, F32)}, ("(1, 4, 1); got (1, 6, 1)",)),
    Row("D2", CONV, [X, W], {"out": np.zeros((2, 4, 1), F32)}, ("got (2, 4, 1)",)),  # a shape to broadcast to
    Row("D3", CONV, [X, W], {"out": read_only(Y)}, ("out must be writable; got a read-only array",)),
    Row("D3", CONV, [X, W], {"out": np.broadcast_to(F32(0), Y)}, ("out must be writable",)),
    Row("D4", CONV, [SHARED, W], {"out": SHARED[:, 1:5]}, ("not overlap an operand", "memory shared with src")),
    Row("D4", CONV, [X, SHARED[:, :3].reshape(W), SHARED[0, 0]], {"out": SHARED[:, 2:]}, ("shared with weights",)),
    Row("D4", CONV, [X, W, SHARED[0, 5]], {"out": SHARED[:, 2:]}, ("shared with bias",)),
    Row("D4", CONV, [X, W], {"out": overlapping_itself(Y, (0, 0, 0))}, ("not overlap itself", "strides (0, 0, 0)")),
    *(Row("D4", CONV, [X, W], {"out": overlapping_itself(Y, (4, step, 4))[:, ::way]}, ("itself; got shape (1, 4, 1)",))
      for step, way in ((0, 1), (2, 1), (1, -1))),
    Row("D4", "BiasAdd", [(2, 4), (4,)], {"out": overlapping_itself((2, 4), (8, 4))}, ("strides (8, 4)",)),
    Row("D5", CONV, [X, W], {"accumulate": 1}, ("accumulate must be a bool; got 1",)),
    Row("D5", CONV, [X, W], {"accumulate": None}, ("accumulate must be a bool; got None",)),
    Row("D5", CONV, [X, W], {"accumulate": True}, ("must come with out",)),
    Row("D6", CONV, [X, W], {"threads": 0}, ("threads must be a positive integer; got 0",)),
    Row("D6", CONV, [X, W], {"threads": 1.0}, ("got 1.0",)),
    Row("D6", CONV, [X, W], {"threads": True}, ("got True",)),
    Row("D6", CONV, [X, W], {"threads": "2"}, ("got '2'",)),
    Row("D6", CONV, [X, W], {"threads": 2**63}, ("got 9223372036854775808",)),
]  # fmt: skip
