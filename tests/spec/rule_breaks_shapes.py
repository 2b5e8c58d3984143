"""Calls whose shapes break a rule, and what the errors say: rows of test_rules.py."""

from __future__ import annotations

import convgrad
from convgrad import infer_shapes
from tests.spec.rule_breaks import (
    CONV,
    DATA,
    OLD_DATA,
    OLD_FILTERS,
    T_DATA,
    T_DST,
    T_SRC,
    T_W,
    T_WEIGHTS,
    TRANSPOSE,
    WEIGHTS,
    Row,
    W,
    X,
    Y,
    convolution,
)

backprop_data = (convgrad.convolution_backprop_data, OLD_DATA)
S, D = (2, 12, 10, 3), (2, 8, 8, 5)
FAR, huge = 2**55, 2**62

NEGATIVE = [  # as lists, so that they stay shapes
    (CONV, [-2, 5, 1], [3, 1, 1]),
    (CONV, [2, -5, 1], [3, 1, 1]),
    (CONV, [2, 5, -1], [3, -1, 1]),
    (CONV, [2, 5, 1], [3, 1, -1]),
    (CONV, [2, 5, 1], [-3, 1, 1]),
    (WEIGHTS, [-2, 5, 1], [-2, 3, 1], [3, 1, 1]),
    (DATA, [-2, 5, 1], [3, 1, 1], [2, 7, 1]),
    (TRANSPOSE, [-2, 5, 1], [3, 1, 1]),
    ("BiasAdd", [2, -5, 3], [3]),
    ("BiasAddBackward", [2, -5, 3]),
    ("BiasAddBackward", [2, 5, -3]),
]

