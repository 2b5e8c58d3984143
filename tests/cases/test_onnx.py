"""ONNX node-test folders: the operator's result is ONNX's, by its reference implementation and by its text."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import convgrad
from convgrad import cases
from convgrad.errors import FileError
from convgrad.graph.limits import Limits
from convgrad.verify.cases import PassedOverError
from convgrad.verify.cases import onnx as dialect
from convgrad.verify.cases.case import Case
from tests.cases.sources import onnx_model

Array = np.ndarray[Any, Any]
LIMITS = Limits()


def package() -> Any:
    return pytest.importorskip("onnx")


def model(*given: Any) -> Any:
    package()
    return onnx_model(*given)


def folder(path: Path, made: Any, arrays: list[Array], sets: int = 1) -> Path:
    """Write a node-test folder; the last of the arrays is the output."""
    path.mkdir(exist_ok=True)
    (path / "model.onnx").write_bytes(made.SerializeToString())
    for number in range(sets):
        one = path / f"test_data_set_{number}"
        one.mkdir()
        for at, array in enumerate(arrays):
            name = "output_0.pb" if at == len(arrays) - 1 else f"input_{at}.pb"
            (one / name).write_bytes(package().numpy_helper.from_array(array).SerializeToString())
    return path


def same_of_its_own(case: Case) -> tuple[Array, Array | None]:
    assert case.arrays is not None
    arrays = case.arrays()
    return np.asarray(convgrad.run(case.operator, *arrays.operands, **case.attributes)), arrays.result


def integers(shapes: list[tuple[int, ...]]) -> list[Array]:
    rng = np.random.default_rng(1)
    return [rng.integers(-3, 4, shape).astype(np.float32) for shape in shapes]


X, W, WT = (2, 4, 7, 6), (6, 4, 3, 2), (4, 6, 3, 2)
AS_THE_REFERENCE = [
    ("Conv", [X, W], {}),
    ("Conv", [X, W, (6,)], {"pads": [1, 0, 2, 1], "strides": [2, 1], "dilations": [1, 2], "kernel_shape": [3, 2]}),
    ("Conv", [X, (6, 2, 3, 2)], {"group": 2, "auto_pad": "VALID"}),
    ("Conv", [X, W], {"auto_pad": "SAME_UPPER", "strides": [2, 3]}),
    ("Conv", [X, W], {"auto_pad": "SAME_LOWER", "strides": [2, 1]}),
    (
        "ConvTranspose",
        [X, WT],
        {"strides": [2, 3], "pads": [1, 0, 1, 1], "dilations": [2, 1], "output_padding": [1, 2]},
    ),
    ("ConvTranspose", [X, WT, (6,)], {"auto_pad": "SAME_UPPER", "strides": [2, 1]}),
    ("ConvTranspose", [X, WT], {"auto_pad": "SAME_LOWER", "strides": [2, 1]}),
    ("ConvTranspose", [X, WT], {"auto_pad": "SAME_UPPER", "strides": [2, 2], "output_padding": [1, 0]}),
    ("ConvTranspose", [X, WT], {"output_shape": [14, 12], "strides": [2, 2]}),
    ("ConvTranspose", [X, WT], {"output_shape": [13, 11], "strides": [2, 2], "output_padding": [1, 1]}),
    ("ConvTranspose", [X, WT], {"output_shape": [16, 13], "strides": [2, 2]}),  # one longer than the kernel reaches
]


@pytest.mark.parametrize(("kind", "shapes", "attributes"), AS_THE_REFERENCE)
def test_the_operator_computes_what_onnx_does(
    kind: str, shapes: list[tuple[int, ...]], attributes: dict[str, Any], tmp_path: Path
) -> None:
    package()
    from onnx.reference import ReferenceEvaluator  # noqa: PLC0415 - an extra

    arrays, made = integers(shapes), model(kind, shapes, attributes)
    if "output_shape" in attributes or (kind == "ConvTranspose" and attributes.get("auto_pad", "")[:4] == "SAME"):
        wanted = by_the_text(arrays, attributes)
    else:
        [wanted] = ReferenceEvaluator(made).run(None, dict(zip(["X", "W", "B"], arrays, strict=False)))
    [case] = dialect.read(folder(tmp_path / "test_one", made, [*arrays, wanted]), LIMITS)
    assert (case.name, case.attributes["data_format"]) == ("test_one", "NCX")
    got, result = same_of_its_own(case)
    assert result is not None
    assert np.array_equal(result, wanted)
    assert np.array_equal(got, wanted)


def by_the_text(arrays: list[Array], attributes: dict[str, Any]) -> Array:
    """Return a ConvTranspose of one group by ONNX's words: all that the kernel reaches, cut by total_padding."""
    x, w, *bias = arrays
    s, op = attributes["strides"], attributes.get("output_padding", [0, 0])
    full = np.zeros(
        (
            x.shape[0],
            w.shape[1],
            *((i - 1) * t + k + p for i, t, k, p in zip(x.shape[2:], s, w.shape[2:], op, strict=True)),
        )
    )
    for i, j in np.ndindex(*x.shape[2:]):
        part = np.einsum("nc,cokl->nokl", x[:, :, i, j], w)
        full[:, :, i * s[0] : i * s[0] + w.shape[2], j * s[1] : j * s[1] + w.shape[3]] += part
    shape = attributes.get("output_shape") or [i * t for i, t in zip(x.shape[2:], s, strict=True)]
    cut = []
    for extent, wanted in zip(full.shape[2:], shape, strict=True):
        total = extent - wanted
        begin = total // 2 if attributes.get("auto_pad") == "SAME_UPPER" else total - total // 2
        cut.append(slice(begin, begin + wanted))
    full = np.pad(full, [(0, 0), (0, 0), (0, 1), (0, 1)])
    return full[(slice(None), slice(None), *cut)] + (bias[0][:, None, None] if bias else 0)


