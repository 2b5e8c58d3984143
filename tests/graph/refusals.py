"""Documents that are no graphs, and what is said of each: the table of tests/graph/test_refused.py."""

from __future__ import annotations

from typing import Any

from tests.support.graph_documents import DELETED, STRIDED, Json, edited, good, one_op, tensor, typed

OP = '{"graph": [{"id": 0, "kind": "GELU", %s}]}'
OF_FAMILY = '{"graph": [{"kind": "BiasAdd", "attrs": {"x": %s}}]}'
FINITE = "must be a finite number of at most 64 bits"

# Texts that are no document: the path and words of the message.
TEXTS: list[tuple[str | bytes, str, str]] = [
    ("", "$", "must be JSON; Expecting value: line 1 column 1"),
    ("{'graph': []}", "$", "must be JSON"),
    ('{"graph": [],}', "$", "must be JSON"),
    ('{"graph": []} x', "$", "must be JSON; Extra data"),
    ('{"graph": "\n"}', "$", "must be JSON; Invalid control character"),
    ('{"graph": "\\x"}', "$", "must be JSON; Invalid \\escape"),
    ('{"graph": 01}', "$", "must be JSON"),
    ("\ud800", "$", "must be JSON"),
    ("\x00", "$", "must be JSON"),
    (b"\xff\xfe{}", "$", "must be UTF-8"),
    (b'{"graph": "\xff"}', "$", "must be UTF-8"),
    (b'{"graph": "\xed\xa0\x80"}', "$", "must be UTF-8"),
    ("{}".encode("utf-16"), "$", "must be UTF-8"),
    ("{}".encode("utf-32-le"), "$", "must be JSON"),
    ("[]", "$", "must be an object with a list of ops under graph; got []"),
    ("0", "$", "must be an object with a list of ops under graph; got 0"),
    ("{}", "$", "must have graph; it has no keys"),
    ('{"Graph": []}', "$", "must have graph; it has Graph"),
    ('{"graph": []}', "$.graph", "must hold at least one op; got []"),
    ('{"graph": {}}', "$.graph", "must be a list; got {}"),
    ('{"graph": null}', "$.graph", "must be a list; got null"),
    ('{"graph": [1]}', "$.graph[0]", "must be an object; got 1"),
    ('{"graph": [{"kind": "GELU"}, []]}', "$.graph[1]", "must be an object; got []"),
    ('{"graph": [], "graph": []}', "$", 'keys must differ; "graph" stands twice'),
    ('{"a": [{"b": 1, "b": 1}]}', "$.a[0]", 'keys must differ; "b" stands twice'),
    ('{"a": {"\\u001b": 1, "\\u001b": 1}}', "$.a", 'keys must differ; "\\u001b" stands twice'),
    (OP % '"kind": "GELU"', "$.graph[0]", 'keys must differ; "kind" stands twice'),
    (OP % '"attrs": {"x": {"type": 1, "type": 1}}', "$.graph[0].attrs.x", 'keys must differ; "type" stands twice'),
    (OP % '"inputs": [{"id": 1, "id": 1}]', "$.graph[0].inputs[0]", 'keys must differ; "id" stands twice'),
    ("NaN", "$", f"{FINITE}; got NaN"),
    ('{"a": Infinity}', "$.a", f"{FINITE}; got Infinity"),
    ('{"a": [0, -Infinity]}', "$.a[1]", f"{FINITE}; got -Infinity"),
    ('{"a": 1e999}', "$.a", f"{FINITE}; got 1e999"),
    ('{"a": -1e999}', "$.a", f"{FINITE}; got -1e999"),
    ('{"a": 1e99999999999999999999}', "$.a", FINITE),
    ('{"a": %s}' % ("1" * 5000), "$.a", f"{FINITE}; got 111"),
    ('{"a": 0.%s}' % ("1" * 5000), "$.a", f"{FINITE}; got 0.111"),
    (OP % '"attrs": {"x": {"type": "f32", "value": NaN}}', "$.graph[0].attrs.x.value", f"{FINITE}; got NaN"),
    (OF_FAMILY % '{"type": "f32[]", "value": [1e400]}', "$.graph[0].attrs.x.value[0]", FINITE),
    (OF_FAMILY % '{"type": "f32", "value": 1, "note": 1e400}', "$.graph[0].attrs.x.note", FINITE),
    (OP % '"note": 1e400', "$.graph[0].note", FINITE),
    (OP % '"attrs": {"x": {"type": "f32", "value": 1, "y": {"z": [-Infinity]}}}', "$.graph[0].attrs.x.y.z[0]", FINITE),
    ('{"gr\\u0061ph": [{"kind": "GELU"}, []]}', "$.graph[1]", "must be an object; got []"),
    ('{"graph": [{"kind": "GELU"}, ]}', "$", "must be JSON; Expecting value: line 1 column 30"),
    ('{"graph": [{"kind":\n"GELU"}, {"kind": }]}', "$", "must be JSON; Expecting value: line 2 column 19"),
    ('{"graph": [{"kind":\n"GELU"}], "é": }', "$", "must be JSON; Expecting value: line 2 column 16"),
    ('{"é": 0, "graph": [{"kind": "GELU"} {"kind": "GELU"}]}', "$", "must be JSON; Extra data: line 1 column 37"),
    ('{"graph": [{"kind": "GELU"}', "$", "must be JSON; Expecting value: line 1 column 28"),
    (b'{"graph": [{"kind": "GELU"}, {"kind": "\xff"}]}', "$", "must be UTF-8; invalid start byte at byte 39"),
    (OP % '"inputs": [{"id": 0, "shape": [1e999]}]', "$.graph[0].inputs[0].shape[0]", FINITE),
    (OP % ('"inputs": [{"id": 1%s}]' % ("0" * 30)), "$.graph[0].inputs[0].id", FINITE),
    ('{"\\u001b[31m\\ud800": NaN}', "$.?[31m?", FINITE),
]


