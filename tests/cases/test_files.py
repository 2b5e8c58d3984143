"""Cases that are graphs, and arrays beside cases: the naming scheme in every kind of file."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import convgrad
from campaigns.cases import mutant
from convgrad import FileError, cases, files
from convgrad.files import raw
from convgrad.formats import F32
from convgrad.graph.limits import Limits
from convgrad.verify.cases import aten, onednn_graph, scheme
from convgrad.verify.cases.aten_header import read_header
from convgrad.verify.cases.case import Case
from convgrad.verify.check import check
from tests.cases.sources import Base
from tests.support.graph_documents import good, tensor, typed
from tests.support.judging import inputs_of
from tests.support.places import SHARED_CASES
from tests.support.tiers import tiers

LINES = [
    "BWD_W bf16 NCX g2mb2ic4ih5oc6kh3ph1",
    "BWD_D f32 NXC mb1ic2iw5oc3kw2",
    "FWD_B f16 NCX mb1ic2iw5oc3kw2",
    "deconv BWD_W f64 NXC mb1ic2iw5oc3kw2sw2",
]
ARGUMENTS = {"op": "aten.convolution", "stride": [2, 1], "padding": [1], "dilation": [1, 2], "groups": 2}
KINDS = [kind for kind in scheme.KINDS if kind != ".pt" or importlib.util.find_spec("torch")]


def one(source: str | Path) -> Case:
    (case,) = cases.read(source)
    return case


def made(case: Case) -> tuple[tuple[np.ndarray, ...], np.ndarray]:
    """Return operands made up for a case, and its result."""
    given = inputs_of(case, "normal")
    return tuple(a for a in given if isinstance(a, np.ndarray)), convgrad.run(case.operator, *given, **case.attributes)


def same(left: np.ndarray, right: np.ndarray) -> bool:
    return left.dtype == right.dtype and left.shape == right.shape and left.tobytes() == right.tobytes()


# -- the naming scheme -------------------------------------------------------------------------------------------------


@tiers("line, kind", LINES, KINDS, every=2)
def test_what_is_exported_is_found(tmp_path: Path, line: str, kind: str) -> None:
    case = one(line)
    operands, result = made(case)
    paths = scheme.export(tmp_path / "new" / "folder", case, operands, result, kind)
    assert sorted(paths) == sorted((tmp_path / "new" / "folder").iterdir())
    found = scheme.operands(tmp_path / "new" / "folder", case)
    assert found is not None
    assert all(map(same, (*found, scheme.result(tmp_path / "new" / "folder", case)), (*operands, result)))
    with pytest.raises(FileError, match="give --force"):
        scheme.export(tmp_path / "new" / "folder", case, operands, result, kind)
    scheme.export(tmp_path / "new" / "folder", case, operands, result, kind, force=True)


def test_an_export_that_cannot_be_written_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case = one(LINES[1])
    operands, _ = made(case)
    there = tmp_path / f"{case.name}.weights.npy"
    there.write_bytes(b"mine")
    with pytest.raises(FileError, match=r"weights\.npy: the file exists"):
        scheme.export(tmp_path, case, operands)
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(FileError, match=r"\.pt files need torch: pip install torch"):
        scheme.export(tmp_path, case, operands, kind=".pt")
    assert list(tmp_path.iterdir()) == [there]


def test_the_sidecar_says_what_is_to_be_computed(tmp_path: Path) -> None:
    """All that a program needs which knows the operator: it computes the result from the files alone."""
    case = one(LINES[3])
    operands, result = made(case)
    about, *_ = scheme.export(tmp_path, case, operands, kind=".bin")
    said = json.loads(about.read_text())
    arrays = {
        name: np.frombuffer((tmp_path / f"{case.name}.{name}.bin").read_bytes(), {"f64": "<f8"}[entry["dtype"]])
        for name, entry in said["tensors"].items()
        if name != said["output"]
    }
    given = [array.reshape(said["tensors"][name]["shape"]) for name, array in arrays.items()]
    mine = convgrad.run(said["operator"], *given, said["shapes"]["weights_shape"], **said["attributes"])
    assert list(mine.shape) == said["tensors"][said["output"]]["shape"]
    (tmp_path / f"{case.name}.{said['output']}.bin").write_bytes(mine.tobytes())
    assert same(scheme.result(tmp_path, case), result)


@pytest.mark.parametrize("seed", range(8))
def test_strides_of_raw_files_are_honoured(tmp_path: Path, seed: int) -> None:
    """An array in any order of axes, with gaps, behind an offset, is the array; what lies between does not matter."""
    rng = np.random.default_rng(seed)
    case = one(LINES[0])
    _, result = made(case)
    order, gaps, offset = rng.permutation(result.ndim), rng.integers(0, 3, result.ndim), int(rng.integers(4))
    strides, step = [0] * result.ndim, 1
    for axis in order:
        strides[axis] = int(step)
        step = step * result.shape[axis] + gaps[axis]
    flat = rng.integers(0, 1 << 16, offset + step + 5).astype(np.uint16)
    view = np.lib.stride_tricks.as_strided(flat[offset:], result.shape, [2 * stride for stride in strides])
    view[...] = result.view(np.uint16)
    about = {"tensors": {"diff_weights": {"strides": strides, "offset": offset}}}
    (tmp_path / f"{case.name}.json").write_text(json.dumps(about))
    (tmp_path / f"{case.name}.diff_weights.bin").write_bytes(flat.tobytes())
    assert (scheme.result(tmp_path, case).view(np.uint16) == result.view(np.uint16)).all()
    (tmp_path / f"{case.name}.diff_weights.bin").write_bytes(flat[: np.dot(strides, np.array(result.shape) - 1)])
    with pytest.raises(FileError, match=r"bf16 of shape \[6, 2, 3, 3\] with strides .* takes .*\d bytes; the file has"):
        scheme.result(tmp_path, case)


def test_an_array_may_be_a_part_of_its_raw_file(tmp_path: Path) -> None:
    """Behind an offset others may follow; strides of an axis of one element are never taken."""
    flat = np.arange(20, dtype=np.float32)
    flat.tofile(tmp_path / "a.bin")
    array = raw.read(tmp_path / "a.bin", raw.Described(F32, (2, 3), offset=4))
    assert array.tolist() == [[4, 5, 6], [7, 8, 9]]
    assert raw.read(tmp_path / "a.bin", raw.Described(F32, (1, 3), (2**62, 2), 1)).tolist() == [[1, 3, 5]]
    with pytest.raises(FileError, match=r"f32 of shape \[2, 3\] takes 24 bytes; the file has 80"):
        raw.read(tmp_path / "a.bin", raw.Described(F32, (2, 3)))


def test_another_type_and_shape_are_read_as_they_are_written(tmp_path: Path) -> None:
    """They are the verdict's to judge."""
    case = one(LINES[0])
    for array in (np.ones((2, 3), np.float32), np.ones(4, np.int64), np.ones((), np.float64)):
        np.save(tmp_path / f"{case.name}.diff_weights.npy", array)
        assert same(scheme.result(tmp_path, case), array)
    (tmp_path / f"{case.name}.diff_weights.npy").unlink()
    entry = {"dtype": "f32", "shape": [3, 0], "strides": [9, 1]}
    (tmp_path / f"{case.name}.json").write_text(json.dumps({"tensors": {"diff_weights": entry}}))
    (tmp_path / f"{case.name}.diff_weights.bin").write_bytes(b"")
    assert same(scheme.result(tmp_path, case), np.empty((3, 0), np.float32))


