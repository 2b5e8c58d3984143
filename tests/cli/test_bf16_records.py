"""bf16 arrays that ``numpy.save`` wrote as raw 2-byte records: every command reads them where their type is said."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import convgrad
from convgrad import cases, files
from convgrad.cli import main
from convgrad.errors import FileError
from convgrad.formats import FORMATS

DST = (np.arange(24).reshape(2, 4, 3) % 7 - 3).astype(ml_dtypes.bfloat16)
SUMS = DST.astype(np.float32).sum((0, 1)).astype(DST.dtype)
RUN = ("run", "BiasAddBackward", "dst.npy", "--dtype", "bf16", "--expect", "sums.npy", "--check", "oracle")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("dst.npy", DST)
    np.save("sums.npy", SUMS)
    np.savez("tensors.npz", **{"0": DST, "1": SUMS})
    assert np.load("dst.npy").dtype == "V2"


def test_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(RUN) == 0
    assert capsys.readouterr().out.count("ok: 3 of 3 equal") == 2
    assert main(RUN[:3]) == 3
    assert "dst.npy: holds raw 2-byte records, which NumPy makes of bf16 arrays; say that" in capsys.readouterr().err
    assert main((*RUN[:4], "f32")) == 3
    assert "its type must be f32; say that it is bf16 (--type or --dtype bf16, " in capsys.readouterr().err


@pytest.mark.parametrize("name", ["bf16", "f16", "f8_e5m2"])
def test_run_of_bits(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Files of unsigned integers are read as the bits of the type that --type or --dtype names."""
    fmt = FORMATS[name]
    src = DST.astype(fmt.dtype)
    np.save("bits.npy", src.view(fmt.bits))
    np.save("sums.npy", src.astype(np.float32).sum((0, 1)).astype(fmt.dtype).view(fmt.bits))
    words = ("run", "BiasAddBackward", "bits.npy", "--expect", "sums.npy")
    assert main((*words, "--dtype", name)) == 0
    assert "ok: 3 of 3 equal" in capsys.readouterr().out
    np.save("sums.npy", src.astype(np.float32).sum((0, 1)))
    assert main((*words, "--type", name, "--dtype", "f32")) == 0
    assert main(words) == 3
    assert f"holds u{fmt.bits.name[1:]}. If these are the bits of" in capsys.readouterr().err
    np.save("bits.npy", src.astype(np.float32))
    assert main((*words, "--type", name)) == 3
    assert f"bits.npy: must be of --type {name}; its array is f32" in capsys.readouterr().err


def test_records_of_f8() -> None:
    """NumPy writes raw records for f8_e4m3, and for f8_e5m2 a type that NumPy itself cannot read."""
    array = np.arange(6).reshape(2, 3).astype(ml_dtypes.float8_e4m3fn)
    np.save("f8.npy", array)
    assert np.array_equal(files.read("f8.npy", fmt=FORMATS["f8_e4m3"]), array)
    with pytest.raises(FileError, match="NumPy makes of f8_e4m3 arrays; its type must be f8_e5m2"):
        files.read("f8.npy", fmt=FORMATS["f8_e5m2"])
    with pytest.raises(
        FileError, match="raw 1-byte records, which NumPy makes of f8_e4m3 arrays; its type must be bf16"
    ):
        files.read("f8.npy", fmt=FORMATS["bf16"])
    other = array.astype(ml_dtypes.float8_e5m2)
    np.save("e5m2.npy", other.T)
    np.savez("e5m2.npz", other=other)
    assert np.array_equal(files.read("e5m2.npy"), other.T)
    assert np.array_equal(files.mapped("e5m2.npy"), other.T)
    assert np.array_equal(files.read("e5m2.npz:other", fmt=FORMATS["f8_e5m2"]), other)


def test_run_in_pieces() -> None:
    assert main((*RUN[:5], "--memory", "64MB", "-o", "sums.safetensors")) == 0
    assert convgrad.run("BiasAddBackward", DST).tobytes() == SUMS.tobytes()


def test_run_of_a_graph(capsys: pytest.CaptureFixture[str]) -> None:
    ends = [{"id": at, "dtype": "bf16", "shape": list(array.shape)} for at, array in enumerate((DST, SUMS))]
    op = {"kind": "BiasAddBackward", "inputs": ends[:1], "outputs": ends[1:]}
    Path("graph.json").write_text(json.dumps({"graph": [op]}))
    assert main(("run", "graph.json", "--tensors", "tensors.npz")) == 0
    assert "ok: 3 of 3 equal" in capsys.readouterr().out


def test_verify_of_a_file() -> None:
    words = ("verify", "BiasAddBackward", "--shapes", "2x4x3", "--type", "bf16", "--fill", "integers")
    assert main((*words, "--export", ".", "--with-references")) == 0
    (result,) = Path().glob("*.diff_bias.npy")
    np.save("got.npy", np.load(result).view(ml_dtypes.bfloat16))
    assert main((*words, "--got", "got.npy")) == 0
    np.save("got.npy", np.load(result).view(np.uint16))
    assert main((*words, "--got", "got.npy")) == 0
    assert main((*words, "--got", "got.npy", "--dtype", "f32")) == 3


@pytest.mark.parametrize("share", [41, pytest.param(1, marks=pytest.mark.long)], ids=["some", "all"])
def test_verify_many_cases(share: int, capsys: pytest.CaptureFixture[str]) -> None:
    """Up to 200 bf16 NCX cases, with operands and results as ``numpy.save`` writes them, are judged by one command."""
    sizes = [*product(("BWD_W", "BWD_D"), (1, 3, 4, 5), range(3, 8), (1, 2, 3, 4, 5))][::share]
    Path("cases.txt").write_text("\n".join(f"{d} bf16 NCX mb1ic{c}ih{h}oc{o}oh{h}kh3ph1" for d, c, h, o in sizes))
    rng = np.random.default_rng(0)
    for case in cases.read("cases.txt"):
        op, inputs = case.posed()[0], list[object](case.shapes)
        for at, port in enumerate(op.operands):
            if not port.is_shape:
                inputs[at] = rng.standard_normal(case.shapes[at]).astype(ml_dtypes.bfloat16)
                np.save(f"{case.name}.{port.name}.npy", inputs[at])
        np.save(f"{case.name}.{op.output.name}.npy", convgrad.run(case.operator, *inputs, **case.attributes))
    assert main(("verify", "cases.txt", "--got", ".")) == 0
    assert f"{len(sizes)} cases: {len(sizes)} ok" in capsys.readouterr().out