BITS, ID = "must be an integer of 64 bits", "must be a non-negative integer of 64 bits"
CONV, SRC = "graph/0", "graph/0/inputs/0"
PADS = "graph/0/attrs/pads_begin"
IN_CONV, IN_SRC, IN_PADS = "$.graph[0]", "$.graph[0].inputs[0]", "$.graph[0].attrs.pads_begin"

# Edits of the good document: place, value, the path and words of the message.
EDITS: list[tuple[str, Any, str, str]] = [
    ("version", 3, "$.version", "must be a string; got 3"),
    ("version", None, "$.version", "must be a string; got null"),
    ("engine_kind", 0, "$.engine_kind", "must be a string; got 0"),
    ("engine_kind", "tpu", "$", "engine_kind must be one of any, cpu, gpu; got 'tpu'"),
    ("fpmath_mode", True, "$.fpmath_mode", "must be a string; got true"),
    ("fpmath_mode", "\x1b[31m", "$", "fpmath_mode must be one of strict, bf16, f16, any, tf32; got '\\x1b[31m'"),
    *(
        ("fpmath_mode_apply_to_int", value, "$.fpmath_mode_apply_to_int", 'must be "true" or "false"; got')
        for value in ("True", "", 0, 1, 1.0, 0.0, None, [], {})
    ),
    ("input_ports", 0, "$.input_ports", "must be a list; got 0"),
    ("input_ports", None, "$.input_ports", "must be a list; got null"),
    ("input_ports", [0, True], "$.input_ports[1]", f"{ID}; got true"),
    ("input_ports", [0, 99], "$.input_ports", "must be tensors that ops read and none makes; got 99"),
    ("input_ports", [2], "$.input_ports", "must be tensors that ops read and none makes; got 2"),
    ("output_ports", {}, "$.output_ports", "must be a list; got {}"),
    ("output_ports", [-1], "$.output_ports[0]", f"{ID}; got -1"),
    ("output_ports", [2**64], "$.output_ports[0]", f"{ID}; got 18446744073709551616"),
    ("output_ports", [5, 99], "$.output_ports", "must be tensors that ops make; got 99"),
    ("graph", {"0": {}}, "$.graph", "must be a list; got"),
    *((f"{CONV}/id", value, "$.graph[0].id", ID) for value in (-1, 2**64, 1.0, True, "0", None, [])),
    (f"{CONV}/id", 8, "$.graph[1]", "ids of ops must differ; conv has 8 too"),
    (f"{CONV}/name", 5, "$.graph[0].name", "must be a string; got 5"),
    (f"{CONV}/kind", DELETED, IN_CONV, "must have kind; it has id, name, attrs, inputs, outputs"),
    (f"{CONV}/kind", None, "$.graph[0].kind", "must be a string; got null"),
    (f"{CONV}/attrs", [], "$.graph[0].attrs", "must be an object; got []"),
    (f"{CONV}/inputs", {}, "$.graph[0].inputs", "must be a list; got {}"),
    (f"{CONV}/inputs", [], IN_CONV, "Convolution takes src, weights, [bias] and makes dst; got 0 inputs"),
    (f"{CONV}/outputs", 1, "$.graph[0].outputs", "must be a list; got 1"),
    (f"{CONV}/outputs", [], IN_CONV, "got 2 inputs and 0 outputs"),
    (f"{CONV}/outputs/0", None, "$.graph[0].outputs[0]", "must be an object; got null"),
    (SRC, 0, IN_SRC, "must be an object; got 0"),
    (f"{SRC}/id", DELETED, IN_SRC, "must have id; it has dtype, shape, stride, layout_type, property_type"),
    *((f"{SRC}/id", value, f"{IN_SRC}.id", ID) for value in (-1, 2**64, 0.0, False, "0", None)),
    (f"{SRC}/dtype", 1, f"{IN_SRC}.dtype", "must be a string; got 1"),
    (f"{SRC}/dtype", "f64", IN_SRC, "dtype must be one of undef, f32, bf16, f16, f8_e5m2, f8_e4m3, s32"),
    (f"{SRC}/dtype", "\ud800\x07", IN_SRC, "got '\\ud800\\x07'"),
    (f"{SRC}/dtype", "bf16", IN_CONV, "all tensors of Convolution must have one type; got 0: bf16 2x5x3, 1: f32 3x3x4"),
    (f"{SRC}/layout_type", "blocked", IN_SRC, "layout_type must be one of undef, any, strided, opaque; got 'blocked'"),
    (f"{SRC}/layout_type", [], f"{IN_SRC}.layout_type", "must be a string; got []"),
    (f"{SRC}/property_type", "x", IN_SRC, "property_type must be one of undef, variable, constant, host_scalar; got"),
    (f"{SRC}/property_type", {}, f"{IN_SRC}.property_type", "must be a string; got {}"),
    (f"{SRC}/shape", 5, f"{IN_SRC}.shape", "must be a list; got 5"),
    (f"{SRC}/shape", None, f"{IN_SRC}.shape", "must be a list; got null"),
    *((f"{SRC}/shape", [2, v, 3], f"{IN_SRC}.shape[1]", BITS) for v in (True, 5.0, "5", None, [], 2**63, -(2**63) - 1)),
    (f"{SRC}/shape", [1] * 65, IN_SRC, "dims must be at most 64 integers below 2^63; got (1, 1,"),
    (f"{SRC}/shape", [2, 5], IN_CONV, "Convolution"),
    (f"{SRC}/shape", [], IN_CONV, "Convolution"),
    (f"{SRC}/shape", [2**62, 2**62, 3], IN_SRC, "dims must make dense strides below 2^63"),
    (f"{SRC}/shape", [2, 2**62, 3], IN_SRC, "dims must make dense strides below 2^63"),
    (f"{SRC}/stride", "x", f"{IN_SRC}.stride", 'must be a list; got "x"'),
    *((f"{SRC}/stride", [15, v, 1], f"{IN_SRC}.stride[1]", BITS) for v in (True, 3.0, "3", None, 2**63)),
    (f"{SRC}/stride", [15, -3, 1], IN_SRC, "strides must be non-negative integers below 2^63; got (15, -3, 1)"),
    (f"{SRC}/stride", [15, 3], IN_SRC, "strides must be one per axis, 3 here; got 2"),
    (f"{SRC}/stride", [], IN_SRC, "strides must be one per axis, 3 here; got 0"),
    (f"{SRC}/stride", [1] * 10**5, IN_SRC, "strides must be one per axis, 3 here; got 100000"),
    (
        "graph/1/inputs/0/shape",
        [2, 5, 4],
        "$.graph[1]",
        "tensor 2 must have one description; got dims (2, 5, 4) and None",
    ),
    ("graph/1/inputs/0/dtype", "f16", "$.graph[1]", "tensor 2 must have one description; got dtype f16 and f32"),
    ("graph/1/inputs/0/layout_type", "any", "$.graph[1]", "got layout_type any and strided"),
    ("graph/1/inputs/0/property_type", "constant", "$.graph[1]", "got property_type constant and undef"),
    ("graph/2/outputs/0/id", 4, "$.graph[2]", "a tensor must have one producer; bias makes 4 too"),
    (PADS, [1], IN_PADS, "must be an object; got [1]"),
    (f"{PADS}/type", DELETED, IN_PADS, "must have type; it has value"),
    (f"{PADS}/value", DELETED, IN_PADS, "must have value; it has type"),
    (PADS, {}, IN_PADS, "must have type; it has no keys"),
    *(
        (f"{PADS}/type", value, f"{IN_PADS}.type", "must be one of bool, s64, s64[], f32, f32[], string; got")
        for value in ("f64", "", "S64[]", "f32[] ", "\x1b")
    ),
    (f"{PADS}/type", ["s64"], f"{IN_PADS}.type", 'must be a string; got ["s64"]'),
    *((PADS, {"type": "bool", "value": v}, IN_CONV, "pads_begin must be a list of integers") for v in (True, 0, 1)),
    *(
        (PADS, {"type": "bool", "value": v}, f"{IN_PADS}.value", "must be 0 or 1, or false or true; got")
        for v in (2, -1, 0.5, 1.0, "true", "0", None, [1])
    ),
    *((PADS, {"type": "s64", "value": v}, f"{IN_PADS}.value", BITS) for v in (True, 1.0, "1", None, [1], 2**63)),
    *((PADS, {"type": "s64[]", "value": v}, f"{IN_PADS}.value", "must be a list; got") for v in (1, None, "1", {})),
    *((PADS, {"type": "s64[]", "value": [1, v]}, f"{IN_PADS}.value[1]", BITS) for v in (True, 1.5, "1", None, [])),
    *((PADS, {"type": "f32", "value": v}, f"{IN_PADS}.value", "must be a number; got") for v in (True, "1", None, [])),
    (PADS, {"type": "f32[]", "value": 1.0}, f"{IN_PADS}.value", "must be a list; got 1.0"),
    (PADS, {"type": "f32[]", "value": [1.0, False]}, f"{IN_PADS}.value[1]", "must be a number; got false"),
    *((PADS, {"type": "string", "value": v}, f"{IN_PADS}.value", "must be a string; got") for v in (1, None, [], True)),
    (PADS, {"type": "s64[]", "value": [1, 1]}, IN_CONV, "pads_begin must have one value per spatial axis, 1 here"),
    (PADS, {"type": "string", "value": "\x1b\ud800"}, IN_CONV, "pads_begin must be a list of integers"),
    (PADS, {"type": "f32[]", "value": [1]}, IN_CONV, "pads_begin must be a list of integers"),
    ("graph/0/attrs/groups", {"type": "s64", "value": 0}, IN_CONV, "groups must be positive"),
    ("graph/0/attrs/groups", {"type": "bool", "value": True}, IN_CONV, "groups must be an integer"),
    ("graph/0/attrs/auto_pad", {"type": "string", "value": "\x1b\u202e"}, IN_CONV, "got '\\x1b\\u202e'"),
    ("graph/0/attrs/strides", DELETED, IN_CONV, "strides is required"),
    ("graph/0/attrs/\x1b[31m\ud800", {"type": "s64", "value": 1}, IN_CONV, "unknown attribute"),
    ("graph/0/attrs/\x1b[31m\ud800", {"type": "s64", "value": 1.5}, "$.graph[0].attrs.?[31m?.value", BITS),
    ("graph/0/outputs/0/shape", [2, 4, 4], "$.graph[1]", "tensor 2 must have one description"),
    ("graph/2/outputs/0/dtype", "f8", "$.graph[2].outputs[0]", "dtype must be one of"),
    (f"{CONV}/name", "\x1b[31m\ud800\n", "$.graph[0] ?[31m??", "strides is required"),
]


