"""Argument lists of aten.convolution_backward: what PyTorch computes of them, and every mistake of a header."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save_file

from convgrad import FileError, cases
from convgrad.graph.limits import Limits
from convgrad.verify.cases.aten_header import read_header
from convgrad.verify.check import check
from tests.support.judging import inputs_of
from tests.support.places import DOCS

ARGUMENTS = {"stride": [2, 1], "padding": [1], "dilation": [1, 2], "groups": 2}
X, W, Y = (2, 4, 7, 6), (6, 2, 3, 2), (2, 6, 4, 6)


def backward(**changed: Any) -> dict[str, Any]:
    header = {"op": "aten.convolution_backward", **ARGUMENTS, "output_mask": [True] * 3, "bias_sizes": [6]}
    return {key: value for key, value in {**header, **changed}.items() if value is not ...}


def tensors(dtype: Any = np.float32, **shapes: tuple[int, ...]) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    wanted = shapes or {"input": X, "weight": W, "grad_output": Y}
    return {key: rng.standard_normal(shape).astype(dtype) for key, shape in wanted.items()}


def saved(path: Path, header: Any, arrays: dict[str, np.ndarray]) -> Path:
    text = header if isinstance(header, str) else json.dumps(header)
    if path.suffix == ".npz":
        np.savez(path, aten=text, **arrays)
    else:
        save_file(arrays, path, metadata={"aten": text})
    return path


@pytest.mark.skipif(not importlib.util.find_spec("torch"), reason="needs torch")
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("kind", [".npz", ".safetensors"])
def test_argument_lists_mean_what_pytorch_computes(tmp_path: Path, transposed: bool, kind: str) -> None:
    import torch  # noqa: PLC0415

    extra = [1, 0] if transposed else [0, 0]
    torch.manual_seed(0)
    x, w = torch.randn(X), torch.randn((4, 3, 3, 2) if transposed else W)
    call = ([2, 1], [1, 1], [1, 2], transposed, extra, 2)
    y = torch.ops.aten.convolution(x, w, None, *call)
    dy = torch.randn_like(y)
    gradients = torch.ops.aten.convolution_backward(dy, x, w, [6], *call, [True] * 3)
    names = ("grad_output", "input", "weight", "grad_input", "grad_weight", "grad_bias")
    arrays = dict(zip(names, (t.numpy() for t in (dy, x, w, *gradients)), strict=True))
    header = backward(transposed=transposed, output_padding=extra)
    found = list(cases.read(saved(tmp_path / f"a{kind}", header, arrays)))
    found += cases.read(
        saved(
            tmp_path / f"f{kind}",
            backward(op="aten::convolution.default", transposed=transposed, output_padding=extra),
            {"input": x.numpy(), "weight": w.numpy(), "output": y.numpy()},
        )
    )
    assert len(found) == 4
    for case in found:
        assert case.arrays is not None
        result = case.arrays().result
        verdict = check(case.operator, result, *inputs_of(case, "normal"), **case.attributes)
        assert verdict.outcome != "wrong", (case.name, str(verdict))
        assert result is not None
        assert verdict.elements == result.size > 0


def test_the_mask_says_which_gradients(tmp_path: Path) -> None:
    for mask in np.ndindex(2, 2, 2):
        wanted = [bool(item) for item in mask]
        found = list(cases.read(saved(tmp_path / "a.npz", backward(output_mask=wanted), tensors())))
        names = "".join(case.operator for case in found)
        said = [name in names for name in ("BackwardData", "BackwardWeights", "BiasAddBackward")]
        assert said == wanted


def test_bits_of_bf16_need_a_header_that_says_so(tmp_path: Path) -> None:
    bits = {key: array.astype(ml_dtypes.bfloat16).view(np.uint16) for key, array in tensors().items()}
    for case in cases.read(saved(tmp_path / "a.npz", backward(dtype="bf16"), bits)):
        assert case.operand_format.name == "bf16"
        assert case.arrays is not None
        assert {array.dtype for array in case.arrays().operands} == {np.dtype(ml_dtypes.bfloat16)}
    with pytest.raises(FileError, match='bits of bf16 need "dtype": "bf16" in the header'):
        list(cases.read(saved(tmp_path / "a.npz", backward(), bits)))


HEADERS: dict[str, tuple[Any, str]] = {
    "no JSON": ('{"op":\n  ,', r"a.npz: aten:2:3: must be JSON"),
    "a key twice": ('{"op": 1, "op": 2}', "aten: keys of an object must differ; 'op' stands twice"),
    "deep": ("[" * 100_000, "aten: must nest no deeper"),
    "a list": ([], "aten: must be an object; got list"),
    "no op": (backward(op=...), "aten must have op; it has stride"),
    "other op": (backward(op="aten.conv2d"), r"aten.op must be one of .*; got \"aten.conv2d\""),
    "unknown": (backward(strides=[1]), "aten may have op, stride, .*; got 'strides'"),
    "negative": (backward(padding=[-1, 0]), r"aten.padding must be integers of at least 0; got \[-1, 0\]: crop input"),
    "same": (backward(padding="same"), 'aten.padding must be integers of at least 0; got "same"'),
    "stride 0": (backward(stride=[0]), "aten.stride must be integers of at least 1"),
    "three axes": (backward(dilation=[1, 1, 1]), "aten.dilation must be one number, or one for each of 2 axes"),
    "groups": (backward(groups=[2]), "aten.groups must be integers of at least 1"),
    "groups 3": (backward(groups=3), r"\[G\d\]"),
    "a true": (backward(groups=True), "aten.groups must be integers"),
    "mask": (backward(output_mask=[1, 1, 1]), "aten.output_mask must be three of true and false"),
    "transposed": (backward(transposed=1), "aten.transposed must be true or false"),
    "padded": (backward(output_padding=[1]), "output_padding must be 0 where transposed is false"),
    "bias": (backward(bias_sizes=[5]), r"aten.bias_sizes must be \[6\], the channels of grad_output; got \[5\]"),
    "dtype": (backward(dtype="f31"), "aten.dtype must be one of f32"),
    "extent": (backward(stride=[1]), r"\[G\d\]"),
}  # fmt: skip


@pytest.mark.parametrize("what", HEADERS)
def test_headers_that_are_none(tmp_path: Path, what: str) -> None:
    header, message = HEADERS[what]
    with pytest.raises(FileError, match=message):
        list(cases.read(saved(tmp_path / "a.npz", header, tensors())))


def test_all_arrays_of_a_case_share_the_memory(tmp_path: Path) -> None:
    path = saved(tmp_path / "a.npz", backward(output_mask=[False, True, False]), tensors())
    taken = tensors()["input"].nbytes + tensors()["grad_output"].nbytes + 128  # the last one's header counts
    (case,) = cases.read(path, Limits(memory_bytes=taken))
    assert case.arrays is not None
    assert len(case.arrays().operands) == 2
    (case,) = cases.read(path, Limits(memory_bytes=taken - 1))
    assert case.arrays is not None
    with pytest.raises(FileError, match=r"must fit 1279 bytes \(memory_bytes\)"):
        case.arrays()


@pytest.mark.parametrize("mask", [[True, False, False], [False, True, False]], ids=["input", "weight"])
@pytest.mark.parametrize("transposed", [False, True])
def test_tensors_of_different_calls_are_refused(tmp_path: Path, transposed: bool, mask: list[bool]) -> None:
    """Also if the gradient is computed without the tensor that does not fit."""
    shapes = {"input": (2, 4, 9), "weight": (4, 4, 3), "grad_output": (2, 4, 7)}
    arrays = {name: np.ones(shape, np.float32) for name, shape in shapes.items()}
    header = {"op": "aten.convolution_backward", "stride": 1, "padding": 0, "dilation": 1, "output_mask": mask}
    for extent in (4, 5, 6, 9):
        shapes["input"] = (2, 4, extent)
        arrays["input"] = np.ones(shapes["input"], np.float32)
        path = saved(tmp_path / f"{extent}.npz", header | {"transposed": transposed}, arrays)
        if extent == (5 if transposed else 9):
            assert len(list(cases.read(path))) == 1
        else:
            with pytest.raises(FileError, match=r"extent|input must be 2x4x5 by .*; got 2x4x\d"):
                list(cases.read(path))


def test_argument_lists_that_lack_something(tmp_path: Path) -> None:
    def refused(message: str, **arrays: Any) -> None:
        with pytest.raises(FileError, match=message):
            list(cases.read(saved(tmp_path / "a.npz", backward(), {**tensors(), **arrays})))

    refused("may have grad_output, .*; got 'gradd'", gradd=np.ones(1))
    refused("operands must be of one type; got", weight=np.ones(W))
    refused("weight must be of f32, .*; got int64", weight=np.ones(W, np.int64))
    refused("weight must have an axis of its own", weight=np.ones(2, np.float32))
    arrays = tensors()
    del arrays["input"]
    with pytest.raises(FileError, match="must have grad_output, input, weight; input is missing"):
        list(cases.read(saved(tmp_path / "a.npz", backward(), arrays)))
    np.savez(tmp_path / "b.npz", **arrays)
    with pytest.raises(FileError, match="must have the arguments as JSON under 'aten', an array of one string"):
        list(cases.read(tmp_path / "b.npz"))
    save_file(arrays, tmp_path / "b.safetensors")
    with pytest.raises(FileError, match="under 'aten', its metadata"):
        list(cases.read(tmp_path / "b.safetensors"))
    (tmp_path / "b.safetensors").write_bytes(b"no tensors")
    with pytest.raises(FileError, match=r"cannot be read as \.safetensors"):
        list(cases.read(tmp_path / "b.safetensors"))


def test_the_header_of_the_page_is_one() -> None:
    page = (DOCS / "cases.md").read_text(encoding="utf-8")
    (header,) = re.findall(r"```json\n(\{\"op\".*?)```", page, re.DOTALL)
    assert read_header(header, "").output_mask == (True, True, True)
    assert json.loads(header).keys() == set(
        re.findall(
            r"\w+",
            " ".join(line.split("|")[1] for line in page.split("| key | value")[1].split("\n\n")[0].splitlines()[2:]),
        )
    )