ROWS = [
    # G1
    Row("G1", CONV, [(1, 6, 6, 1), W], {}, ("spatial axes + 2, at least 3", "src of rank 4, weights of rank 3")),
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
    Row("G4", CONV, [(1, 6, 3), (3, 3, 6)], {"groups": 3}, ("in_channels / groups = 1 where these have 3",)),
    Row("G3", CONV, [(1, 6, 1), (3, 1, 1)], {"groups": huge}, (f"got {huge} and 1",)),
    # G4, with the hint that fits
    Row("G4", CONV, [(1, 6, 5), (3, 4, 2)], {}, ("src channels must be weights channels x groups = 4 x 1", "got 5",
                                                 "(3, 4, 2) (XIO)")),
    Row("G4", CONV, [(1, 6, 12), (3, 4, 2)], {"groups": 2}, ("= 4 x 2", "got 12")),
    Row("G4", CONV, [(1, 6, 1), (4, 1, 3)], {"weights_format": "OIX", "data_format": "NCX"},
        ("src channels must be weights channels x groups = 1 x 1", "got 6", "(4, 1, 3) (OIX)")),
    Row("G4", CONV, [(1, 6, 5), (4, 5, 3)], {"weights_format": "OIX", "groups": 5}, ("= 5 x 5", "got 5")),
    Row("G4", WEIGHTS, [(1, 6, 5), (1, 4, 2), [2, 5, 3]], {}, ("diff_dst channels must be weights channels = 3",)),
    Row("G4", WEIGHTS, [(1, 6, 5), (1, 4, 2), [2, 5, 3]], {}, ("XIO). These shapes fit data_format='NXC', weights_f",)),
    Row("G4", CONV, [(1, 3, 2), (4, 3, 1)], {}, ("got 2 and", "fit data_format='NCX', weights_format='OIX' [G4]")),
    Row("G4", WEIGHTS, [(1, 5, 6), (1, 3, 5), [2, 5, 3]], {}, ("fit data_format='NCX', weights_format='XIO' [G4]",)),
    Row("G3", CONV, [(2, 4, 9, 9), (6, 2, 3, 3)], {"groups": 2}, ("data_format='NCX', weights_format='OIX' [G3]",)),
    # in another order (src 2x12x10x3, dst 2x8x8x5, weights 5x3x3x5)
    *(Row(rule, operator, operands, given, (f"order {words} with data_format='NXC', weights_format='XIO'; the order",))
      for rule, operator, operands, given, words in (
        ("G4", WEIGHTS, [D, S, [5, 3, 3, 5]], {}, "diff_dst, src, weights_shape"),
        ("G4", WEIGHTS, [D, S], {"weights_shape": [5, 3, 3, 5]}, "diff_dst, src"),
        ("G2", DATA, [(5, 3, 3, 5), D, [2, 12, 10, 3]], {}, "weights, diff_dst, dst_shape"))),
    Row("G4", DATA, [(1, 4, 2), (3, 5, 4)], {}, ("diff_dst channels must be weights channels = 4", "got 2")),
    Row("G4", DATA, [(1, 4, 2), (3, 5, 2), [1, 6, 7]], {}, ("dst_shape channels must be", "= 5 x 1", "got 7")),
    Row("G4", TRANSPOSE, [(1, 3, 2), (3, 2, 4)], {}, ("src channels must be weights channels = 4", "(XOI)")),
    # ConvTranspose weights are (in, out/g); (in/g, out) is a slip that gets its own words
    Row("G4", TRANSPOSE, [(1, 4, 3), (2, 8, 3)], {"groups": 2, "data_format": "NCX", "weights_format": "IOX"},
        ("src channels must be weights channels = 2; got 4", "They fit (in_channels / groups, out_channels)",
         "ConvTranspose weights are (in_channels, out_channels / groups)", "here (4, 4, 3) in IOX")),
    Row("G4", TRANSPOSE, [(1, 3, 4), (3, 8, 2)], {"groups": 2}, ("They fit (in_channels / groups,", "(3, 4, 4)")),
    Row("G4", T_DATA, [(1, 7, 8), (3, 8, 2)], {"groups": 2}, (
        "diff_dst channels must be weights channels x groups = 8 x 2", "(in_channels, out_channels /", "(3, 4, 4)",
    )),
    Row("G4", T_WEIGHTS, [(1, 3, 4), (1, 7, 8), [3, 8, 2]], {"groups": 2}, ("(in_channels / groups, out", "(3, 4, 4)")),
    # G5
    Row("G5", CONV, [X, (0, 1, 1)], {}, ("weights must have no empty dimension; got (0, 1, 1)",)),
    Row("G5", WEIGHTS, [X, Y, [3, 0, 1]], {}, ("weights_shape must have no empty dimension; got (3, 0, 1)",)),
    Row("G5", T_DATA, [T_DST, (3, 1, 0)], {}, ("weights must have no empty dimension; got (3, 1, 0)",)),
    # G6
    Row("G6", WEIGHTS, [X, (1, 3, 1), [3, 1, 1]], {}, ("diff_dst extent", "floor((6 + 0 - 3)/1) + 1 = 4; got 3",
                                                       "Kernels that fit: 4 [G6]")),
    Row("G6", WEIGHTS, [X, (1, 4, 1), [3, 1, 1]], {"strides": [2]}, ("floor((6 + 0 - 3)/2) + 1 = 2; got 4",
                                                                     "Kernels that fit: none")),
    Row("G6", WEIGHTS, [X, Y, [3, 1, 1]], {"auto_pad": "same_upper"}, ("= floor((6 + 2 - 3)/1) + 1 = 6; got 4",)),
    Row("G6", WEIGHTS, [(1, 1, 1), (1, 1, 1), [2, 1, 1]], {"strides": [2]}, ("= 0; got 1", "Kernels that fit: 1")),
    Row("G6", DATA, [Y, W, [1, 5, 1]], {}, ("dst_shape extent I must satisfy floor((I + P - E)/s) + 1 = O",
                                            "floor((5 + 0 - 3)/1) + 1 = 3; got O = 4", "legal extents: 6.",
                                            "pads_begin + pads_end that fit: 1 [G6]")),
    Row("G6", DATA, [Y, W, [1, 7, 1]], {}, ("floor((7 + 0 - 3)/1) + 1 = 5; got O = 4", "legal extents: 6 [G6]")),
    Row("G6", DATA, [Y, W, [1, 11, 1]], {"strides": [2]}, ("legal extents: 9, 10",)),
    Row("G6", DATA, [(1, 2, 2, 1), (3, 3, 1, 1), [1, 4, 9, 1]], {}, ("on spatial axis 1", "legal extents: 4")),
    Row("G6", DATA, [Y, W, [1, 9, 1]], {"strides": [2], "auto_pad": "same_lower"}, ("legal extents: 7, 8 [G6]",)),
    Row("G6", DATA, [(1, 1, 1), W], {"pads_begin": [4]}, ("no diff_src extent", "= 1(1 - 1) + 3 - 4 + 0 = -1",
                                                          "legal extents: none")),
    Row("G6", OLD_DATA, [Y, W, [8]], {}, ("output_shape extent I", "legal extents: 6")),
    Row("G6", DATA, [(1, 3, 1), W, [1, 10, 1]], {"strides": [2], "output_padding": [3]}, ("legal extents: 7, 8",)),
    Row("G6", WEIGHTS, [(1, 5, 1), (1, 2, 1), [3, 1, 1]], {"strides": [FAR]}, ("= 1; got 2",)),
    Row("G6", DATA, [(1, 2, 1), W, [1, 5, 1]], {"strides": [FAR]}, (f"legal extents: {FAR + 3}, {FAR + 4}, ... ",)),
    Row("A8", DATA, [(1, 1, 1), W], {"strides": [FAR]}, (f"axis 0: 3, 4, ... {FAR + 2}",)),
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
    Row("G8", CONV, [(1, 2, 1), W], {"strides": [FAR]}, (f"floor((2 + 0 - 3)/{FAR}) + 1 = 0",)),
    Row("G8", CONV, [(1, 5, 1), (2, 1, 1)], {"dilations": [FAR]}, (f"floor((5 + 0 - {FAR + 1})/1) + 1",)),
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
    *(Row("G9", (lambda *shapes, name=name, **given: infer_shapes(name, *shapes, **given), name), shapes, {}, (
        "must hold non-negative extents; got",)) for name, *shapes in NEGATIVE),
    Row("G9", backprop_data, [Y, W, [6]], {}, ("output_shape must hold 3 non-negative extents", "got [6]")),
    # G10
    Row("G10", CONV, [X, W], {"pads_begin": [huge]}, ("size in bytes must fit 63 bits", str(huge + 4))),
    Row("G10", TRANSPOSE, [T_SRC, T_W], {"strides": [huge]}, ("63 bits", str(2 * huge + 3))),
    Row("G10", CONV, [X, W], {"pads_begin": [huge], "pads_end": [huge]}, ("63 bits",)),
    Row("G10", TRANSPOSE, [(1, 2, 2, 1), (3, 3, 1, 1)], {"strides": [FAR, FAR]}, ("63 bits",)),
    Row("G10", TRANSPOSE, [(1, 5, 1), W], {"strides": [2**61]}, ("63 bits", str(2**63 + 3))),
    Row("G10", DATA, [(1, 1, 1), (1, 1, 1), [1, huge, 1]], {"strides": [huge]}, ("63 bits", str(huge))),
    # G11
    Row("G11", CONV, [X, W, (2,)], {}, ("bias must be 1-D with one value per channel of dst, 1; got shape (2,)",)),
    Row("G11", CONV, [X, W, (1, 1)], {}, ("bias must be 1-D", "(1, 1)")),
    Row("G11", CONV, [X, W, ()], {}, ("bias must be 1-D", "got shape ()")),
    Row("G11", TRANSPOSE, [(1, 3, 4), (3, 3, 4), (3,)], {"groups": 2}, ("channel of dst, 6; got shape (3,)",)),
    Row("G11", "BiasAdd", [(1, 6, 3), (4,)], {}, ("channel of src, 3; got (4,) [G11]",)),
    Row("G11", "BiasAdd", [(1, 6, 3), (6,)], {}, ("channel of src, 3; got (6,)", "fit data_format='NCX'")),
    Row("G11", "BiasAdd-1", [(1, 6, 3), (3,)], {"data_format": "NCX"}, ("channel of input, 6", "data_format='NXC'")),
]  # fmt: skip
