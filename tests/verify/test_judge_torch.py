"""PyTorch as somebody to judge: ``examples/judge_torch.py`` says every call of the family in PyTorch's words."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from convgrad.verify import check
from convgrad.verify.cases import collection
from convgrad.verify.cases.case import Case
from tests.support.judging import judged_in_full
from tests.support.places import EXAMPLES
from tests.support.torch_sums import adds_in_bf16

SPARED = {"hard": 29, "edges": 53}  # of so many cases the quick tier judges one
# What PyTorch 2.13 is wrong on: NaN and infinities beside padding, strides of 2^55, odd pads of a transposed gradient;
# oneDNN-6035-64 ends the process. `convgrad verify --collection hard --call judge_torch:run --isolate` judges all.
KNOWN = ("oneDNN-6035-64", "pytorch-147362", "burn-5385", "oneDNN-2a743fd", "openvino-7321")


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Any:
    pytest.importorskip("torch")
    monkeypatch.syspath_prepend(str(EXAMPLES))
    yield __import__("judge_torch").run
    sys.modules.pop("judge_torch")


def unknown(case: Case) -> bool:
    return not case.name.startswith(KNOWN)


@pytest.mark.every(2)
@pytest.mark.parametrize("name", SPARED)
def test_pytorch_answers_what_was_asked(name: str, run: Any) -> None:
    """Integers whose sums are exact, so that any misreading of a call shows, and nothing else does.

    Of bf16 partial sums are none where PyTorch keeps those in bf16.
    """
    cases = [case for case in collection.cases(name)[:: SPARED[name]] if unknown(case)]
    cases += [
        case for case in collection.cases(name) if "BiasAddBackward" in case.name or "output_padding" in case.why
    ][::5]
    cases = [case for case in cases if "bf16" not in case.name or not adds_in_bf16()]
    wrong = {case.name: str(v) for case in cases if not (v := judged_in_full(case, run, "integers")).ok}
    assert wrong == {}


def test_what_adds_in_bf16_is_wrong_on_ordinary_data() -> None:
    """As docs/findings.md has it: the verdict goes by how PyTorch adds on this processor."""
    torch = pytest.importorskip("torch")
    torch.manual_seed(5)
    src, diff_dst = torch.randn(2, 32, 14, 14).bfloat16(), torch.randn(2, 64, 14, 14).bfloat16()
    result = torch.nn.grad.conv2d_weight(src, (64, 32, 3, 3), diff_dst, padding=1)
    layer = {"auto_pad": "same_upper", "data_format": "NCX", "weights_format": "OIX", "weights_shape": [64, 32, 3, 3]}
    verdict = check("ConvolutionBackwardWeights", result, src, diff_dst, strides=[1, 1], dilations=[1, 1], **layer)
    assert (verdict.outcome == "wrong") == adds_in_bf16(), verdict