def changed(place: str, value: Any) -> Json:
    """Return the good document with one place changed, and nothing in it that says something by itself."""
    document = edited(place, value)
    if place.startswith("graph/"):
        del document["input_ports"], document["output_ports"]
    if place.endswith("/name"):
        document["graph"][0]["attrs"].pop("strides")
    return document


X, Y, W, Z = tensor(0, [1, 5, 1]), tensor(0), tensor(1, [3, 1, 1]), tensor(1)
ZEROS = [[0] * 11, [0] * 13, [0] * 3, [0], [0] * 11 + [1]]
FAR = [[1, 2**62, 4], [2**62] * 3, [2] * 64, [0, 2**62, 2**62]]  # extents that no memory has
FOREIGN = [typed(foo=1), typed(dst_shape=[0, 0]), typed(filter_format="OIX", weights_format="OIX")]
TWO: Json = {
    "graph": [
        {"kind": "GELU", "name": "\x1bfirst", "inputs": [tensor(0)], "outputs": [tensor(1)]},
        {"kind": "GELU", "name": "second", "inputs": [tensor(1)], "outputs": [tensor(0)]},
    ]
}

# Whole documents: the path and words of the message. Graphs built in Python meet the same refusals in test_misfits.py.
DOCUMENTS: list[tuple[Json, str, str]] = [
    (one_op("Convolution", [X, W], tensor(2, [1, 4, 1]), STRIDED), "$.graph[0] Convolution 0",
     "its inputs and attributes make dst f32 1x3x1; the graph has 2: f32 1x4x1"),
    (one_op("Convolution", [X, W], tensor(2, stride=[1, 1]), STRIDED), "$.graph[0]", "the graph has 2: f32 ?"),
    (one_op("ConvolutionBackwardData", [Y, Z, tensor(2, [3])], tensor(3), STRIDED),
     "$.graph[0] ConvolutionBackwardData 0", "dst_shape must be a 1-D tensor of s32; got 2: f32 3"),
    (one_op("GELU", [tensor(0, stride=[1] * 65)], tensor(1)), IN_SRC,
     "strides must be one per axis, at most 64 here; got 65"),
    (TWO, "$.graph[1] second", "no cycles; ops that wait for each other are among ?first, second"),
    ({"graph": [{"kind": "GELUBackward", "outputs": [tensor(1), tensor(1)]}]}, "$.graph[0] GELUBackward 0",
     "a tensor must have one producer; GELUBackward 0 makes 1 too"),
    ({"graph": [{"kind": "Add", "inputs": [tensor(1, [2]), tensor(1, [2], "f16")]}]}, "$.graph[0] Add 0",
     "tensor 1 must have one description; got dtype f16 and f32"),
    ({f"key{number}": 0 for number in range(10**5)}, "$", "must have graph; it has key0, key1"),
    *((one_op("GELU", [tensor(0, shape)], tensor(1)), IN_SRC, "dense strides below 2^63") for shape in FAR),
    *(
        (one_op(kind, [Y, Z], tensor(2), attributes), "$.graph[0]", "unknown attribute ")
        for kind in ("Convolution", "ConvolutionBackpropFilters-1", "ConvTransposeBackwardData")
        for attributes in FOREIGN
    ),
    *(
        (one_op("ConvTranspose", [tensor(0, [1, 2, 2, 1]), tensor(1, [1, 1, 1, 1])], tensor(2),
                typed(strides=[2] * 2, dilations=[1] * 2, output_padding=zeros)),
         "$.graph[0]", "output_padding must have one value per spatial axis, 2 here")
        for zeros in ZEROS
    ),
]  # fmt: skip

