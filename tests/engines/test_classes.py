"""The classes of layers: problems have every choice, are said by calls and lines, and have kernels."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import convgrad
from convgrad.formats import FORMATS
from convgrad.notation import problem
from convgrad.spec.check import check_attributes
from convgrad.spec.geometry import Conv
from convgrad.spec.operators import find
from convgrad.spec.problem import problem_of
from tests.engines.runs import problems_of
from tests.support.classes import CLASSES, WEIGHTS, any_case, case_of, layouts_of, line_of, rest_of

CONV = find("ConvolutionBackwardWeights")
CHOICES = 16  # problems of a class: as many as a field has choices, at most
classes = pytest.mark.parametrize("name", CLASSES)


@classes
def test_explain_chooses_the_generated_engine(name: str) -> None:
    for conv in problems_of(name, 0, 3):
        case = case_of(conv, CONV, layouts_of(CONV)[0], FORMATS["f32"], FORMATS["f32"])
        explanation = convgrad.explain(CONV.name, *case.shapes, **case.attributes)
        assert explanation.choice.engine == "generated"
        assert explanation.problem.geometry == conv
        assert explanation.plan is not None


@classes
def test_the_quick_problems_have_every_choice(name: str) -> None:
    one, convs = CLASSES[name], problems_of(name, 0, CHOICES)
    axes = [axis for conv in convs for axis in conv.axes]
    assert {conv.groups for conv in convs} == set(one.groups)
    assert {conv.src_channels // conv.groups for conv in convs} == set(one.inner)
    assert {conv.dst_channels // conv.groups for conv in convs} == set(one.outer)
    assert {len(conv.axes) for conv in convs} == set(one.axes)
    assert {axis.kernel for axis in axes} == set(one.kernel)
    assert {axis.dilation for axis in axes} == set(one.dilations)
    assert {axis.stride for axis in axes} == set(one.kernel if one.patches else one.strides)
    assert all(conv.multiply_adds <= 1_000_000 or conv.batch * conv.positions == 1 for conv in convs)


@classes
def test_calls_and_lines_say_the_problem(name: str) -> None:
    """A call may leave more of a transposed operator's output behind, a line leaves nothing."""
    rng = np.random.default_rng(len(name))
    for conv in problems_of(name, 1, 40):
        case = any_case(conv, rng, FORMATS["f32"], FORMATS["f32"])
        attributes = check_attributes(case.op, case.attributes, len(conv.axes))
        called = problem_of(case.op, case.shapes, attributes, case.format, case.format).geometry
        assert called == conv or (case.op.transposed and called == with_src_of(conv, called)), case
        if len(conv.axes) <= 3:
            for transposed in (False, True):
                said = problem(line_of(conv, "f32", "NCX", transposed)).geometry
                assert (said == conv) == all(rest_of(a) == 0 for a in conv.axes)
                assert isinstance(said, Conv)
                assert said.dst_shape == conv.dst_shape
                assert said.weights_shape == conv.weights_shape


def test_calls_are_given_in_every_way() -> None:
    rng = np.random.default_rng(65)
    cases = [any_case(conv, rng, FORMATS["f32"], FORMATS["f32"]) for conv in problems_of("dense", 2, 100)]
    assert {case.op for case in cases} == set(WEIGHTS)
    assert {case.attributes.get("auto_pad") for case in cases} == {None, "valid", "same_upper", "same_lower"}
    transposed = [case for case in cases if case.op.transposed]
    assert {"output_padding" in case.attributes for case in transposed} == {True, False}
    assert {len(case.shapes) == len(case.op.operands) for case in cases} == {True, False}
    assert {"pads_begin" in case.attributes for case in cases if "auto_pad" in case.attributes} == {True, False}


def with_src_of(conv: Conv, other: object) -> Conv:
    assert isinstance(other, Conv)
    pairs = zip(conv.axes, other.axes, strict=True)
    return replace(conv, axes=tuple(replace(a, src=max(a.src, b.src)) for a, b in pairs))
