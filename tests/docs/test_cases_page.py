"""The page on notations: its lines are read, and each is what the page says."""

from __future__ import annotations

import re

from convgrad import cases
from tests.support.places import DOCS

PAGE = DOCS / "cases.md"


def test_lines_of_the_page_are_cases() -> None:
    _, _, lines_on = PAGE.read_text(encoding="utf-8").partition("## MIOpenDriver")
    blocks = re.findall(r"^```\n(.*?)^```", lines_on.partition("## Arrays beside")[0], re.MULTILINE | re.DOTALL)
    lines = [line.removesuffix(" ...") for block in blocks for line in block.splitlines()]
    found = [(case.operator, case.operand_format.name) for line in lines for case in cases.read(line)]
    every = ("Convolution", "ConvolutionBackwardData", "ConvolutionBackwardWeights")
    assert found == [
        ("ConvolutionBackwardWeights", "f32"),
        ("ConvolutionBackwardWeights", "bf16"),
        *((operator, "f16") for operator in every),
        ("ConvolutionBackwardData", "f32"),
        ("ConvolutionBackwardData", "f32"),
    ]
