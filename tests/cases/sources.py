"""A valid source of cases in every notation: what is mutated, and what is read as it is."""

from __future__ import annotations

import importlib.util
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.support.built_in_graphs import BUILT_IN, HEADER


@dataclass(frozen=True)
class Base:
    """A valid source: files by name, the one that is read, "" for the folder, whether that is lines of text."""

    name: str
    files: dict[str, bytes]
    read: str
    lines: bool = False


LINES = """# every notation of lines
--dir=BWD_W --dt=bf16:f32:bf16 --stag=axb,abx
mb2ic4ih9oc6oh5kh3sh2ph1n"stem"
--reset g2mb1_ic4id5ih6iw7_oc8_kd3kh3kw3_pd1ph1pw1
BWD_WB f16 NXC mb8ic64ih56oc64oh56kh3ph1
deconv BWD_D f32 NCX mb2ic4ih5oc6oh10kh2sh2
./bin/MIOpenDriver conv -n 8 -c 16 -H 32 -W 30 -k 24 -y 3 -x 5 -p 1 -q 2 -u 2 -v 1 -l 1 -j 2 -g 4 -F 0 -m trans -t 1
iree-boo-driver convbfp16 -n 2 -c 4 --in_d 5 -H 6 -W 7 -k 8 --fil_d=3 -F 4 --spatial_dim=3 --in_layout NDHWC
convfp16 -n 2 -c 4 -H 6 -W 7 -k 8 -y 3 -x 3 -F 2 --out_layout NHWC --fil_layout CHWN -z same -b 1
%c = f32[2,8,9,4] convolution(f32[2,4,5,6] %g, f32[3,3,4,6] %w), window={size=3x3 pad=2_1x1_1 lhs_dilate=2x2}, dim_labels=b01f_01oi->b01f
ROOT %d = bf16[3,2,6]{2,1,0} convolution(bf16[2,8,4] %x, bf16[2,4,6] %y), window={size=4 pad=0_1 rhs_dilate=2}, dim_labels=f0b_i0o->0bf, batch_group_count=2
"""  # noqa: E501
MODULE = """HloModule jit_f, entry_computation_layout={(f32[2,4,4,32]{3,2,1,0}, f32[3,3,16,32]{3,2,1,0})->f32[2,8,8,16]}
ENTRY main.1 {
  g.1 = f32[2,4,4,32]{3,2,1,0} parameter(0)
  w.1 = f32[3,3,16,32]{3,2,1,0:T(8,128)} parameter(1), metadata={op_name="window={size=9}"}
  ROOT c.1 = f32[2,8,8,16]{3,2,1,0} convolution(g.1, /*index=1*/w.1),
    window={size=3x3 pad=2_1x1_2 lhs_dilate=2x2 rhs_reversal=1x1}, dim_labels=b01f_01oi->b01f, feature_group_count=1,
    metadata={op_name="stride=7"}
}
"""
STABLE = """module {
  func.func @main(%arg0: tensor<2x9x4xbf16>, %arg1: tensor<3x2x6xbf16>) -> tensor<2x4x6xf32> {
    %0 = stablehlo.convolution(%arg0, %arg1) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f], window = {stride = [2], pad = [[1, 1]], lhs_dilate = [1], rhs_dilate = [2], reverse = [false]} {batch_group_count = 1 : i64, feature_group_count = 2 : i64, precision_config = [#stablehlo<precision DEFAULT>]} : (tensor<2x9x4xbf16>, tensor<3x2x6xbf16>) -> tensor<2x4x6xf32>
    return %0 : tensor<2x4x6xf32>
  }
}
"""  # noqa: E501


def bases() -> list[Base]:
    """Return a valid source of every notation that can be read here, arrays among them."""
    graph = json.dumps(HEADER | {"graph": BUILT_IN[0]}, indent=1)
    found = [
        Base("lines", {"cases.txt": LINES.encode()}, "cases.txt", lines=True),
        Base("HLO", {"module.hlo": MODULE.encode()}, "module.hlo", lines=True),
        Base("StableHLO", {"module.mlir": STABLE.encode()}, "module.mlir", lines=True),
        Base("oneDNN Graph", {"graph.json": graph.encode()}, "graph.json"),
        Base("hipDNN", _bundle(), "Layer.json"),
        Base("aten .npz", _npz(), "step.npz"),
    ]
    if importlib.util.find_spec("safetensors"):
        found.append(Base("aten .safetensors", {"step.safetensors": _safetensors()}, "step.safetensors"))
    if importlib.util.find_spec("onnx"):
        found.append(Base("ONNX", _onnx(), ""))
    return found


