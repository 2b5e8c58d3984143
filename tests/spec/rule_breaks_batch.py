"""Calls that break a rule of layers, pieces of a batch or samples, and what the errors say: rows of test_rules.py."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np

import convgrad
from convgrad import scale
from convgrad.engines import openmp
from convgrad.notation import problem
from convgrad.scale.checkpoint import checkpoint_of
from convgrad.scale.progress import reporting
from tests.spec.rule_breaks import BIAS, CONV, F32, WEIGHTS, Row, W, X, Y

pieces = (lambda *given, **rest: convgrad.partials(BIAS, *given, **rest), BIAS)
joined = (lambda *given, **rest: convgrad.join(given, **rest), BIAS)
joined_alone = (convgrad.join, "join")
nothing_joined = (lambda *given: convgrad.join(given), "join")
weighted = (lambda *given, **rest: convgrad.weighted_weights_sum(*given, W, **rest), WEIGHTS)
norms = (lambda *given, **rest: convgrad.per_sample_weights_norm2(*given, W, **rest), WEIGHTS)
clipped = (lambda *given, **rest: convgrad.clipped_weights_sum(*given, W, **rest), WEIGHTS)
bounded = (lambda *given, **rest: convgrad.error_bound(WEIGHTS, *given, weights_shape=W, **rest), WEIGHTS)
threads = (lambda **given: convgrad.threads(**given).__enter__(), "threads")
forked = (patch.object(openmp, "_process", 0)(threads[0]), "threads")
within = (lambda most: convgrad.max_error(most).__enter__(), "max_error")
joint = (convgrad.convolution_backward, "convolution_backward")
compiled = (lambda x, w, *given: convgrad.compile(CONV, x, w, strides=[1], dilations=[1])(*given), CONV)
V = np.ones(Y, F32)
pullback = convgrad.vjp(CONV, np.ones(X, F32), np.ones(W, F32))[1]
pulled = (pullback, CONV)
pulled_twice = (lambda needs, v: pullback.vjp(V, needs)[1](v), CONV)
pulled_thrice = (lambda v, needs: (first := pullback.vjp(V))[1].vjp(first[0])[1](v, needs), CONV)
larger = (lambda *given, **rest: scale.run(BIAS, *given, **rest), BIAS)
larger_forward = (lambda *given, **rest: scale.run(CONV, *given, **rest), CONV)
SOME = np.zeros(1)
told_of = (lambda progress: reporting(CONV, progress).__enter__(), CONV)
kept = (
    lambda path="place", out=SOME, accumulate=False: checkpoint_of(
        replace(problem("FWD_D f32 NXC mb1ic1iw3oc1ow3kw1"), accumulate=accumulate), path, [], out
    ),
    CONV,
)


class Only:
    """What slices, and takes nothing."""

    def __init__(self, shape: Any, dtype: str) -> None:
        self.shape, self.dtype = shape, np.dtype(dtype)

    def __getitem__(self, region: object) -> object:
        raise NotImplementedError


class Both(Only):
    """What slices and takes regions."""

    def __setitem__(self, region: object, given: object) -> None:
        raise NotImplementedError


class Strange(Only):
    """What has a type that is none of NumPy's."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__(shape, "f4")
        self.dtype: Any = "strange"


BOTH = Both(X, "f4")


def piece(begin: int, end: int, channels: int = 1, operand_type: type = F32) -> convgrad.Partials:
    """Images of 7 x 7 positions: leaves of 5."""
    return convgrad.partials(BIAS, np.ones((end - begin, 7, 7, channels), operand_type), first=begin)


SHARED_PIECE = piece(0, 5)

TWICE = {"strides": 2, "transposed": True, "output_padding": 0}
NAN, BUFFERS = np.full(X, np.nan, F32), {"src": np.ones(X, F32), "weights": np.ones(W, F32)}
SOURCE = np.ones(X, F32)

