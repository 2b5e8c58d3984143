"""Foreign functions: found by name, called with what convgrad.run takes, answering here and in a child process."""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import convgrad
from convgrad.errors import NotationError, UnsupportedError
from convgrad.functional.call import Prepared, prepare
from convgrad.spec.operators import OPERATORS, Operator
from convgrad.verify import check, exact
from convgrad.verify.copies import copied
from convgrad.verify.foreign import answer, arguments, load
from convgrad.verify.isolate import Isolated
from convgrad.verify.verdict import Verdict
from tests.support.helpers import assert_same_bits, operands_of, random_case
from tests.support.places import FOREIGN
from tests.support.tiers import tiers

OPERATOR = "ConvolutionBackwardWeights"


def call(**changed: Any) -> Prepared:
    """A weight gradient whose src lies backwards, with room between its channels."""
    rng = np.random.default_rng(0)
    src = rng.standard_normal((2, 9, 6), np.float32)[:, ::-1, ::2]
    diff_dst = rng.standard_normal((2, 4, 5), np.float32)
    attributes = {"strides": [2], "dilations": [1], "auto_pad": "same_upper", "weights_shape": [2, 3, 5]} | changed
    return prepare(OPERATOR, (src, np.repeat(diff_dst, [1, 1, 1, 2], 1)), attributes)


def test_standard_output_is_back_after_calls_that_overlap() -> None:
    inside, other_inside, returned = (threading.Event() for _ in range(3))
    operands = np.ones((1, 4, 1), np.float32), np.ones((2, 1, 1), np.float32)
    before, outcomes = sys.stdout, []

    def judge(enters: threading.Event, waits_for: threading.Event) -> None:
        def function(*inputs: Any, **attributes: Any) -> Any:
            enters.set()
            assert waits_for.wait(10)
            assert sys.stdout is sys.stderr
            return convgrad.run(*inputs, **attributes)

        outcomes.append(check("Convolution", function, *operands).outcome)

    def first() -> None:
        judge(inside, other_inside)
        returned.set()

    threads = [threading.Thread(target=first), threading.Thread(target=judge, args=(other_inside, returned))]
    threads[0].start()
    assert inside.wait(10)
    threads[1].start()
    for thread in threads:
        thread.join()
    assert outcomes == ["ok", "ok"]
    assert sys.stdout is before


# -- arguments ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("op", OPERATORS, ids=lambda op: op.name)
def test_run_takes_the_arguments_of_any_call_and_returns_the_same_bits(op: Operator) -> None:
    rng = np.random.default_rng(len(op.name))
    for _ in range(6):
        case = random_case(rng, op)
        operands = operands_of(case, "normal", 0)
        prepared = prepare(op.name, operands, case.attributes, case.dtype)
        inputs, attributes = arguments(prepared)
        assert attributes.get("auto_pad", "none") == "none"
        assert all(isinstance(value, np.ndarray | tuple) for value in inputs)
        assert_same_bits(convgrad.run(op.name, *inputs, **attributes), prepared.execute(), case)


def test_a_shape_stands_in_its_place_and_the_type_where_it_is_another() -> None:
    inputs, attributes = arguments(call())
    assert inputs[2] == (2, 3, 5)
    assert attributes == {
        "strides": [2], "pads_begin": [0], "pads_end": [1], "dilations": [1], "auto_pad": "none", "groups": 1,
        "data_format": "NXC", "weights_format": "XIO",
    }  # fmt: skip
    x = np.ones((1, 2, 1), np.float16)
    prepared = prepare(OPERATOR, (x, x, (1, 1, 1)), {"strides": [1], "dilations": [1]}, "f32")
    assert arguments(prepared)[1]["dtype"] == "f32"


# -- names -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["convgrad", "convgrad:", ":run", "a b:run", "convgrad:run:x", "convgrad.run", "a:1"])
def test_a_function_has_a_name_of_two_parts(name: str) -> None:
    with pytest.raises(NotationError, match="module:function"):
        load(name)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("no_such_module:f", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("convgrad:no_such", "AttributeError"),
        ("foreign_functions:number", "must be a function; got int"),
        ("broken:f", r"ZeroDivisionError: division by zero \(broken.py, line 2\)"),
        ("leaving:f", "SystemExit: 0"),
        ("panicking:f", "GeneratorExit: no kernel"),
    ],
)
def test_what_cannot_be_loaded_is_refused_with_its_reason(
    name: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken.py").write_text("def f(): ...\n1 / 0\n")
    (tmp_path / "leaving.py").write_text("import sys\nsys.exit(0)\n")
    (tmp_path / "panicking.py").write_text("raise GeneratorExit('no kernel')\n")
    monkeypatch.syspath_prepend(FOREIGN)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UnsupportedError, match=words):
        load(name)


def test_the_working_directory_is_searched_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "foreign_functions.py").write_text("class Mine:\n    f = staticmethod(lambda *a, **k: 7)\n")
    monkeypatch.syspath_prepend(FOREIGN)
    monkeypatch.delitem(sys.modules, "foreign_functions", raising=False)
    monkeypatch.chdir(tmp_path)
    assert load("foreign_functions:Mine.f")() == 7
    monkeypatch.delitem(sys.modules, "foreign_functions")


# -- answers, here and in a child --------------------------------------------------------------------------------


@contextmanager
def isolated(name: str, seconds: float | None = None) -> Iterator[Any]:
    with Isolated(f"foreign_functions:{name}", seconds) as child:
        yield child.answer


@contextmanager
def here(name: str) -> Iterator[Any]:
    yield partial(answer, load(f"foreign_functions:{name}"))