DIMS = {"x": (2, 4, 5, 6), "w": (6, 2, 3, 3), "y": (2, 6, 3, 6)}
SAME = {"x": "x", "dx": "x", "w": "w", "dw": "w", "y": "y", "dy": "y"}
PARAMETERS = {"stride": [2, 1], "dilation": [1, 1], "pre_padding": [1, 1], "post_padding": [1, 1]}
NODES = {
    "Fwd": (("x", "w"), "y", "Convolution"),
    "Bwd": (("dy", "w"), "dx", "ConvolutionBackwardData"),
    "Wrw": (("x", "dy"), "dw", "ConvolutionBackwardWeights"),
}


def dense(dims: tuple[int, ...], order: tuple[int, ...]) -> list[int]:
    """Return the strides of axes that lie in an order, outermost first."""
    strides, step = [0] * len(dims), 1
    for axis in reversed(order):
        strides[axis], step = step, step * dims[axis]
    return strides


def hipdnn_graph(kind: str = "Fwd", order: tuple[int, ...] = (0, 1, 2, 3), data_type: str = "float") -> dict[str, Any]:
    operands, output, _ = NODES[kind]
    names = (*operands, output)
    tensors = [
        {"uid": uid, "name": name, "dims": list(DIMS[SAME[name]]), "strides": dense(DIMS[SAME[name]], order),
         "data_type": data_type, "virtual": False}
        for uid, name in enumerate(names, 10)
    ]  # fmt: skip
    uids = {name: uid for uid, name in enumerate(names, 10)}
    node = {
        "name": "", "type": f"Convolution{kind}Attributes", "compute_data_type": "float",
        "inputs": {f"{name}_tensor_uid": uids[name] for name in operands},
        "outputs": {f"{output}_tensor_uid": uids[output]},
        "parameters": {"conv_mode": "CROSS_CORRELATION", **PARAMETERS},
    }  # fmt: skip
    return {"name": "", "io_data_type": data_type, "nodes": [node], "tensors": tensors}


def _bundle() -> dict[str, bytes]:
    document = hipdnn_graph("Wrw")
    document["tensors"][0]["strides"] = dense(DIMS["x"], (0, 2, 3, 1))
    blobs = {f"Layer.tensor{t['uid']}.bin": np.ones(t["dims"], np.float32).tobytes() for t in document["tensors"]}
    return {"Layer.json": json.dumps(document, indent=1).encode()} | blobs


ATEN = {
    "op": "aten.convolution_backward", "stride": [2, 1], "padding": [1, 1], "dilation": [1, 1], "groups": 2,
    "transposed": False, "output_padding": [0, 0], "output_mask": [True, True, True], "bias_sizes": [6],
}  # fmt: skip
TENSORS = {"grad_output": (2, 6, 3, 6), "input": (2, 4, 5, 6), "weight": (6, 2, 3, 3), "grad_weight": (6, 2, 3, 3)}


def _npz() -> dict[str, bytes]:
    """Return the members of the archive, the header as its text: each may be changed without its checksum."""
    arrays = {f"step.npz/{name}.npy": npy(np.ones(shape, np.float32)) for name, shape in TENSORS.items()}
    return {"step.npz/aten.json": json.dumps(ATEN).encode()} | arrays


def npy(array: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def _safetensors() -> bytes:
    from safetensors.numpy import save  # noqa: PLC0415 - an extra

    return save({name: np.ones(shape, np.float32) for name, shape in TENSORS.items()}, {"aten": json.dumps(ATEN)})


def onnx_model(kind: str, shapes: Sequence[tuple[int, ...]], attributes: dict[str, Any], elem_type: int = 1) -> Any:
    """Return a model of one node, whose inputs are X, W and, if there is a third shape, B."""
    from onnx import helper  # noqa: PLC0415 - an extra

    names = ["X", "W", "B"][: len(shapes)]
    inputs = [helper.make_tensor_value_info(n, elem_type, s) for n, s in zip(names, shapes, strict=True)]
    output = helper.make_tensor_value_info("Y", elem_type, None)
    node = helper.make_node(kind, names, ["Y"], **attributes)
    return helper.make_model(helper.make_graph([node], "g", inputs, [output]))


def _onnx() -> dict[str, bytes]:
    from onnx import numpy_helper  # noqa: PLC0415 - an extra

    shapes = {"input_0": (2, 4, 5, 6), "input_1": (4, 3, 3, 2), "output_0": (2, 6, 10, 6)}
    attributes = {"strides": [2, 1], "auto_pad": "SAME_LOWER", "group": 2}
    model = onnx_model("ConvTranspose", [shapes["input_0"], shapes["input_1"]], attributes)
    tensors = {name: numpy_helper.from_array(np.ones(shape, np.float32)) for name, shape in shapes.items()}
    files = {f"test_data_set_0/{name}.pb": tensor.SerializeToString() for name, tensor in tensors.items()}
    return {"model.onnx": model.SerializeToString()} | files