def test_bits_have_the_type_of_the_case(tmp_path: Path) -> None:
    bits = np.arange(6, dtype=np.uint16)
    for line, dtype in (
        (LINES[0], ml_dtypes.bfloat16),
        (LINES[2], np.float16),
        (LINES[0].replace("bf16", "f32"), np.uint16),
    ):
        case = one(line)
        name = list(scheme.sidecar.tensors_of(case))[-1]
        np.savez(tmp_path / f"{case.name}.npz", **{name: bits})
        assert scheme.result(tmp_path, case).dtype == dtype


@pytest.mark.parametrize("order", "CF")
def test_records_are_bf16_where_the_case_is(tmp_path: Path, order: Any) -> None:
    """What NumPy writes of a bf16 array says nothing of its type."""
    case = one(LINES[0])
    operands, result = made(case)
    for name, array in zip(scheme.sidecar.tensors_of(case), (*operands, result), strict=True):
        np.save(tmp_path / f"{case.name}.{name}.npy", np.asarray(array, order=order))
    assert np.load(tmp_path / f"{case.name}.src.npy").dtype == "V2"
    found = scheme.operands(tmp_path, case)
    assert found is not None
    assert all(map(same, (*found, scheme.result(tmp_path, case)), (*operands, result)))
    other = one(LINES[2])
    np.savez(tmp_path / f"{other.name}.npz", dst=result)
    with pytest.raises(
        FileError, match=r"npz:dst: holds raw 2-byte records, .*; its type must be f16; say that it is bf"
    ):
        scheme.result(tmp_path, other)


