"""ONNX Runtime: ``convgrad conformance onnx_runtime`` judges Conv and ConvTranspose of the CPU provider."""

import numpy as np
import onnxruntime
from onnx import TensorProto, helper
from onnxruntime.capi.onnxruntime_pybind11_state import NotImplemented as Missing

KINDS = {"Convolution": "Conv", "ConvTranspose": "ConvTranspose"}
TYPES = {"float32": TensorProto.FLOAT, "float16": TensorProto.FLOAT16}


def run(operator, *operands, data_format, weights_format="", **attributes):
    kind, fmt = KINDS.get(operator), TYPES.get(operands[0].dtype.name)
    if kind is None or fmt is None or data_format != "NCX" or weights_format[-1] != "X":
        raise NotImplementedError("forwards in f32 and f16, in NCX and OIX or IOX")
    given = dict(zip("xwb", map(np.ascontiguousarray, operands), strict=False))
    extra = attributes.get("output_padding")
    node = helper.make_node(
        kind,
        [*given],
        ["y"],
        strides=attributes["strides"],
        dilations=attributes["dilations"],
        pads=[*attributes["pads_begin"], *attributes["pads_end"]],
        group=attributes["groups"],
        **({"output_padding": extra} if extra else {}),
    )
    inputs = [helper.make_tensor_value_info(name, fmt, array.shape) for name, array in given.items()]
    graph = helper.make_graph([node], "one", inputs, [helper.make_tensor_value_info("y", fmt, None)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        return session.run(["y"], given)[0]
    except Missing as error:
        raise NotImplementedError(str(error)) from error
