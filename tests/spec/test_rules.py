"""Every rule: a call that breaks it, the class it raises, the words it says; and what is accepted beside."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import convgrad
from convgrad import ConvgradError, infer_shapes, run
from convgrad.spec.operators import Operator
from convgrad.spec.rules import RULES
from tests.spec import rule_breaks, rule_breaks_batch, rule_breaks_shapes
from tests.spec.rule_breaks import CONV, DATA, F32, OLD_DATA, OLD_FILTERS, WEIGHTS, Row, W, X, Y
from tests.support.roles import memory
from tests.support.table_rows import legal, rows

ROWS = [*rule_breaks.ROWS, *rule_breaks_shapes.ROWS, *rule_breaks_batch.ROWS]
OF_OUT = ("T5", "D2", "D3", "D4")


@pytest.mark.parametrize("row", ROWS, ids=[f"{row.rule}-{row.name}-{i}" for i, row in enumerate(ROWS)])
def test_breaking_a_rule_says_so(row: Row) -> None:
    """Nothing is written, accumulated or not; shapes alone are refused with the same words."""
    arrays = [memory(one) for one in row.arrays()]
    before = [one.tobytes() for one in arrays]
    message = refusal(row, row.call)
    if row.rule in OF_OUT and isinstance(row.operator, str):
        assert refusal(row, lambda: row.call(accumulate=True)) == message
    assert [one.tobytes() for one in arrays] == before
    if row.rule[0] == "G" and isinstance(row.operator, str) and row.name != OLD_FILTERS:
        attributes = rule_breaks.ones(row.operator, [np.empty(row.operands[0])]) | row.attributes
        assert refusal(row, lambda: infer_shapes(row.name, *row.operands, **attributes)) == message


def refusal(row: Row, call: Callable[[], object]) -> str:
    with pytest.raises(ConvgradError) as caught:
        call()
    message = str(caught.value)
    assert message.endswith(f" [{row.rule}]"), message
    assert type(caught.value) is RULES[row.rule].error
    assert message.startswith(f"{row.name}: "), message
    assert "\n" not in message
    for fragment in row.fragments:
        assert fragment in message, message
    return message


@rows
def test_every_operator_checks_its_attributes(op: Operator) -> None:
    operands, attributes = legal(op)
    axes = operands[0].ndim - 2
    wrong: list[tuple[str, str, Any]] = [("A1", "alpha", 1), ("A5", "data_format", "NHWC")]
    if op.attribute("strides"):
        wrong += [("A3", "strides", None), ("A3", "dilations", None), ("A5", "auto_pad", "SAME"), ("A4", "groups", 0)]
        wrong += [("A4", name, [-1] * axes) for name in ("pads_begin", "pads_end")]
        wrong += [("A4", name, [0] * axes) for name in ("strides", "dilations")]
        wrong += [("A6", name, [1] * (axes + 1)) for name in ("strides", "dilations", "pads_begin", "pads_end")]
        wrong += [("A5", "weights_format", layout) for layout in (["OIX", "XIO"] if op.transposed else ["IOX", "XOI"])]
    for rule, means, value in wrong:
        attribute = op.attribute(means)
        name = attribute.name if attribute else means
        with pytest.raises(RULES[rule].error, match=rf"^{op.name}: .*{name}.*\[{rule}\]$"):
            run(op.name, *operands, **attributes | {name: value})


def test_every_rule_has_a_row_and_a_comment_where_it_is_enforced() -> None:
    assert {row.rule for row in ROWS} == {rule for rule in RULES if rule[0] != "B"}  # tests/training breaks these
    commented: set[str] = set()
    for path in Path(convgrad.__file__).parent.rglob("*.py"):
        text = path.read_text()
        comments = {rule for comment in re.findall(r"# (.*)", text) for rule in re.findall(r"\b[A-Z]\d+\b", comment)}
        refused = set(re.findall(r"refuse\(\s*\"([A-Z]\d+)\"", text)) & set(RULES)
        assert refused <= comments, path
        commented |= comments
    assert set(RULES) <= commented


@pytest.mark.parametrize("rule", RULES)
def test_every_error_is_a_convgrad_error_and_a_builtin(rule: str) -> None:
    error = RULES[rule].error
    assert issubclass(error, ConvgradError)
    assert issubclass(error, ValueError | TypeError | NotImplementedError)


# -- what is accepted ----------------------------------------------------------------------------------------------

SAME = {"auto_pad": "same_upper"}

# (name, attributes, attributes that mean the same)
ACCEPTED: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("tuple", {"strides": (2,)}, {"strides": [2]}),
    ("array", {"strides": np.array([2])}, {"strides": [2]}),
    ("unsigned array", {"strides": np.array([2], np.uint8)}, {"strides": [2]}),
    ("numpy integer", {"strides": [np.int16(2)], "groups": np.int64(1)}, {"strides": [2]}),
    ("0-d array", {"groups": np.array(1)}, {}),
    ("range", {"strides": range(2, 3)}, {"strides": [2]}),
    ("empty pads", {"pads_begin": [], "pads_end": []}, {"pads_begin": [0], "pads_end": [0]}),
    ("empty pads_end", {"pads_begin": [1], "pads_end": ()}, {"pads_begin": [1], "pads_end": [0]}),
    ("absent pads", {"pads_begin": None, "pads_end": None}, {}),
    ("None counts as absent", {"auto_pad": None, "groups": None, "data_format": None, "weights_format": None}, {}),
    ("pads beside auto_pad", {"pads_begin": [2], "pads_end": [3]} | SAME, SAME),
    ("pads beside valid", {"pads_begin": [2], "pads_end": [3], "auto_pad": "valid"}, {}),
    *((f"auto_pad {a}", {"auto_pad": a, "pads_end": [1]}, {"pads_end": [1]}) for a in (
        "none", "None", "NONE", "notset", "NOTSET", "NotSet", "explicit", "EXPLICIT")),
    *((f"auto_pad {a}", {"auto_pad": a}, SAME) for a in ("SAME_UPPER", "Same_Upper")),
    *((f"auto_pad {a}", {"auto_pad": a}, {"auto_pad": "same_lower"}) for a in ("SAME_LOWER", "Same_lower")),
    *((f"auto_pad {a}", {"auto_pad": a}, {"auto_pad": "valid"}) for a in ("VALID", "Valid")),
]  # fmt: skip


@pytest.mark.parametrize(("given", "meant"), [row[1:] for row in ACCEPTED], ids=[row[0] for row in ACCEPTED])
def test_other_ways_to_say_the_same(given: dict[str, Any], meant: dict[str, Any]) -> None:
    src = np.arange(12, dtype=F32).reshape(1, 12, 1)
    weights = np.array([1, -2, 3, 5], F32).reshape(4, 1, 1)
    default = {"strides": [1], "dilations": [1]}
    expected = run(CONV, src, weights, **(default | meant))
    assert np.array_equal(run(CONV, src, weights, **(default | given)), expected)
    assert infer_shapes(CONV, src.shape, weights.shape, **(default | given)) == expected.shape
    assert np.array_equal(convgrad.convolution(src, weights, **given), expected)


SHAPES: list[Any] = [[3, 1, 1], (3, 1, 1), np.array([3, 1, 1], np.int32), np.array([3, 1, 1]), [np.int8(3), 1, 1]]


@pytest.mark.parametrize("shape", SHAPES, ids=["list", "tuple", "int32", "int64", "numpy integers"])
def test_backprop_filters_takes_both_orders(shape: Any) -> None:
    src, delta = np.arange(6, dtype=F32).reshape(X), np.array([1, -1, 2, 3], F32).reshape(Y)
    attributes: dict[str, Any] = {"strides": [1], "dilations": [1]}
    expected = convgrad.convolution_backward_weights(src, delta, (3, 1, 1))
    for operands in ((src, delta, shape), (src, shape, delta)):
        assert np.array_equal(run(OLD_FILTERS, *operands, **attributes), expected)
    assert np.array_equal(run(OLD_FILTERS, src, delta, filter_shape=shape, **attributes), expected)
    assert infer_shapes(OLD_FILTERS, X, Y, shape, **attributes) == (3, 1, 1)


def test_a_shape_operand_beats_the_attribute() -> None:
    attributes: dict[str, Any] = {"strides": [2], "dilations": [1]}
    src, delta = np.ones((1, 7, 1), F32), np.ones((1, 3, 1), F32)
    got = run(WEIGHTS, src, delta, [3, 1, 1], weights_shape=[2, 1, 1], **attributes)
    assert got.shape == (3, 1, 1)
    assert run(WEIGHTS, src, delta, None, weights_shape=[2, 1, 1], **attributes).shape == (2, 1, 1)
    assert run(DATA, delta, np.ones(W, F32), [1, 8, 1], dst_shape=[5, 5, 5, 5], **attributes).shape == (1, 8, 1)


@pytest.mark.parametrize("data_format", ["NXC", "NCX"])
@pytest.mark.parametrize("filter_format", ["XIO", "OIX"])
def test_backprop_data_takes_spatial_extents_in_run(data_format: str, filter_format: str) -> None:
    """Batch 2, 4 channels from 6 in 2 groups, 4 x 5 positions from 9 x 7."""
    data = np.arange(2 * 4 * 5 * 6, dtype=F32).reshape((2, 4, 5, 6) if data_format == "NXC" else (2, 6, 4, 5))
    weights = np.arange(3 * 3 * 2 * 6, dtype=F32).reshape((3, 3, 2, 6) if filter_format == "XIO" else (6, 2, 3, 3))
    full = (2, 9, 7, 4) if data_format == "NXC" else (2, 4, 9, 7)
    attributes: dict[str, Any] = {"strides": [2, 1], "groups": 2, "data_format": data_format}
    attributes |= {"dilations": [1, 1], "filter_format": filter_format}
    expected = run(OLD_DATA, data, weights, full, **attributes)
    assert expected.shape == full
    assert np.array_equal(run(OLD_DATA, data, weights, (9, 7), **attributes), expected)
    assert np.array_equal(run(OLD_DATA, data, weights, output_shape=[9, 7], **attributes), expected)
    assert infer_shapes(OLD_DATA, data.shape, weights.shape, (9, 7), **attributes) == full


# -- output_padding that is ignored ----------------------------------------------------------------------------------


def ignoring_calls() -> Iterable[tuple[str, Callable[[int], np.ndarray]]]:
    dy, w = np.ones((1, 2, 1), F32), np.ones(W, F32)
    strict: dict[str, Any] = {"strides": [2], "dilations": [1]}
    yield "function", lambda op: convgrad.convolution_backward_data(dy, w, (1, 6, 1), strides=2, output_padding=op)
    yield (
        "older function",
        lambda op: convgrad.convolution_backprop_data(dy, w, (1, 6, 1), strides=2, output_padding=op),
    )
    yield "run, operand", lambda op: run(DATA, dy, w, [1, 6, 1], output_padding=[op], **strict)
    yield "run, attribute", lambda op: run(DATA, dy, w, dst_shape=[1, 6, 1], output_padding=[op], **strict)


@pytest.mark.parametrize("call", [c for _, c in ignoring_calls()], ids=[name for name, _ in ignoring_calls()])
@pytest.mark.parametrize("padding", [0, 5])
def test_output_padding_beside_a_shape_that_disagrees_warns(call: Callable[[int], np.ndarray], padding: int) -> None:
    with pytest.warns(UserWarning, match=r"output_padding \[\d\] is ignored") as caught:
        result = call(padding)
    assert len(caught) == 1
    assert caught[0].filename == __file__
    message = str(caught[0].message)
    assert re.search(r"because (dst|output)_shape is given", message)
    assert f"would make {5 + padding}, not 6" in message
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.array_equal(call(1), result)  # 2(2 - 1) + 3 + 1 = 6 agrees