def test_what_lacks_or_is_there_twice_is_named(tmp_path: Path) -> None:
    case = one(LINES[0])
    operands, result = made(case)
    assert scheme.operands(tmp_path, case) is None
    with pytest.raises(
        FileError, match=rf"looked for {case.name}\.diff_weights\.npy \(\.npy, \.pt, \.bin\), and for diff_we"
    ):
        scheme.result(tmp_path, case)
    scheme.export(tmp_path, case, operands, None, ".npz")
    with pytest.raises(FileError, match="no result is there; looked for"):
        scheme.result(tmp_path, case)
    scheme.export(tmp_path, case, operands, result, ".npy", force=True)
    with pytest.raises(FileError, match=rf"src of {case.name} must be there once; got it in .*npz, .*\.src\.npy"):
        scheme.operands(tmp_path, case)
    (tmp_path / f"{case.name}.npz").unlink()
    (tmp_path / f"{case.name}.src.npy").unlink()
    with pytest.raises(FileError, match=r"or none; src is missing"):
        scheme.operands(tmp_path, case)
    with pytest.raises(FileError, match=r"arrays are written as .npy, .*; got .txt"):
        scheme.export(tmp_path, case, operands, kind=".txt")
    with pytest.raises(FileError, match="cannot be written"):
        scheme.export(tmp_path / f"{case.name}.json", case, operands)


SIDECARS = {
    "": "json:1:1: must be JSON; Expecting value",
    '{"tensors":\n {]': "json:2:3: must be JSON",
    "[" * 100_000: "must nest no deeper",
    "\udcff": "must be text in UTF-8",
    "[]": "must be an object whose",
    '{"tensors": {"src": 1}}': "are objects by name",
    '{"tensors": {"diff_weights": {"stride": [1]}}}': "may have dtype, shape, strides, offset; got 'stride'",
    '{"tensors": {"diff_weights": {"dtype": "f31"}}}': "diff_weights.dtype must be one of f32",
    '{"tensors": {"diff_weights": {"dtype": [1]}}}': "diff_weights.dtype must be one of f32",
    '{"tensors": {"diff_weights": {"shape": [-1]}}}': "diff_weights.shape must be of non-negative integers",
    '{"tensors": {"diff_weights": {"shape": [true]}}}': "diff_weights.shape must be of non-negative integers",
    '{"tensors": {"diff_weights": {"offset": 1.5}}}': "diff_weights.offset must be of non-negative integers",
    '{"tensors": {"diff_weights": {"strides": [1]}}}': "strides must be one for each of 4 axes",
    '{"tensors": {"diff_weights": {"shape": [%s1]}}}' % ("1," * 64): "shape must have at most 64 axes; got 65",
    '{"tensors": {"diff_weights": {"shape": [9223372036854775807], "strides": [0]}}}': r"must fit \d+ bytes \(memory_b",
    '{"tensors": {"diff_weights": {"shape": [9223372036854775807]}}}': "takes 18446744073709551614 bytes; the file has",
    '{"tensors": {"diff_weights": {"shape": [2], "strides": [9223372036854775807]}}}': "the file has",
}


@pytest.mark.parametrize("text", SIDECARS, ids=lambda text: text[:60])
def test_sidecars_that_are_none(tmp_path: Path, text: str) -> None:
    case = one(LINES[0])
    _, result = made(case)
    (tmp_path / f"{case.name}.json").write_bytes(text.encode("utf-8", "surrogateescape"))
    (tmp_path / f"{case.name}.diff_weights.bin").write_bytes(result.tobytes())
    with pytest.raises(FileError, match=SIDECARS[text]):
        scheme.result(tmp_path, case)


def test_memory_is_limited(tmp_path: Path) -> None:
    case = one(LINES[1])
    operands, result = made(case)
    scheme.export(tmp_path, case, operands, result, ".bin")
    taken = sum(array.nbytes for array in operands)
    assert scheme.operands(tmp_path, case, Limits(memory_bytes=taken)) is not None
    with pytest.raises(FileError, match=r"must fit \d+ bytes \(memory_bytes\)"):
        scheme.operands(tmp_path, case, Limits(memory_bytes=taken - 1))


# -- graphs ------------------------------------------------------------------------------------------------------------


