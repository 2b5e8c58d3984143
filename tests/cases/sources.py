"""A valid source of cases in every notation: what is mutated, and what is read as it is."""

from __future__ import annotations

import importlib.util
import io
import json
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
    window={size=3x3 pad=2_1x1_2 lhs_dilate=2x2 rhs_reversal=1x1}, dim_labels=b01f_01oi->b01f, feature_group_count=1
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


def _bundle() -> dict[str, bytes]:
    dims = {"x": [2, 4, 5, 6], "dy": [2, 6, 3, 6], "dw": [6, 2, 3, 3]}
    strides = {"x": [120, 1, 24, 4], "dy": [108, 18, 6, 1], "dw": [18, 9, 3, 1]}
    tensors = [
        {"uid": uid, "name": name, "dims": dims[name], "strides": strides[name], "data_type": "float", "virtual": False}
        for uid, name in enumerate(dims)
    ]
    node = {
        "name": "wgrad",
        "type": "ConvolutionWrwAttributes",
        "inputs": {"x_tensor_uid": 0, "dy_tensor_uid": 1},
        "outputs": {"dw_tensor_uid": 2},
        "parameters": {
            "conv_mode": "CROSS_CORRELATION", "stride": [2, 1], "dilation": [1, 1], "pre_padding": [1, 1],
            "post_padding": [1, 1],
        },
    }  # fmt: skip
    text = json.dumps({"name": "graph", "io_data_type": "float", "nodes": [node], "tensors": tensors}, indent=1)
    blobs = {f"Layer.tensor{t['uid']}.bin": np.ones(t["dims"], np.float32).tobytes() for t in tensors}
    return {"Layer.json": text.encode()} | blobs


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


def _onnx() -> dict[str, bytes]:
    from onnx import helper, numpy_helper  # noqa: PLC0415 - an extra

    shapes = {"X": (2, 4, 5, 6), "W": (4, 3, 3, 2)}
    infos = [helper.make_tensor_value_info(name, 1, shape) for name, shape in shapes.items()]
    node = helper.make_node("ConvTranspose", ["X", "W"], ["Y"], strides=[2, 1], auto_pad="SAME_LOWER", group=2)
    graph = helper.make_graph([node], "g", infos, [helper.make_tensor_value_info("Y", 1, (2, 6, 10, 6))])
    files = {"model.onnx": helper.make_model(graph).SerializeToString()}
    for name, shape in {"input_0": shapes["X"], "input_1": shapes["W"], "output_0": (2, 6, 10, 6)}.items():
        tensor = numpy_helper.from_array(np.ones(shape, np.float32))
        files[f"test_data_set_0/{name}.pb"] = tensor.SerializeToString()
    return files
