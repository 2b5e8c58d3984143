"""``convgrad verify --resume``: a run that ended goes on from its JUnit file, with the counts of a whole run."""

from __future__ import annotations

import importlib
import shutil
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from convgrad.cli import verify_resume
from convgrad.cli.verify_options import VerifyOptions
from convgrad.cli.verify_resume import identity
from convgrad.formats import FORMATS
from convgrad.verify.cases.case import Case
from tests.support.verify_helpers import Run, call, here, junit, said_by_the_command  # noqa: F401 - fixtures

COMMAND = ("cases.txt", *call("counted"), "--sample", "9", "--junit", "report.xml", "--resume")


@pytest.fixture(name="calls")
def calls_of_the_function(monkeypatch: pytest.MonkeyPatch, here: None) -> list[str]:  # noqa: F811
    """The operators of all calls of ``counted``, which serves no forward pass and has wrong gradients of weights."""
    module, calls = importlib.import_module("foreign_functions"), list[str]()

    def counted(operator: str, *inputs: Any, **attributes: Any) -> Any:
        calls.append(operator)
        if operator == "Convolution":
            raise NotImplementedError
        return module.wrong_weights(operator, *inputs, **attributes)

    monkeypatch.setattr(module, "counted", counted, raising=False)
    return calls


def ends(monkeypatch: pytest.MonkeyPatch, at: int, end: Callable[[], object]) -> None:
    """Let ``end`` be called before call number ``at`` of ``counted``."""
    module = importlib.import_module("foreign_functions")
    counted, number = module.counted, count(1)

    def ended(*inputs: Any, **attributes: Any) -> Any:
        if next(number) == at:
            end()
        return counted(*inputs, **attributes)

    monkeypatch.setattr(module, "counted", ended)


def results() -> list[tuple[str | None, str, str]]:
    """Return the name, the outcome and the text of each test case in the report."""
    elements = ElementTree.parse("report.xml").getroot().iter("testcase")
    return [(e.get("name"), e[0].get("type", "ok"), str(e[0].text).rstrip()) for e in elements]


def stop() -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("at", [1, 3, 5])
def test_resumed_and_whole_are_equal(at: int, said: Run, calls: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    code, out, _ = said(*COMMAND)
    whole, counts, last = results(), junit("report.xml"), out.splitlines()[-1].partition(" in ")[0]
    assert code == 1
    assert counts == {"tests": 5, "failures": 2, "errors": 0, "skipped": 1}
    Path("report.xml").unlink()
    with monkeypatch.context() as patch:
        ends(patch, at, stop)
        assert said(*COMMAND)[0] == 130
    calls.clear()
    code, out, _ = said(*COMMAND)
    assert len(calls) == 6 - at
    assert (code, results(), junit("report.xml")) == (1, whole, counts)
    assert out.splitlines()[-1].partition(" in ")[0] == last
    before = f"; {at - 1} of them before, in report.xml"
    assert out.splitlines()[0] == "5 cases; judged: foreign_functions:counted" + before * (at > 1)


def test_after_a_crash(said: Run, calls: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The report is also written during the run, so that a process that ends without a word loses little."""
    monkeypatch.setattr(verify_resume, "EVERY_S", 0.0)
    ends(monkeypatch, 4, lambda: shutil.copy("report.xml", "crashed.xml"))
    said(*COMMAND)
    whole = results()
    shutil.move("crashed.xml", "report.xml")
    assert junit("report.xml") == {"tests": 4, "failures": 1, "errors": 1, "skipped": 0}
    calls.clear()
    assert said(*COMMAND, "--verbose")[0] == 1  # options that change no verdict may differ
    assert len(calls) == 2
    assert results() == whole


def test_only_the_same_command_is_resumed(said: Run, calls: list[str]) -> None:
    said(*COMMAND)
    report = Path("report.xml").read_bytes()
    code, _, err = said(*COMMAND, "--seed", "1")
    assert code == 2
    assert "report.xml must be the report of the same command; there seed is 0, here 1. Use the same" in err
    cases = Path("cases.txt")
    cases.write_text(cases.read_text().replace("ih6", "ih7").replace("oh6", "oh7"))
    assert "there problems (SHA-256) is " in said(*COMMAND)[2]
    assert Path("report.xml").read_bytes() == report
    Path("report.xml").write_text("<testsuites/>")
    assert "report.xml: must be a JUnit report of convgrad verify; it has no properties. Use" in said(*COMMAND)[2]
    Path("report.xml").write_text("<")
    code, _, err = said(*COMMAND)
    assert code == 3
    assert "report.xml: must be a JUnit report of convgrad verify; " in err
    assert said("cases.txt", *call("counted"), "--resume")[0] == 2


OTHERS = {
    "operator": "ConvTranspose",
    "shapes": ((1, 6, 4), (1, 4, 4)),
    "attributes": {"strides": [1], "dilations": [2]},
    "operand_format": FORMATS["f16"],
    "output_format": FORMATS["f16"],
}


@pytest.mark.parametrize("field", OTHERS)
def test_cases_of_other_problems_are_not_resumed(field: str) -> None:
    attributes = {"strides": [1], "dilations": [1]}
    case = Case("one", "here", "Convolution", ((1, 5, 4), (1, 4, 4)), attributes, FORMATS["bf16"], FORMATS["f32"])
    other = replace(case, **{field: OTHERS[field]})
    options = VerifyOptions(cases=["cases"])
    assert identity(options, [case]) == identity(options, [replace(case, place="there")]) != identity(options, [other])
