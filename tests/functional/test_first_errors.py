"""Mistakes of the first hour: operands, types and shapes that do not fit are answered with what would."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import convgrad
from convgrad import ConvgradError
from convgrad.graph import LogicalTensor, from_json

F32 = np.float32
SRC, WEIGHTS, DST = (np.ones(shape, F32) for shape in ((2, 9, 8, 3), (3, 3, 3, 4), (2, 7, 6, 4)))
STRICT = {"strides": [1, 1], "dilations": [1, 1]}
CALLS: dict[str, Callable[[], object]] = {
    "; numpy.asarray(src, numpy.float32) would do": lambda: convgrad.convolution(np.ones(SRC.shape), WEIGHTS),
    "; numpy.asarray(weights, numpy.float32) would do": lambda: convgrad.convolution(SRC, WEIGHTS.tolist()),
    "numpy.asarray(src, numpy.float32) and numpy.asarray(diff_dst, numpy.float32)": lambda: (
        convgrad.convolution_backward(np.ones(SRC.shape), np.ones(DST.shape), WEIGHTS)
    ),
    "; src.astype(numpy.float32) would do": lambda: convgrad.convolution(np.ones(SRC.shape, int), WEIGHTS),
    "; bias is the values themselves": lambda: convgrad.convolution(SRC, WEIGHTS, True),
    "; numpy.asarray(bias, numpy.float32) would do": lambda: convgrad.convolution(SRC, WEIGHTS, [0, 0, 0, 0]),
    "; numpy.asarray(norm2, numpy.float32) would do": lambda: convgrad.clip_scales([4, 9], 1.0),
    "looks like a shape, which explain and infer_shapes take": lambda: convgrad.run(
        "Convolution", SRC.shape, WEIGHTS.shape, **STRICT
    ),
    "of shape (2, 9, 8, 3); its .shape is": lambda: convgrad.explain("Convolution", SRC, WEIGHTS, **STRICT),
    "of shape (3, 3, 3, 4); its .shape is": lambda: convgrad.convolution_backward_weights(SRC, DST, WEIGHTS),
    "the extents of all axes are wanted": lambda: convgrad.convolution_backward_weights(SRC, DST, 3),  # type: ignore[arg-type]
    "XIO is (spatial axes, in_channels": lambda: convgrad.convolution_backward_weights(SRC, DST, (3, 3)),
    "NXC is (batch, spatial axes, channels)": lambda: convgrad.convolution_backward_data(DST, WEIGHTS, (9, 8)),
    "; one image alone is src[None]": lambda: convgrad.convolution(SRC[0], WEIGHTS),
    "is src[None, ..., None] in NXC, src[None, None] in NCX": lambda: convgrad.convolution(SRC[0, :, :, 0], WEIGHTS),
    ".astype(numpy.float64) of each would do": lambda: convgrad.convolution(SRC, WEIGHTS, dtype="float64"),
    "got 'fp32'; did you mean f32?": lambda: convgrad.convolution(SRC, WEIGHTS, dtype="fp32"),
    "got 'fp16'; did you mean f16?": lambda: convgrad.explain("Convolution", operand_type="fp16"),
    "; auto_pad='same_upper' would do": lambda: convgrad.convolution(SRC, WEIGHTS, pads_begin="SAME"),  # type: ignore[arg-type]
    "did you mean pads_begin=[1, 1], pads_end=[2, 2]?": lambda: convgrad.convolution(
        SRC, WEIGHTS, pads_begin=[1, 1, 2, 2]
    ),
    "; weights have in_channels / groups = 1 where these have 3": lambda: convgrad.convolution(
        SRC, WEIGHTS[..., :3], groups=3
    ),
    "by their places and not by name": lambda: convgrad.run("Convolution", src=SRC, weights=WEIGHTS, **STRICT),
    "; leave it out for all cores": lambda: convgrad.convolution(SRC, WEIGHTS, threads=-1),
}


@pytest.mark.parametrize("words", CALLS)
def test_what_would_fit_is_said(words: str) -> None:
    with pytest.raises(ConvgradError) as caught:
        CALLS[words]()
    assert words in str(caught.value)


def test_what_is_said_of_types_and_shapes_is_taken() -> None:
    assert convgrad.convolution(np.asarray(SRC.tolist(), F32), WEIGHTS).dtype == F32
    one = SRC[0, :, :, 0]
    for image, formats in ((one[None, ..., None], {}), (one[None, None], {"data_format": "NCX"})):
        assert convgrad.convolution(image, WEIGHTS[:, :, :1], **formats).ndim == 4


def test_dtypes_of_every_spelling_are_one() -> None:
    for dtype in ("f32", "float32", F32, np.dtype(F32)):
        assert convgrad.convolution(SRC, WEIGHTS, dtype=dtype).dtype == F32


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("conv2d", "; convolution takes any"),
        ("set_num_threads", r"; convgrad\.threads"),
        ("ConvTranspose1d", "; conv_transpose takes"),
    ],
)
def test_layers_of_other_libraries_are_no_attributes(name: str, words: str) -> None:
    with pytest.raises(AttributeError, match=words) as caught:
        getattr(convgrad, name)
    assert (caught.value.name, caught.value.obj) == (name, convgrad)  # of which Python makes its own suggestion


def test_a_path_for_a_text_of_a_graph() -> None:
    with pytest.raises(convgrad.GraphError, match=r"must be JSON; .*; convgrad\.graph\.read takes a path$"):
        from_json("step.json")


def test_a_type_of_a_graph() -> None:
    with pytest.raises(convgrad.GraphError, match=r"got 'float32'; did you mean f32\?$"):
        LogicalTensor(0, "float32", (1, 8))
