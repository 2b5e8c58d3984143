"""The public cases: each is posed, says why it is hard, and is answered rightly by convgrad itself."""

from __future__ import annotations

import re
from collections import Counter

import numpy as np
import pytest

import convgrad
from convgrad.errors import NotationError
from convgrad.spec.operators import find
from convgrad.verify.cases import collection
from convgrad.verify.cases.case import Case
from convgrad.verify.cases.strange import VALUES, VIEWS
from tests.support.hard_cases import ROWS
from tests.support.judging import inputs_of, judged
from tests.support.places import DOCS

FILE_NAME = re.compile(r"[\w.-]{1,100}")
SPARED = 133  # of so many cases the quick tier judges one; shares no factor with the 12 calls of a geometry


def text_of(name: str) -> str:
    return (collection.resources.files("convgrad.verify.cases") / "collections" / f"{name}.txt").read_text()


def test_names_are_unique_and_fit_for_files() -> None:
    cases = [case for name in collection.NAMES for case in collection.cases(name)]
    assert len(cases) == len({case.name.casefold() for case in cases})
    assert [case.name for case in cases if not FILE_NAME.fullmatch(case.name)] == []
    assert min(len(case.why.split()) for case in cases) >= 2


@pytest.mark.parametrize("name", ["hard", "edges"])
def test_every_kind_of_call_is_met(name: str) -> None:
    """Of the current generation, but BiasAdd, which sums nothing."""
    cases = collection.cases(name)
    operators = Counter(case.operator for case in cases)
    transposed = {"ConvTranspose", "ConvTransposeBackwardData", "ConvTransposeBackwardWeights"}
    plain = {"Convolution", "ConvolutionBackwardData", "ConvolutionBackwardWeights", "BiasAddBackward"}
    assert operators.keys() == transposed | plain
    kinds = {(c.operand_format.name, c.attributes["data_format"]) for c in cases}
    assert kinds >= set(collection.KINDS)


def test_every_report_that_convgrad_is_tested_by_has_a_case() -> None:
    """Names of reports in ``tests/support/hard_cases.py`` are those of the reasons."""
    text = text_of("hard").casefold()
    reports = {row.id.split()[0].rstrip(",") for row in ROWS if "#" in row.id}
    assert [report for report in reports if report.split("/")[-1].casefold() not in text] == []


def test_what_a_line_cannot_mean_is_refused() -> None:
    for line in ("a mb1ic1oc1iw1kw1", "a mb1ic1oc1iw1kw1 rolls=FWD_D # why", "a mb1ic1oc1iw1kw1 view=odd # why"):
        with pytest.raises(NotationError, match=r"^here: a line of a collection is NAME .* got 'a mb1"):
            list(collection.read(line, "here"))
    with pytest.raises(NotationError, match="the collections are hard, edges, shapes, large, conformance; got 'soft'"):
        collection.cases("soft")


def test_words_of_a_line() -> None:
    """Choices go through all combinations; pads and formats are as the words say."""
    line = (
        "n-{c=1,2}-{s=1,2} deconv mb1ic{c}oc3ih4oh8kh3sh2 auto_pad=same_upper roles=FWD_D types=f16 layouts=NXC:IOX # y"
    )
    cases = list(collection.read(line.replace("-{s=1,2}", ""), "here"))
    assert [case.name for case in cases] == [f"n-{c}.ConvTranspose.f16.NXC-IOX" for c in (1, 2)]
    assert cases[1].shapes == ((1, 4, 4, 2), (2, 3, 3, 3))
    assert cases[1].attributes["auto_pad"] == "same_upper"
    assert cases[1].attributes.keys().isdisjoint({"pads_begin", "pads_end", "output_padding"})
    padded = "n deconv mb1ic1oc1iw4ow8kw3sw2pw1 pads_end=1 output_padding=1 roles=FWD_D types=f32 layouts=NXC # y"
    (case,) = collection.read(padded, "here")
    assert (case.attributes["pads_end"], case.attributes["output_padding"]) == ([1], [1])


@pytest.mark.parametrize("view", VIEWS)
def test_views_hold_the_operands(view: str) -> None:
    """The same numbers as a copy that lies together, in memory that does not."""
    (case,) = collection.read(f"n mb2ic3oc4iw5kw3 view={view} roles=BWD_D types=f32 layouts=NCX # y", "here")
    *arrays, shape = inputs_of(case, "integers")
    assert [array.shape for array in arrays] == list(case.shapes[:2])
    assert all(np.isfinite(array).all() for array in arrays)
    assert not any(array.flags.c_contiguous for array in arrays)
    assert shape == case.shapes[2]


@pytest.mark.parametrize("value", VALUES)
def test_one_value_is_no_number(value: str) -> None:
    """Only where the tensor is an operand: the forward and the weight gradient read src."""
    cases = list(collection.read(f"n mb2ic3oc4iw5kw3 {value}=src types=f32 layouts=NCX # y", "here"))
    assert [case.operator for case in cases] == ["Convolution", "ConvolutionBackwardWeights"]
    for case in cases:
        src, other, *_ = inputs_of(case, "integers")
        assert [np.count_nonzero(~np.isfinite(array)) for array in (src, other)] == [1, 0]
        assert np.array_equal(src[~np.isfinite(src)], [VALUES[value]], equal_nan=True)


def assert_right(cases: list[Case]) -> None:
    for case in cases:
        for kind in ("integers", "normal"):
            verdict = judged(case, convgrad.run, kind)
            assert verdict.ok, f"{case.name} {kind} ({case.place}): {verdict}"
            assert len(find(case.operator).operands) >= len(case.shapes)


def test_convgrad_is_right_on_some() -> None:
    assert_right([case for name in ("hard", "edges") for case in collection.cases(name)[:: 5 * SPARED]])


@pytest.mark.long
@pytest.mark.parametrize("name", collection.NAMES)
def test_convgrad_is_right_on_all(name: str) -> None:
    assert_right(list(collection.cases(name)))


def test_the_pages_count_the_hard_cases() -> None:
    number = f"{len(collection.cases('hard')):,}"
    page = (DOCS / "verify.md").read_text(encoding="utf-8")
    assert f"| `hard` | {number} cases from reports of wrong" in page
