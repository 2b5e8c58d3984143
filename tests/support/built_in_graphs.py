"""Small graphs, as oneDNN writes them: what mutants are made of."""

from __future__ import annotations

from typing import Any

UNKNOWN = -(2**63)
Json = dict[str, Any]


def tensor_of(number: int, shape: list[int] | None = None, dtype: str = "f32", **fields: Any) -> Json:
    return {"id": number, "dtype": dtype, "shape": [UNKNOWN] if shape is None else shape, **fields}


def typed(**values: Any) -> Json:
    names = {list: "s64[]", int: "s64", str: "string", bool: "bool", float: "f32"}
    return {name: {"type": names[type(value)], "value": value} for name, value in values.items()}


def op_of(number: int, kind: str, inputs: list[Json], output: Json, **attributes: Any) -> Json:
    entries = {"attrs": typed(**attributes), "inputs": inputs, "outputs": [output]}
    return {"id": number, "name": f"op{number}", "kind": kind, **entries}


ONE = {"strides": [1], "dilations": [1]}
BUILT_IN: list[list[Json]] = [
    [op_of(0, "Convolution", [tensor_of(0, [2, 5, 3]), tensor_of(1, [3, 3, 4])], tensor_of(2), **ONE, groups=1)],
    [
        op_of(0, "Convolution", [tensor_of(0, [1, 5, 2]), tensor_of(1, [3, 2, 4])], tensor_of(2), **ONE),
        op_of(1, "BiasAdd", [tensor_of(2), tensor_of(3, [4])], tensor_of(4), data_format="NXC"),
        op_of(2, "GELU", [tensor_of(4)], tensor_of(5, [1, 3, 4]), alpha=0.5, inplace=True),
        op_of(3, "ConvTranspose", [tensor_of(5, [1, 3, 4]), tensor_of(1, [3, 2, 4])], tensor_of(6), **ONE),
    ],
    [
        op_of(
            4, "ConvolutionBackpropFilters-1",
            [tensor_of(0, [1, 5, 2]), tensor_of(1, [3], "s32"), tensor_of(2, [1, 3, 4], stride=[12, 1, 3])],
            tensor_of(3, [3, 2, 4], stride=[1, 3, 6]), **ONE, filter_format="XIO",
        ),
    ],
    [
        op_of(
            0, "ConvolutionBackwardData",
            [tensor_of(0, [1, 4, 3, 3], "bf16"), tensor_of(1, [4, 2, 2, 2], "bf16"), tensor_of(2, [4], "s32")],
            tensor_of(3, None, "bf16"), strides=[2, 2], dilations=[1, 1], pads_begin=[0, 1], pads_end=[1, 0],
            data_format="NCX", weights_format="OIX", output_padding=[0, 1],
        ),
        op_of(
            1, "BiasAddBackprop-1", [tensor_of(0, [1, 4, 3, 3], "bf16")], tensor_of(4, None, "bf16"), data_format="NCX"
        ),
    ],
    [
        op_of(
            0, "ConvTransposeBackwardWeights", [tensor_of(0), tensor_of(1, [1, -1, 4])], tensor_of(2),
            **ONE, auto_pad="SAME_UPPER", weights_shape=[3, 4, 2],
        ),
    ],
]  # fmt: skip
HEADER = {"version": "3.0.0", "engine_kind": "cpu", "fpmath_mode": "strict", "fpmath_mode_apply_to_int": "false"}