@pytest.mark.parametrize("name", ["FLOAT16", "BFLOAT16", "DOUBLE", "FLOAT8E4M3FN", "FLOAT8E5M2"])
def test_formats_and_several_sets(name: str, tmp_path: Path) -> None:
    onnx = package()
    elem_type = onnx.TensorProto.DataType.Value(name)
    dtype = onnx.helper.tensor_dtype_to_np_dtype(elem_type)
    arrays = [array.astype(dtype) for array in integers([X, W, (2, 6, 5, 5)])]
    found = list(dialect.read(folder(tmp_path / "t", model("Conv", [X, W], {}, elem_type), arrays, sets=2), LIMITS))
    assert [case.name for case in found] == ["t_set_0", "t_set_1"]
    for case in found:
        assert case.arrays is not None
        assert case.arrays().operands[0].dtype == case.operand_format.dtype
        assert np.array_equal(case.arrays().operands[1], arrays[1])


def test_a_model_alone_and_tensors_within_it(tmp_path: Path) -> None:
    onnx = package()
    made = model("Conv", [X, W], {})
    path = tmp_path / "layer.onnx"
    path.write_bytes(made.SerializeToString())
    assert dialect.matches(path)
    [case] = dialect.read(path, LIMITS)
    assert (case.name, case.shapes, case.arrays) == ("layer", (X, W), None)
    x, w = integers([X, W])
    made.graph.initializer.append(onnx.numpy_helper.from_array(w, "W"))
    del made.graph.input[1]
    [case] = dialect.read(folder(tmp_path / "inside", made, [x, x]), LIMITS)
    assert case.arrays is not None
    assert np.array_equal(case.arrays().operands[1], w)


BAD = [
    ("Conv", {"auto_pad": "SOME"}, "auto_pad must be one of"),
    ("Conv", {"pads": [1, 1]}, "pads must have 4 values"),
    ("Conv", {"pads": [1, 1, 1, 1], "auto_pad": "SAME_UPPER"}, "must not both"),
    ("Conv", {"kernel_shape": [3, 3]}, "kernel_shape must be that of W"),
    ("Conv", {"strides": [0, 1]}, "at least 1"),
    ("Conv", {"group": "2"}, "must have attributes"),
    ("Conv", {"banana": 2}, "must have attributes .* got banana"),
    ("Conv", {"group": 3}, "Convolution: "),
    ("Conv", {"output_shape": [4, 4]}, "must have attributes .* got output_shape of INTS"),
    ("Conv", {"output_padding": [0, 0]}, "must have attributes .* got output_padding of INTS"),
    ("ConvTranspose", {"auto_pad": "SAME_UPPER", "strides": [4, 4]}, "whose side ONNX leaves open"),
]