REFUSED = {
    "raises": r"it raised ZeroDivisionError: no kernel \(foreign_functions.py, line \d+\)\n  cause +raised an error",
    "leaves": "it raised SystemExit: 3",
    "panics": r"it raised Panic: no kernel \(foreign_functions.py, line \d+\)\n  cause +raised an error",
    "raises_what_cannot_be_said": r"it raised Unsaid \(foreign_functions.py, line \d+\)\n  cause +raised an error",
    "integers": "f32, bf16, f16, f64, f8_e4m3 or f8_e5m2; got int64",
    "writes": r"it wrote to its operand src, of shape \(2, 9, 3\)\n  cause +operand overwritten",
}
CRASHES = {
    "segfault": "it crashed with SIGSEGV\n  cause     crashed",
    "ends": "it ended its process with exit code 7\n  cause     crashed",
    "ends_with_a_child": "it ended its process with exit code 7\n  cause     crashed",
    "hangs": "it did not return in 0.3 seconds\n  cause     did not return",
}


@pytest.fixture(autouse=True)
def _foreign(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONVGRAD_MAX_ISA", "numpy")  # no kernel is compiled for a handful of numbers
    monkeypatch.syspath_prepend(FOREIGN)


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_answer_is_a_verdict(name: str) -> None:
    inputs, attributes = arguments(call())
    with here(name) as ask:
        verdict = ask(OPERATOR, inputs, attributes)
    assert verdict.outcome == "wrong"
    assert re.search(REFUSED[name], str(verdict)), verdict
    assert str(check(OPERATOR, load(f"foreign_functions:{name}"), *inputs, **attributes)) == str(verdict)


def test_a_child_gives_the_answers_and_the_verdicts_that_are_given_here() -> None:
    inputs, attributes = arguments(call())
    expected = convgrad.run(OPERATOR, *inputs, **attributes)
    with isolated("prints_or_raises") as ask:
        assert_same_bits(ask(OPERATOR, inputs, attributes), expected, "right")
        refused = ask("BiasAddBackward", inputs[1:2], {"data_format": "NXC"})
        assert_same_bits(ask(OPERATOR, inputs, attributes), expected, "right again")
    assert "no kernel" in refused.reason


@tiers("name", list(CRASHES), every=3)
def test_a_crash_and_a_hang_are_verdicts_and_the_next_call_is_answered(name: str) -> None:
    inputs, attributes = arguments(call())
    with isolated(name, 0.3 if name == "hangs" else None) as ask:
        for _ in range(2 if name == "segfault" else 1):
            verdict = ask(OPERATOR, inputs, attributes)
            assert isinstance(verdict, Verdict)
            assert str(verdict) == f"WRONG: {CRASHES[name]}"


@pytest.mark.long
def test_a_crash_that_another_call_prepared_is_told_apart() -> None:
    inputs, attributes = arguments(call())
    with isolated("damages_memory") as ask:
        assert_same_bits(ask(OPERATOR, inputs, attributes), convgrad.run(OPERATOR, *inputs, **attributes), "right")
        verdict = ask(OPERATOR, inputs, attributes)
    assert verdict.outcome == "wrong"
    assert verdict.reason.startswith("it crashed with SIGSEGV after 1 other calls, but not in a new process")


def test_a_module_that_crashes_when_it_is_imported_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "crashing.py").write_text("import os\nos._exit(9)\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UnsupportedError, match="ended its process with exit code 9"), Isolated("crashing:f"):
        pass


def test_operands_reach_a_function_as_they_lie_with_nan_between() -> None:
    inputs, attributes = arguments(call())
    copy = copied(inputs[0])
    assert copy.strides == inputs[0].strides
    assert_same_bits(copy, inputs[0], "copy")
    with here("neighbours") as ask:
        assert np.isnan(ask(OPERATOR, inputs, attributes)).any()
    with isolated("neighbours") as ask:
        assert np.isnan(ask(OPERATOR, inputs, attributes)).any()


@pytest.mark.parametrize("shape", [(0, 3), (), (4,)])
@pytest.mark.parametrize("stride", [0, -8, 3])
def test_copies_of_any_strides_are_equal(shape: tuple[int, ...], stride: int) -> None:
    values = np.lib.stride_tricks.as_strided(np.arange(64, dtype=np.float32)[32:], shape, (stride,) * len(shape))
    assert_same_bits(copied(values), values, (shape, stride))


def test_attributes_as_the_functions_take_them_are_spelled_out() -> None:
    """An int for all axes, and strides and dilations of 1 left out, are judged; a strict function is given lists."""
    src, diff_dst = np.ones((2, 6, 4, 3), np.float32), np.ones((2, 3, 4, 5), np.float32)
    name, shape = "ConvolutionBackwardWeights", (2, 1, 3, 5)
    mine = convgrad.convolution_backward_weights(src, diff_dst, shape, strides=(2, 1))
    layer = {"weights_shape": shape, "strides": (2, 1)}
    assert check(name, mine, src, diff_dst, **layer).ok
    assert check(name, convgrad.run, src, diff_dst, **layer).ok
    same = {"strides": [2, 1], "dilations": [1, 1], "weights_shape": shape}
    assert np.array_equal(exact(name, src, diff_dst, **layer), exact(name, src, diff_dst, **same))
    assert np.array_equal(
        convgrad.error_bound(name, src, diff_dst, **layer), convgrad.error_bound(name, src, diff_dst, **same)
    )
    assert exact("Convolution", src, np.ones((2, 2, 3, 1), np.float32), strides=2).shape == (2, 3, 2, 1)


def test_a_short_output_shape_is_read_as_run_reads_it() -> None:
    diff_dst, weights = np.ones((2, 3, 5), np.float32), np.ones((2, 4, 5), np.float32)
    got = check("ConvolutionBackpropData-1", convgrad.run, diff_dst, weights, output_shape=[6], strides=2)
    assert got.ok
