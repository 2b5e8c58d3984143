"""Twelve zeros, which oneDNN writes for an absent attribute, count as absent in every call."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import convgrad
from convgrad import ConvgradError
from convgrad.formats import F32
from convgrad.functional.call import problem_of_row
from convgrad.spec.operators import OPERATORS, Operator
from tests.support.helpers import random_case

ZEROS = [0] * 12
ROWS = [
    pytest.param(row, attribute.name, id="-".join([row.name, *row.generations, attribute.name]))
    for row in OPERATORS
    for attribute in row.attributes
    if attribute.type == "s64[]"
]


@pytest.mark.parametrize(("row", "name"), ROWS)
def test_twelve_zeros_are_an_absent_attribute(row: Operator, name: str) -> None:
    """Of output_padding and shapes; as strides, dilations or pads, they are refused as before."""
    [attribute] = [each for each in row.attributes if each.name == name]
    is_placeholder = attribute.means == "output_padding" or attribute.means.endswith("shape")
    rng = np.random.default_rng(1)
    for _ in range(3):
        case = random_case(rng, row)

        def outcome(attributes: dict[str, Any]) -> object:
            try:
                return problem_of_row(row, case.shapes, attributes, F32)[1]  # noqa: B023 - called below
            except ConvgradError as error:
                return str(error)

        given = {key: value for key, value in case.attributes.items() if key != name}
        with_zeros = outcome(given | {name: ZEROS})
        if is_placeholder:
            assert with_zeros == outcome(given)
        else:
            assert isinstance(with_zeros, str)


def test_run_accepts_what_onednn_writes() -> None:
    src, weights = np.ones((1, 4, 4, 2), np.float32), np.ones((3, 3, 3, 2), np.float32)
    plain = convgrad.conv_transpose(src, weights)
    for padding in (ZEROS, tuple(ZEROS), np.zeros(12, np.int64)):
        assert np.array_equal(convgrad.conv_transpose(src, weights, output_padding=padding), plain)
    attributes = {"strides": [1, 1], "dilations": [1, 1], "output_padding": ZEROS}
    assert np.array_equal(convgrad.run("ConvTranspose", src, weights, **attributes), plain)
    with pytest.raises(ConvgradError, match="one value per spatial axis, 2 here"):
        convgrad.conv_transpose(src, weights, output_padding=[0] * 11)