@pytest.mark.parametrize(("kind", "attributes", "sentence"), BAD)
def test_mistakes_are_told(kind: str, attributes: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(model(kind, [X, W if kind == "Conv" else WT], attributes).SerializeToString())
    with pytest.raises(FileError, match=sentence) as caught:
        list(cases.read(path))
    assert str(caught.value).startswith(str(path))


@pytest.mark.parametrize(
    ("names", "sentence"),
    [(["x", "", "w"], "without W$"), (["", "x", "w"], "without X$"), (["x", "w", ""], None), (["x"], "got x of f32$")],
)
def test_inputs_keep_their_places(names: list[str], sentence: str | None, tmp_path: Path) -> None:
    """An empty name is an input that is not given, and those after it are no others for this."""
    onnx = package()
    given = [onnx.helper.make_tensor_value_info(*row) for row in (("x", 1, X), ("w", 1, W))]
    result = onnx.helper.make_tensor_value_info("y", 1, None)
    graph = onnx.helper.make_graph([onnx.helper.make_node("Conv", names, ["y"])], "g", given, [result])
    (tmp_path / "m.onnx").write_bytes(onnx.helper.make_model(graph).SerializeToString())
    if sentence is None:
        assert [len(case.shapes) for case in cases.read(tmp_path / "m.onnx")] == [2]
        return
    with pytest.raises(FileError, match=f"must have 2 or 3 inputs of one type; .*{sentence}"):
        list(cases.read(tmp_path / "m.onnx"))


def test_an_attribute_stands_once(tmp_path: Path) -> None:
    made = model("Conv", [X, W], {"strides": [1, 1]})
    made.graph.node[0].attribute.append(package().helper.make_attribute("strides", [2, 2]))
    (tmp_path / "m.onnx").write_bytes(made.SerializeToString())
    with pytest.raises(FileError, match="got strides of INTS again"):
        list(cases.read(tmp_path / "m.onnx"))


def test_damaged_and_hostile_messages_are_refused(tmp_path: Path) -> None:
    onnx = package()
    x, w = integers([X, W])
    path = folder(tmp_path / "t", model("Conv", [X, W], {}), [x, w, x])
    file = path / "test_data_set_0" / "input_1.pb"
    tensor = onnx.numpy_helper.from_array(w)
    tensor.dims[0] = 5
    file.write_bytes(tensor.SerializeToString())
    [case] = dialect.read(path, LIMITS)
    assert case.arrays is not None
    with pytest.raises(FileError, match="must have the elements that its dims say"):
        case.arrays()
    tensor.dims[:] = [2**40, 4, 3, 2]
    file.write_bytes(tensor.SerializeToString())
    [case] = dialect.read(path, LIMITS)
    assert case.arrays is not None
    with pytest.raises(FileError, match="memory_bytes"):
        case.arrays()
    tensor.data_location = onnx.TensorProto.EXTERNAL
    file.write_bytes(tensor.SerializeToString())
    for data, sentence in (
        (file.read_bytes(), "external"),
        (b"\xff\xff", "a message of ONNX"),
        (None, "cannot be read"),
    ):
        file.unlink()
        if data is not None:
            file.write_bytes(data)
        with pytest.raises(FileError, match=sentence):
            list(cases.read(path))
        file.touch()


def test_a_model_of_other_nodes_says_so(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(model("MaxPool", [X], {"kernel_shape": [2, 2]}).SerializeToString())
    [case] = dialect.read(path, LIMITS)
    assert "MaxPool" in case.unsupported


def network() -> Any:
    """Return a model of several nodes, some of which cannot be read; the batch is a name."""
    from onnx import helper, numpy_helper  # noqa: PLC0415 - an extra

    arrays = {
        "W1": np.ones((6, 4, 3, 3), np.float32), "B1": np.ones(6, np.float32), "W2": np.ones((6, 2, 2, 2), np.float32),
        "W3": np.ones((2, 5, 1, 1), np.float32), "axes": np.array([7, 4, 6, 6], np.int64),
    }  # fmt: skip
    made = helper.make_node
    inner = helper.make_graph([made("Conv", ["y2", "W3"], ["y4"])], "inner", [], [])
    nodes = [
        made("Conv", ["X", "W1", "B1"], ["y1"], name="first", pads=[1, 1, 1, 1]),
        made("Relu", ["y1"], ["r1"]),
        made("Constant", [], ["W4"], value=numpy_helper.from_array(np.ones((2, 6, 3, 3), np.float32))),
        made("ConvTranspose", ["r1", "W2"], ["y2"], strides=[2, 2], name="up/sample"),
        made("Conv", ["y2", "W3"], ["wrong"], name="channels"),
        made("Conv", ["r1", "W4"], ["y3"], strides=[2, 2]),
        made("Reshape", ["X", "shape"], ["some"]),
        made("Conv", ["some", "W1"], ["open"], name="unknown"),
        made("QLinearConv", ["X"] * 8, ["q"], name="quantised"),
        made("If", ["c"], ["i"], then_branch=inner, else_branch=inner),
        made("Relu", ["y3"], ["Y"]),
    ]
    inputs = [helper.make_tensor_value_info("X", 1, ["N", 4, 6, 6]), helper.make_tensor_value_info("shape", 7, [4])]
    inputs += [helper.make_tensor_value_info("c", 9, [])]
    outputs = [helper.make_tensor_value_info(name, 1, None) for name in ("Y", "y2")]
    constants = [numpy_helper.from_array(array, name) for name, array in arrays.items()]
    return helper.make_model(helper.make_graph(nodes, "g", inputs, outputs, constants))


def test_each_convolution_of_a_network(tmp_path: Path) -> None:
    package()
    made = network()
    made.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 2
    path = tmp_path / "net.onnx"
    path.write_bytes(made.SerializeToString())
    errors: list[Exception] = []
    found = list(cases.read(path, refused=errors.append))
    read = [(case.name, case.operator, case.shapes) for case in found if not case.unsupported]
    assert read == [
        ("net_first", "Convolution", ((2, 4, 6, 6), (6, 4, 3, 3), (6,))),
        ("net_up-sample", "ConvTranspose", ((2, 6, 6, 6), (6, 2, 2, 2))),
        ("net_Conv_5", "Convolution", ((2, 6, 6, 6), (2, 6, 3, 3))),
    ]
    assert {case.name: case.unsupported for case in found if case.unsupported} == {
        "net_unknown": "without arrays the shape of some must be known; got (?, ?, ?, ?)",
        "net_quantised": "QLinearConv is not supported; Conv and ConvTranspose are",
        "net_Conv": "nodes in a subgraph of If are not read",
        "net_Conv-2": "nodes in a subgraph of If are not read",
    }
    wrong, others = errors
    assert str(wrong).startswith(f"{path}: Conv channels: Convolution: ")
    assert isinstance(others, PassedOverError)
    assert str(others) == f"{path}: 2 Relu, 1 Constant, 1 Reshape and 1 If cannot be judged"


def test_a_network_of_unknown_batch_takes_it_from_a_set(tmp_path: Path) -> None:
    """The arrays of the model's inputs give the first node its operands, and the others their shapes."""
    package()
    made = network()
    path = tmp_path / "open.onnx"
    path.write_bytes(made.SerializeToString())
    reasons = [case.unsupported for case in cases.read(path, refused=lambda error: None)]
    assert reasons[0] == "without arrays the shape of X must be known; got (?, 4, 6, 6)"
    x = np.ones((3, 4, 6, 6), np.float32)
    arrays = [x, np.array([3, 4, 6, 6]), np.array(True), x]
    found = list(cases.read(folder(tmp_path / "net", made, arrays) / "model.onnx", refused=lambda error: None))
    assert [case.shapes[0] for case in found if not case.unsupported] == [x.shape, (3, 6, 6, 6), (3, 6, 6, 6)]
    assert [case.arrays is None for case in found[:2]] == [False, True]
    assert found[0].arrays is not None
    assert [array.shape for array in found[0].arrays().operands] == [x.shape, (6, 4, 3, 3), (6,)]
    assert found[0].arrays().result is None


def test_external_weights_give_shapes(tmp_path: Path) -> None:
    """The shapes of a model suffice for a case, so the elements of its weights can be in another file."""
    package()
    made = network()
    made.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 2
    weights = made.graph.initializer[0]
    weights.ClearField("raw_data")
    weights.data_location = weights.EXTERNAL
    path = tmp_path / "net.onnx"
    path.write_bytes(made.SerializeToString())
    assert next(iter(cases.read(path))).shapes[1] == (6, 4, 3, 3)


def test_an_empty_result_of_onnx_has_nothing_to_check(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(model("Conv", [(2, 4, 7, 1), W], {}).SerializeToString())
    [case] = cases.read(path)
    assert case.unsupported == "the result 2x6x5x0 has no elements, so there is nothing to check"


def test_without_the_package_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    path = tmp_path / "m.onnx"
    path.write_bytes(b"")
    with pytest.raises(FileError, match="pip install onnx"):
        list(dialect.read(path, LIMITS))


def test_what_stands_beside_a_model_is_read(tmp_path: Path) -> None:
    """The files of a node test belong to the model; all others are read as in any folder."""
    arrays = integers([X, W, (2, 6, 5, 5)])
    path = folder(tmp_path / "test_one", model("Conv", [X, W], {}), arrays, sets=2)
    (path / "cases.txt").write_text("BWD_W f32 NXC mb1ic2ih4oc2kh3ph1")
    (path / "other.onnx").write_bytes(b"damaged")
    (path / "sub").mkdir()
    (path / "sub" / "list").write_text("BWD_D f32 NXC mb1ic2ih4oc2kh3ph1")
    for name in ("notes.md", "weights.pb", "test_data_set_0/more.txt", "test_data_set_0/output_1.pb"):
        (path / name).write_text("no case")
    refused: list[Exception] = []
    found = list(cases.read(path, refused=refused.append))
    assert [Path(case.place.partition(":")[0]).name for case in found] == [
        "cases.txt", "test_data_set_0", "test_data_set_1", "list"
    ]  # fmt: skip
    assert [str(Path(str(error).partition(": ")[0]).relative_to(path)) for error in refused] == [
        "notes.md", "other.onnx", "test_data_set_0/more.txt", "test_data_set_0/output_1.pb", "weights.pb"
    ]  # fmt: skip