ROWS = [
    Row("D9", WEIGHTS, [X, Y, [3, 1, 1]], {"max_error": "8"}, ("max_error must be a number, 1 at least; got '8'",)),
    *(Row("D9", within, [most], {}, (f"max_error must be a number, 1 at least; got {most}",)) for most in (
        0.5, -1, float("nan"), None)),
    # gradients of a layer in one call
    Row("O3", joint, [X, Y, W], {"needs": ["dst"]}, ("needs must hold names of src, weights, bias; got 'dst'",)),
    Row("O3", joint, [X, Y, W], {"needs": ([],)}, ("needs must hold names", "got []")),
    Row("O3", joint, [X, Y, W], {"needs": None}, ("needs must be a tuple of names", "got None")),
    Row("O3", joint, [X, Y, W], {"needs": [np.array([1])]}, ("needs", "got array([1])")),
    Row("O3", joint, [X, Y, W], {"out": BUFFERS, "accumulate": np.array(1)}, ("accumulate", "got array(1)")),
    Row("O3", joint, [X, Y, W], {"out": {"dst": SOURCE}}, ("out", "got 'dst'")),
    Row("O3", joint, [X, Y, W], {"out": SOURCE}, ("out must be a mapping", "or a tuple of 3; got ndarray")),
    Row("O3", joint, [X, Y, W], {"out": (None, None)}, ("out must be a mapping", "got tuple")),
    Row("O3", joint, [X, Y, W], {"dtype": {"dst": "f32"}}, ("dtype", "got 'dst'")),
    Row("T4", joint, [X, Y, W], {"dtype": {"bias": "int8"}}, ("dtype must be one of", "got 'int8'")),
    Row("T4", joint, [X, Y, W], {"dtype": {"bias": "f64"}}, ("dtype f64 needs f64 operands",)),
    Row("D5", joint, [X, Y, W], {"accumulate": True}, ("accumulate=True must come with out", "got no out")),
    Row("D5", joint, [X, Y, W], {"accumulate": 1, "out": BUFFERS}, ("must be a bool or a tuple of", "got 1 [D5]")),
    Row("D5", joint, [X, Y, W], {"accumulate": "weights"}, ("names of src, weights, bias; got", "Use ('weights',)")),
    Row("D5", joint, [X, Y, W], {"accumulate": ["bias"], "out": BUFFERS}, ("accumulate", "got none for bias")),
    Row("D6", joint, [X, Y, W], {"threads": 0}, ("threads must be a positive integer; got 0",)),
    Row("T1", joint, [X, Y, [3, 1, 1]], {}, ("weights", "as the gradient of src is", "got the shape (3, 1, 1)")),
    Row("T1", joint, [[1, 6, 1], Y, W], {}, ("src must be an array, as the gradient of weights",)),
    Row("T1", joint, [X, [1, 4, 1], W], {}, ("diff_dst must be an array",)),
    Row("T2", joint, [np.ones(X), np.ones(Y), W], {}, (
        "Use src.astype(weights.dtype) and diff_dst.astype(weights.dtype)",)),
    Row("G6", joint, [X, (1, 3, 1), W], {}, ("diff_dst extent must be",)),
    Row("G9", joint, [X, Y, [3, 1]], {"needs": ["bias"]}, ("weights must hold 3 non-negative",)),
    # an out that another gradient reads: none is written
    *(Row(rule, (joint[0], name), [SOURCE, V, W], {"out": {"src": NAN} | out}, words) for rule, name, out, words in (
        ("D3", WEIGHTS, {"weights": np.broadcast_to(F32(1), W)}, ("out must be writable",)),
        ("D4", "ConvolutionBackwardData", {"src": SOURCE}, ("not overlap an operand; got memory shared with src",)),
        ("D4", WEIGHTS, BUFFERS | {"weights": BUFFERS["src"][0, :3, None]}, (
            "the out of weights must not overlap that of another", "with the out of src [D4]")),
        ("D2", WEIGHTS, {"weights": SOURCE}, ("out must have the output's shape (3, 1, 1)",)))),
    # pullbacks
    Row("O3", pulled, [V, ["bias"]], {}, ("needs must hold names or numbers of src, weights; got 'bias'",)),
    Row("O3", pulled, [V, "src"], {}, ("a tuple of names or numbers of src, weights; got 'src'. Use ('src',)",)),
    Row("O3", pulled, [V, 1], {}, ("must be a tuple of", "got 1. Use (1,)")),
    Row("O3", pulled, [V, [2]], {}, ("got 2 [O3]",)),
    Row("O3", pulled, [V, [True]], {}, ("got True [O3]",)),
    Row("O3", pulled, [V, [["src"]]], {}, ("got ['src'] [O3]",)),
    Row("O3", pulled_thrice, [[None] * 3, ["u"]], {}, ("numbers of src, weights, v; got 'u'",)),
    Row("D7", pulled, [(1, 3, 1)], {}, ("v must have its result's shape (1, 4, 1); got (1, 3, 1)",)),
    Row("T6", pulled, [np.ones(Y)], {}, ("v must be of f32, its result's type; got f64",)),
    Row("T1", pulled, [None], {}, ("v must be an array; got None",)),
    Row("O2", pulled_twice, [None, [V]], {}, ("cotangents of 2 gradients; got 1 of them",)),
    Row("O2", pulled_twice, [None, V], {}, ("got ndarray",)),
    Row("D7", pulled_twice, [["src"], [None, V]], {}, ("v[1] must be None, as there is no such gradient",)),
    Row("D7", pulled_twice, [None, [V, None]], {}, ("v[0] must have its result's shape (1, 6, 1)",)),
    Row("A1", (convgrad.vjp, CONV), [CONV, X, W], {"colour": 1}, ("unknown attribute 'colour'",)),
    Row("D6", (convgrad.vjp, CONV), [CONV, X, W], {"threads": 0}, ("threads must be a positive integer",)),
    # options
    Row("D13", CONV, [X, W], {"activation": "gelu"}, ('activation must be None or "relu"; got \'gelu\'',)),
    Row("D13", BIAS, [X], {"activation": "relu"}, ("belongs to Convolution, ConvTranspose, BiasAdd", "got 'relu'")),
    Row("D10", bounded, [X, Y], {"bound": "path"}, ("one of paths, norms, kappa; got 'path'", "the tightest")),
    Row("D11", threads, [], {"pool": "theirs"}, ("pool must be one of own, openmp; got 'theirs'",)),
    Row("D12", forked, [], {"pool": "openmp"}, ("pool must be own here; got openmp: ",)),
    Row("D6", threads, [], {}, ("threads must be a positive integer; got None",)),
    Row("D6", pieces, [Y], {"threads": 0}, ("threads must be a positive integer; got 0",)),
    Row("D6", pieces, [Y], {"threads": 100_000}, ("threads must be at most 4096; got 100000; leave it out for all",)),
    Row("D5", joined, [piece(0, 5)], {"accumulate": True}, ("must come with out",)),
    Row("D2", joined, [piece(0, 5)], {"out": np.zeros(2, F32)}, ("the output's shape (1,); got (2,)",)),
    Row("D4", joined, [SHARED_PIECE], {"out": SHARED_PIECE.sums[0]}, ("memory shared with sum 0 of the parts",)),
    Row("T4", joined, [piece(0, 5)], {"dtype": "f64"}, ("dtype must not be f64, because the sums are kept in f32",)),
    # compiled calls
    Row("T6", compiled, [X, W, np.ones(X), np.ones(W)], {}, ("src must be of f32, the type it was", "got f64")),
    Row("T6", compiled, [X, W, X, np.ones(W, np.float16)], {}, ("weights must be of f32", "got f16")),
    Row("D7", compiled, [X, W, X, Y], {}, ("weights must have the shape it was", "(3, 1, 1); got (1, 4, 1)")),
    Row("D7", compiled, [X, W, (2, 6, 1), W], {}, ("src must have the shape", "(1, 6, 1); got (2, 6, 1)")),
    Row("O2", compiled, [X, W, X], {}, ("it was compiled for the operands src, weights; got 1",)),
    Row("T1", compiled, [X, W, X, np.ones(W, np.int8)], {}, ("weights must be an array of f32", "got int8")),
    # P1 to P5
    Row("P1", (convgrad.partials, CONV), [CONV, X, W], {}, ("must sum over the batch, as ConvolutionBackwardWeights",)),
    Row("P1", (convgrad.partials, "BiasAdd"), ["BiasAdd", X, (1,)], {}, ("computes each image separately",)),
    Row("P2", pieces, [np.ones(Y)], {}, ("f64 arrays cannot be computed in pieces. Use f32",)),
    Row("P3", pieces, [(8, 7, 7, 1)], {"first": 12}, ("must be a multiple of 5", "got 12. Use 10 or 15")),
    Row("P3", pieces, [(8, 7, 7, 1)], {"first": -5}, ("must be a multiple of 5, the images of a leaf; got -5 [P3]",)),
    Row("P3", pieces, [(8, 7, 7, 1)], {"first": 5.0}, ("first, the first image", "got 5.0")),
    Row("P4", nothing_joined, [], {}, ("parts must contain at least one part", "got none")),
    Row("P4", joined_alone, [piece(0, 5)], {}, ("must be a list", "got Partials. Use [part]")),
    Row("P4", nothing_joined, [np.ones(1)], {}, ("must be results of partials; got ndarray",)),
    Row("P4", joined, [piece(0, 5), piece(5, 9, 2)], {}, ("must be of one problem", "got channels 1 and 2")),
    Row("P4", joined, [piece(0, 5), piece(5, 9, 1, np.float16)], {}, ("got operand_type f32 and f16",)),
    Row("P4", joined, [piece(0, 5), replace(piece(5, 15), sums=())], {}, ("15 must be 2 of f32 1; got none",)),
    Row("P4", joined, [replace(piece(0, 5), sums=(np.zeros((1, 1), F32),))], {}, ("of f32 1; got f32 1x1",)),
    Row("P4", joined, [replace(piece(0, 5), sums=(np.zeros(1),))], {}, ("must be 1 of f32 1; got f64 1",)),
    Row("P5", joined, [piece(0, 10), piece(15, 20)], {}, ("must begin where", "images 10 to before 15 are missing")),
    Row("P5", joined, [piece(0, 15), piece(5, 5), piece(5, 15)], {}, ("images 5 to before 15 are of two parts",)),
    Row("P5", joined, [piece(5, 10)], {}, ("images 0 to before 5 are missing",)),
    Row("P5", joined, [piece(5, 15), piece(0, 10)], {}, ("images 5 to before 10 are of two parts",)),
    Row("P5", joined, [piece(0, 12), piece(15, 20)], {}, ("12 to before 15 are missing", "a leaf. Use 10 or 15")),
    Row("P5", joined, [piece(0, 12), piece(10, 20)], {}, ("10 to before 12 are of two", "12 is inside a leaf")),
    # samples
    *(Row("D4", call, [SOURCE, V], more | {"out": array[0, :3, None]}, (f"memory shared with {name}",))
      for name, array in (("src", SOURCE), ("diff_dst", V))
      for call, more in ((weighted, {"scale": [2.0]}), (clipped, {"max_norm": 1.0}))),
    Row("D4", (convgrad.weighted_bias_sum, BIAS), [V], {"scale": [2.0], "out": V[0, 0]}, ("shared with diff_dst",)),
    *(Row("G7", (call[0], "ConvTransposeBackwardWeights"), [X, (1, 14, 1)], more | TWICE, ("+ 0; got 14",))
      for call, more in ((norms, {}), (weighted, {"scale": [1.0]}))),
    Row("A1", norms, [X, Y], {"output_padding": 0}, ("output_padding",)),
    Row("A2", weighted, [X, Y], {"scale": [1.0], "transposed": "no"}, ("transposed must be a bool; got 'no'",)),
    Row("A2", clipped, [X, Y], {"max_norm": 1, "transposed": 0}, ("transposed must be a bool; got 0",)),
    Row("A2", norms, [X, Y], {"transposed": None}, ("transposed must be a bool; got None",)),
    Row("S1", weighted, [X, Y], {"scale": [1.0, 2.0]}, ("one value per image of src, the shape (1,); got (2,)",)),
    Row("S1", weighted, [X, Y], {"scale": 1.0}, ("the shape (1,); got ()",)),
    Row("S2", clipped, [X, Y], {"max_norm": 0}, ("max_norm must be a positive number; got 0",)),
    Row("S2", clipped, [X, Y], {"max_norm": float("nan")}, ("got nan",)),
    Row("S2", clipped, [X, Y], {"max_norm": -(10**400)}, ("got an integer of 1329 bits",)),
    Row("S2", clipped, [X, Y], {"max_norm": True}, ("got True",)),
    Row("S2", clipped, [X, Y], {"max_norm": "1"}, ("got '1'",)),
    # M1, M2, and what is as of other calls
    Row("M1", larger, [Y], {"memory": "much"}, ('such as "1GB" or "512MiB"; got \'much\'',)),
    Row("M1", larger, [Y], {"memory": 0}, ("must be a positive number of bytes", "got 0")),
    Row("M1", larger, [Y], {"memory": 1e9}, ("got 1000000000.0. Use 1000000000 [M1]",)),
    Row("M1", larger, [Y], {"memory": float("inf")}, ("got inf [M1]",)),
    Row("M1", larger, [Y], {"memory": True}, ("got True",)),
    Row("M2", larger, [(9, 7, 7, 4)], {"memory": 1}, ("a piece of 5 images", "sums 32 B, the result 16 B; got 1 [M2]")),
    Row("M2", larger_forward, [X, W], {"memory": 1}, ("the result 16 B (an out in a file takes none); got 1 [M2]",)),
    Row("P2", larger, [np.ones(Y)], {}, ("f64 arrays cannot be computed in pieces. Use f32",)),
    Row("P2", larger_forward, [np.ones(X), np.ones(W)], {}, ("f64 arrays cannot be computed in pieces. Use f32",)),
    Row("T5", larger, [Y], {"out": Only((1,), "f2")}, ("out must be of f32, the output's type; got float16",)),
    Row("D2", larger, [Y], {"out": Only((2,), "f4")}, ("the output's shape (1,); got (2,)",)),
    Row("D3", larger, [Y], {"out": Only((1,), "f4")}, ("must accept out[region] = array; got Only",)),
    Row("D4", larger_forward, [BOTH, W], {"out": BOTH, "auto_pad": "same_upper"}, ("got the object of src",)),
    Row("G9", larger, [Only((2, float("nan"), 1), "f4")], {}, ("diff_dst must have a shape", "shape (2, nan, 1)")),
    Row("G9", larger, [Only(3, "f4")], {}, ("of non-negative integers; got shape 3",)),
    Row("T1", larger, [Strange(Y)], {}, ("must have the dtype of a NumPy array; got 'strange'",)),
    # K1, K2
    Row("K1", kept, [], {"path": 3}, ("checkpoint must be the path of a file; got 3",)),
    Row("K1", kept, [], {"out": None}, ("must come with out, because it stores the finished parts", "got no out")),
    Row("K1", kept, [], {"accumulate": True}, ("must come with an out that is not added to", "got accumulate=True")),
    Row("K2", told_of, ["yes"], {}, ("progress must be True or a callable", "got 'yes'")),
]  # fmt: skip