# Texts and documents with limits that refuse them.
LIMITED: list[tuple[Any, str, str, Json]] = [
    (good(), "$", "the text must be at most 10 bytes (file_bytes); it is longer", {"file_bytes": 10}),
    ('{"graph": [{"kind": "x"}]}', "$", "the text must be at most 25 bytes (file_bytes)", {"file_bytes": 25}),
    (good(), "$", "must nest at most 4 deep (nesting); it is deeper at character", {"nesting": 4}),
    (good(), "$.graph", "must hold at most 2 ops; got 3", {"ops": 2}),
    (good(), "$.graph[0]", "an op must be at most 300 bytes (op_bytes); got ", {"op_bytes": 300}),
    *(
        (text % ("x" * 100), "$", "all but the ops must be at most 100 bytes (op_bytes); got 1", {"op_bytes": 100})
        for text in ('{"a": "%s", "graph": [{"kind": "x"}]}', '{"graph": [{"kind": "x"}], "a": "%s"}', '["%s"]')
    ),
    ("[" * 10**5, "$", "nest", {"nesting": 10**6}),  # which Python cannot follow
    *(
        (opening * depth, "$", "must nest at most 32 deep (nesting); it is deeper at character", {})
        for opening in ("[", '{"a":', '[{"a":', '["]", {"}": ')
        for depth in (40, 10**5)
    ),
]

# All: what is refused, the path and words of the message, the limits.
REFUSED: list[tuple[Any, str, str, Json]] = [
    *((text, path, words, {}) for text, path, words in TEXTS),
    *((changed(place, value), path, words, {}) for place, value, path, words in EDITS),
    *((document, path, words, {}) for document, path, words in DOCUMENTS),
    *LIMITED,
]