def test_ops_of_a_graph_are_cases(tmp_path: Path) -> None:
    document = good()
    document["graph"].append(
        {
            "id": 19,
            "kind": "ConvolutionBackwardWeights",
            "attrs": typed(strides=[1], dilations=[1], weights_shape=[3, 3, 4]),
            "inputs": [tensor(20, [2, 5, 3], "s8"), tensor(21, [2, 3, 4], "s8")],
            "outputs": [tensor(22, dtype="s8")],
        }
    )
    document["graph"].append(
        {
            "id": 20,
            "kind": "BiasAddBackward",
            "attrs": {},
            "inputs": [tensor(23)],
            "outputs": [tensor(24)],
        }
    )
    document.pop("input_ports")
    document.pop("output_ports")
    (tmp_path / "net.json").write_text(json.dumps(document))
    found = list(cases.read(tmp_path / "net.json"))
    assert [(c.name, c.operator) for c in found[:2]] == [("net_conv", "Convolution"), ("net_bias", "BiasAdd")]
    assert found[0].shapes == ((2, 5, 3), (3, 3, 4))
    assert found[0].attributes["pads_end"] == [1]
    assert "s8 (tensor 20) is not supported" in found[2].unsupported
    assert "are unknown: the graph alone does not settle them" in found[3].unsupported


def test_a_graph_op_with_a_shape_input_has_its_values(tmp_path: Path) -> None:
    op = {
        "kind": "ConvolutionBackwardWeights",
        "attrs": typed(strides=[1], dilations=[1]),
        "inputs": [tensor(0, [2, 5, 3]), tensor(1, [2, 3, 4]), tensor(2, [3], "s32")],
        "outputs": [tensor(3, [3, 3, 4])],
    }
    (tmp_path / "a.json").write_text(json.dumps({"graph": [op]}))
    case = one(tmp_path / "a.json")
    assert case.shapes == ((2, 5, 3), (2, 3, 4), (3, 3, 4))
    assert check(case.operator, made(case)[1], *inputs_of(case, "normal"), **case.attributes).ok


def test_a_graph_that_is_none_is_refused_by_its_json_path(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text('{"graph": [{"kind": "GELU", "inputs": [], "outputs": []}]}')
    with pytest.raises(FileError, match="must have an op of the convolution family; it has GELU"):
        list(cases.read(path))
    path.write_text('{"graph": [{"kind": 1}]}')
    with pytest.raises(FileError, match=r"a.json: \$\.graph\[0\]\.kind"):
        list(cases.read(path))
    path.write_text('{"name": "graph"}')
    with pytest.raises(FileError, match="must be cases in a notation that is known here"):
        list(cases.read(path))


@pytest.mark.skipif(not SHARED_CASES.exists(), reason="no graphs of others beside the checkout")
@pytest.mark.parametrize("name", ["conv_bwd_w_2d", "deconv_bwd_w"])
def test_graphs_of_others_are_read_as_they_are(name: str) -> None:
    assert one(SHARED_CASES / f"{name}.json").operator.endswith("BackwardWeights")


# -- damage ------------------------------------------------------------------------------------------------------------


def attempts(document: Any, attempt: Callable[[str], object], number: int) -> int:
    """Return how many of so many damaged documents are refused by a FileError: the others are read."""
    base, refused = Base("document", {"a.json": json.dumps(document).encode()}, "a.json"), 0
    for seed in range(number):
        text = mutant(np.random.default_rng(seed), base).files["a.json"].decode("utf-8", "replace")
        try:
            attempt(text)
        except FileError:
            refused += 1
    return refused


@pytest.mark.parametrize("number", [100, pytest.param(20_000, marks=pytest.mark.long)])
def test_damaged_documents_are_read_or_refused(tmp_path: Path, number: int) -> None:
    case = one(LINES[0])
    _, result = made(case)
    (tmp_path / f"{case.name}.diff_weights.bin").write_bytes(result.tobytes())
    sidecar = {"tensors": {"diff_weights": {"dtype": "bf16", "shape": [6, 2, 3, 3], "strides": [18, 9, 3, 1]}}}
    shared = tmp_path / "a.json"

    def graph(text: str) -> None:
        shared.write_text(text)
        if onednn_graph.matches(shared):
            list(cases.read(shared))

    def beside(text: str) -> None:
        (tmp_path / f"{case.name}.json").write_text(text)
        scheme.result(tmp_path, case)

    def header(text: str) -> None:
        read_header(text, "a.npz: aten")

    for document, attempt in ((good(), graph), (sidecar, beside), (ARGUMENTS, header)):
        assert number / 4 < attempts(document, attempt, number) < number


def test_files_has_one_table_of_kinds() -> None:
    written = {kind: row for kind, row in files.KINDS.items() if not row.is_folder}
    assert set(scheme.KINDS) == {*written, ".bin"}
    assert set(scheme.TOGETHER) == {kind for kind, row in written.items() if row.keyed}
    assert set(aten.KINDS) <= set(files.KINDS)
