"""hipDNN bundles: a graph of one convolution, and its tensors read by their strides."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import convgrad
from convgrad.errors import FileError
from convgrad.graph.limits import Limits
from convgrad.verify.cases import hipdnn
from tests.cases.sources import DIMS, NODES, SAME, hipdnn_graph
from tests.support.tiers import tiers

Array = np.ndarray[Any, Any]
TYPES = {"float": np.dtype(np.float32), "half": np.dtype(np.float16), "bfloat16": np.dtype(ml_dtypes.bfloat16)}
TYPES |= {"fp8_e4m3": np.dtype(ml_dtypes.float8_e4m3fn), "fp8_e5m2": np.dtype(ml_dtypes.float8_e5m2)}


def write(folder: Path, document: Mapping[str, Any], arrays: Mapping[int, Array]) -> Path:
    path = folder / "Layer.json"
    path.write_text(json.dumps(document))
    for uid, array in arrays.items():
        (folder / f"Layer.tensor{uid}.bin").write_bytes(array.tobytes())
    return path


@tiers("data_type, order, kind", list(TYPES), [(0, 1, 2, 3), (0, 2, 3, 1), (3, 0, 2, 1)], list(NODES), every=4)
def test_a_bundle_is_its_operator_on_its_arrays(
    kind: str, order: tuple[int, ...], data_type: str, tmp_path: Path
) -> None:
    rng = np.random.default_rng(3)
    document = hipdnn_graph(kind, order, data_type)
    operands, output, operator = NODES[kind]
    logical = [rng.integers(-2, 3, DIMS[SAME[name]]).astype(TYPES[data_type]) for name in (*operands, output)]
    lying = {uid: np.ascontiguousarray(array.transpose(order)) for uid, array in enumerate(logical, 10)}
    path = write(tmp_path, document, lying)
    assert hipdnn.matches(path)
    [case] = hipdnn.read(path, Limits())
    assert (case.name, case.operator) == ("Layer", operator)
    assert case.arrays is not None
    arrays = case.arrays()
    assert arrays.result is not None
    for found, wanted in zip((*arrays.operands, arrays.result), logical, strict=True):
        assert found.dtype == wanted.dtype
        assert np.array_equal(found, wanted)
    shapes = (list(shape) for shape in case.shapes[2:])
    assert convgrad.run(operator, *arrays.operands, *shapes, **case.attributes).shape == DIMS[SAME[output]]


def test_strides_may_leave_gaps_and_files_may_be_absent(tmp_path: Path) -> None:
    document = hipdnn_graph()
    document["tensors"][0]["strides"] = [400, 60, 10, 1]
    assert next(hipdnn.read(write(tmp_path, document, {}), Limits())).arrays is None
    memory = np.arange(1 + 400 + 3 * 60 + 4 * 10 + 5, dtype=np.float32)
    weights = np.ones(DIMS["w"], np.float32)
    [case] = hipdnn.read(write(tmp_path, document, {10: memory, 11: weights}), Limits())
    assert case.arrays is not None
    arrays = case.arrays()
    assert arrays.operands[0][1, 2, 3, 4] == 400 + 120 + 30 + 4
    assert arrays.result is None


def changed(path: str, value: object) -> dict[str, Any]:
    """Return the graph with the value at a path changed, or taken out where it is None."""
    document: Any = hipdnn_graph()
    *way, last = [int(step) if step.isdecimal() else step for step in path.split(".")]
    place = document
    for step in way:
        place = place[step]
    if value is None:
        del place[last]
    else:
        place[last] = value
    return dict(document)


BAD = [
    ("tensors.0.dims", None, r"\$\.tensors\[0\]: must be an object with the key dims"),
    ("tensors.0.dims.1", 2.5, r"\$\.tensors\[0\]\.dims\[1\]: must be an integer"),
    ("tensors.0.strides.1", -1, r"\$\.tensors\[0\]\.strides\[1\]: .*at least 0"),
    ("tensors.0.strides", [1, 2], r"\$\.tensors\[0\]: dims and strides must have one length"),
    ("tensors.0.data_type", "f33", r"\$\.tensors\[0\]\.data_type: must be one of"),
    ("tensors.0.uid", True, r"\$\.tensors\[0\]\.uid: must be an integer"),
    ("tensors.1.data_type", "half", "must be of one data_type"),
    ("tensors.2.dims", [2, 6, 4, 6], "the dims of y must be"),
    ("nodes", {}, r"\$\.nodes: must be a list"),
    ("nodes.0.parameters.stride", [1], "strides"),
    ("nodes.0.parameters.stride", [0, 1], "strides"),
    ("nodes.0.parameters.conv_mode", "UNSET", r"conv_mode: must be CROSS_CORRELATION"),
    ("nodes.0.inputs.x_tensor_uid", 77, r"x_tensor_uid: must be the uid of a tensor"),
]


@pytest.mark.parametrize(("where", "value", "sentence"), BAD)
def test_mistakes_are_told_by_their_path(where: str, value: object, sentence: str, tmp_path: Path) -> None:
    path = write(tmp_path, changed(where, value), {})
    with pytest.raises(FileError, match=sentence) as caught:
        list(hipdnn.read(path, Limits()))
    assert str(caught.value).startswith(str(path))


@pytest.mark.parametrize(
    ("text", "where"),
    [('{"nodes":\n [}', ":2:3: must be JSON"), ('{"nodes": 1, "nodes": 2}', "stands twice"), ("[" * 9999, "nest"),
     ('{"nodes": NaN}', "finite"), ('{"nodes": 1' + "0" * 5000 + "}", "must be a list"), ("[]", "must be an object")],
)  # fmt: skip
def test_texts_that_are_no_hipdnn_graph(text: str, where: str, tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(text)
    with pytest.raises(FileError, match=where):
        list(hipdnn.read(path, Limits()))


def test_strides_of_axes_of_one_position_and_of_nothing_mean_nothing_and_much(tmp_path: Path) -> None:
    document = hipdnn_graph()
    for tensor, dims in zip(document["tensors"], ([1, 4, 5, 6], DIMS["w"], [1, 6, 3, 6]), strict=True):
        tensor["dims"] = list(dims)
    document["tensors"][0]["strides"] = [2**63 - 1, 0, 0, 0]
    arrays = {10: np.full(1, 3, np.float32), 11: np.ones(DIMS["w"], np.float32)}
    [case] = hipdnn.read(write(tmp_path, document, arrays), Limits())
    assert case.arrays is not None
    assert np.array_equal(case.arrays().operands[0], np.full((1, 4, 5, 6), 3))
    [case] = hipdnn.read(tmp_path / "Layer.json", Limits(memory_bytes=600))
    assert case.arrays is not None
    with pytest.raises(FileError, match="dims and strides say 912"):
        case.arrays()


def test_files_of_another_size_are_refused(tmp_path: Path) -> None:
    arrays = {10: np.ones(DIMS["x"], np.float32), 11: np.ones(3, np.float32)}
    [case] = hipdnn.read(write(tmp_path, hipdnn_graph(), arrays), Limits())
    assert case.arrays is not None
    with pytest.raises(FileError, match=r"tensor11\.bin: must have the 432 bytes .*got 12"):
        case.arrays()
    [case] = hipdnn.read(write(tmp_path, hipdnn_graph(), arrays), Limits(memory_bytes=100))
    assert case.arrays is not None
    with pytest.raises(FileError, match="memory_bytes"):
        case.arrays()
    (tmp_path / "Layer.tensor11.bin").unlink()
    with pytest.raises(FileError, match=r"tensor11\.bin: must be there"):
        list(hipdnn.read(tmp_path / "Layer.json", Limits()))


@pytest.mark.parametrize(
    "change",
    [("nodes.0.type", "MatmulAttributes"), ("nodes", []), ("tensors.0.data_type", "int8"),
     ("nodes.0.parameters.conv_mode", "CONVOLUTION")],
)  # fmt: skip
def test_what_nobody_can_judge_says_so(change: tuple[str, object], tmp_path: Path) -> None:
    [case] = hipdnn.read(write(tmp_path, changed(*change), {}), Limits())
    assert case.unsupported
