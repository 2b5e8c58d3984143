"""Hard cases that must be refused."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

import convgrad
from convgrad import ConvgradError, InvalidAttributeError, InvalidShapeError
from tests.support.hard_cases import FAR, OPERATORS, Shape, plain

pytestmark = pytest.mark.timeout(60)  # a call that never returns is one of the cases


class Refused(NamedTuple):
    """A call by shapes in NCX and OIX or IOX, and the error it must raise."""

    id: str
    operator: str
    shapes: tuple[Shape, ...]
    attributes: dict[str, Any]
    error: type[ConvgradError]


FORWARD, DATA, BACK = OPERATORS[False]
FORWARD_UP, DATA_UP, BACK_UP = OPERATORS[True]
SHAPE, ATTRIBUTE = InvalidShapeError, InvalidAttributeError


def refused(id_: str, operator: str, shapes: tuple[Shape, ...], error: type[ConvgradError], **short: Any) -> Refused:
    attributes = plain("", shapes[0], shapes[1], shapes[0][2:], **short).attributes
    formats = {"data_format": "NCX", "weights_format": "IOX" if operator in OPERATORS[True] else "OIX"}
    return Refused(id_, operator, shapes, attributes | formats, error)


REFUSED = (
    refused("pytorch#147362 two positions", BACK, ((1, 1, 5), (1, 1, 2), (1, 1, 3)), SHAPE, s=FAR),
    refused("pytorch#147362 no position", FORWARD, ((1, 1, 2), (1, 1, 3)), SHAPE, s=FAR),
    refused("pytorch#147362 5 from two", DATA, ((1, 1, 2), (1, 1, 3), (1, 1, 5)), SHAPE, s=FAR),
    refused("pytorch#147362 not inferred", DATA, ((1, 1, 1), (1, 1, 3)), ATTRIBUTE, s=FAR),
    refused("pytorch#147362 result too large", FORWARD_UP, ((1, 1, 2, 2), (1, 1, 3, 3)), SHAPE, s=FAR),
    refused("pytorch#147362 extent too large", FORWARD_UP, ((1, 1, 5), (1, 1, 3)), SHAPE, s=2**61),
    refused("pytorch#147362 dilation", FORWARD, ((1, 1, 5), (1, 1, 2)), SHAPE, d=FAR),
    refused("pytorch#147362 stride 2^63", FORWARD, ((1, 1, 5), (1, 1, 3)), ATTRIBUTE, s=2**63),
    refused("pytorch#147362 pads 2^63", FORWARD, ((1, 1, 5), (1, 1, 3)), ATTRIBUTE, p=2**63),
    refused("pytorch#147362 pads 2^62", FORWARD, ((1, 1, 5), (1, 1, 3)), SHAPE, p=2**62),
    refused("openvino#34330 6x6", DATA, ((1, 16, 9, 12), (16, 2, 3, 3), (1, 8, 6, 6)), SHAPE, g=4),
    refused("openvino#34330 4x9", DATA, ((1, 16, 9, 12), (16, 2, 3, 3), (1, 8, 4, 9)), SHAPE, g=4),
    refused("openvino#34330 4x9 s2", DATA, ((1, 16, 9, 12), (16, 2, 3, 3), (1, 8, 4, 9)), SHAPE, g=4, s=2, p=1),
    refused("onnxruntime#11927 op 2", FORWARD_UP, ((1, 1, 3), (1, 1, 3)), ATTRIBUTE, s=2, op=2),
    refused("pytorch#195043 op 4", FORWARD_UP, ((1, 1, 3), (1, 1, 3)), ATTRIBUTE, s=3, d=4, op=4),
    refused("pytorch#195043 of no forward", DATA, ((1, 1, 4), (1, 1, 4), (1, 1, 23)), SHAPE, s=3, d=4, p=1),
    refused("pytorch#5112 op 2 of stride 2", DATA, ((1, 1, 4), (1, 1, 3)), ATTRIBUTE, s=2, d=3, op=2),
    refused("mlx#2184 ungrouped weights", BACK, ((3, 4, 5), (3, 6, 2), (6, 4, 2)), SHAPE, s=2, g=2),
    refused("burn#1891 ungrouped weights", BACK, ((1, 4, 4), (1, 4, 2), (4, 4, 3)), SHAPE, s=2, p=1, g=4),
    refused("opacus#245 kernel 5", BACK, ((2, 3, 6), (2, 4, 2), (4, 3, 5)), SHAPE, s=2),
    refused("caffe#2682 kernel above the padded input", FORWARD, ((1, 2, 4, 4), (3, 2, 7, 7)), SHAPE, p=1),
    refused("candle#2337 exchanged", BACK_UP, ((1, 1, 5), (1, 1, 11), (1, 1, 3)), SHAPE, d=2),
    refused("tensorflow#18454 without dilation", BACK, ((1, 1, 7), (1, 1, 5), (1, 1, 3)), SHAPE, d=2),
    refused("onnxruntime#2518 95 long", BACK_UP, ((1, 1, 50), (1, 1, 95), (1, 1, 3)), SHAPE, s=2, d=3, p=4),
    refused("onnxruntime#4086 op 1", DATA_UP, ((1, 1, 4), (1, 1, 3)), ATTRIBUTE, auto="same_upper", op=1),
    refused("openvino#32608 34 long", BACK_UP, ((1, 1, 32), (1, 1, 34), (1, 1, 3)), SHAPE, auto="same_upper"),
    refused("groups that divide nothing", FORWARD, ((1, 3, 5), (4, 1, 3)), SHAPE, g=2),
)


@pytest.mark.parametrize("case", REFUSED, ids=lambda c: c.id)
def test_refused(case: Refused) -> None:
    with pytest.raises(case.error):
        convgrad.infer_shapes(case.operator, *case.shapes, **case.attributes)
    arrays = [np.broadcast_to(np.float32(0), shape) for shape in case.shapes[:2]]
    with pytest.raises(case.error):
        convgrad.run(case.operator, *arrays, *case.shapes[2:], **case.attributes)


def test_pytorch_147362_result_beyond_memory() -> None:
    """2^55 + 3 positions are a shape, but no memory."""
    attributes = {"strides": [FAR], "dilations": [1], "data_format": "NCX", "weights_format": "IOX"}
    assert convgrad.infer_shapes(FORWARD_UP, (1, 1, 2), (1, 1, 3), **attributes) == (1, 1, FAR + 3)
    with pytest.raises((ConvgradError, MemoryError)):
        convgrad.run(FORWARD_UP, np.ones((1, 1, 2), np.float32), np.ones((1, 1, 3), np.float32), **attributes)
