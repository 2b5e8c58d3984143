"""``convgrad verify``: whose results are judged, what is said of them, the lines that reproduce, exit codes."""

from __future__ import annotations

import importlib
import io
import json
import re
import shlex
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from convgrad.cli import progress as showing
from convgrad.cli.verify_again import reproducer
from convgrad.cli.verify_cases import UnreadSources, cases_of, pose
from convgrad.formats import FORMATS
from convgrad.graph.limits import DEFAULT_LIMITS
from convgrad.spec.operators import OPERATORS
from convgrad.verify import cases as readers
from convgrad.verify import check
from convgrad.verify.cases.case import Arrays, Case
from convgrad.verify.declared import declared
from convgrad.verify.foreign import arguments
from convgrad.verify.judge import Judgement
from convgrad.verify.tolerance import tolerance
from convgrad.verify.verdict import Evidence
from tests.support.helpers import assert_same_bits, random_case
from tests.support.places import DOCS
from tests.support.verify_helpers import LINES, Run, call, here, junit, options, said_by_the_command, values  # noqa: F401 - fixtures

checking = importlib.import_module("convgrad.verify.claim")


# -- whose results -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("whose", "words"),
    [
        ((), "the cases' own results, else convgrad's own engine"),
        (("--fill", "integers"), "the cases' own results, else convgrad's own engine"),
        (call("right"), "foreign_functions:right"),
        ((*call("right"), "--isolate", "--timeout", "60"), "foreign_functions:right in a process of its own"),
    ],
)
def test_right_results_of_every_role_and_type_are_ok(said: Run, whose: tuple[str, ...], words: str) -> None:
    code, out, err = said("cases.txt", *whose)
    assert (code, err) == (0, "")
    head, last = out.splitlines()
    assert head == f"5 cases; judged: {words}"
    assert last.startswith("5 cases: 5 ok in ")


def test_our_own_engine_is_judged_by_its_own_height(said: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CONVGRAD_MAX_ISA")
    line = "BWD_W f32 NXC mb1ic1iw2000oc1ow2000kw1"
    ours, right, any_order = (
        values(said(line, "--json", *more)[1])[0] for more in ((), ("--height", "263"), call("right"))
    )
    assert (ours["judged"], right["judged"]) == ("convgrad's own engine",) * 2
    assert 5 * ours["worst"]["bound"] == pytest.approx(5 * right["worst"]["bound"], rel=0.01)
    assert 5 * ours["worst"]["bound"] < any_order["worst"]["bound"]


def test_sums_by_tiles_are_judged_by_their_bound(said: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bound of convgrad's own tiles is much tighter than that of winograd:4,3, and its results lie inside."""
    monkeypatch.delenv("CONVGRAD_MAX_ISA")
    line = "FWD_D f32 NXC mb2ic64ih16oc64oh16kh3ph1"
    ours, norms, direct = (
        values(said(line, "--json", *more)[1])[0]
        for more in (("--max-error", "64"), ("--max-error", "64", "--algorithm", "winograd:4,3"), ())
    )
    assert (ours["outcome"], norms["outcome"], direct["outcome"]) == ("ok",) * 3
    assert ours["equal"] == norms["equal"] < direct["equal"]
    assert 10 * ours["worst"]["bound"] < norms["worst"]["bound"]


@pytest.mark.long
@pytest.mark.parametrize("name", ["hard", "edges"])
@pytest.mark.parametrize("fill", ["normal", "integers", "truncation", "adversarial"])
def test_our_own_engine_over_a_collection(said: Run, monkeypatch: pytest.MonkeyPatch, name: str, fill: str) -> None:
    monkeypatch.delenv("CONVGRAD_MAX_ISA")
    code, out, err = said("--collection", name, "--fill", fill)
    assert code == 0, out + err


def test_a_result_that_a_case_brings_is_judged(said: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    case = next(readers.read(LINES[1]))
    posed = pose(case, options(LINES[1]), DEFAULT_LIMITS)
    operands, right = tuple(posed.call.taken.values()), posed.call.execute()
    for scale, expected in ((1, 0), (2, 1)):
        arrays = Arrays(operands, right * np.asarray(scale, right.dtype))
        brings = replace(case, place="theirs.onnx", arrays=lambda arrays=arrays: arrays)
        monkeypatch.setattr(readers, "read", lambda source, limits, refused, brings=brings: iter([brings]))
        code, out, _ = said("theirs.onnx", "--json")
        one = values(out)[0]
        assert (code, one["judged"], one["operands"]) == (expected, "the result in theirs.onnx", "theirs.onnx")
    assert one["reproduce"] == f"convgrad verify theirs.onnx --only {case.name}"


# -- what is said --------------------------------------------------------------------------------------------


def test_failures_are_told_with_a_line_that_reproduces_them(said: Run) -> None:
    code, out, _ = said("cases.txt", *call("wrong_weights"), "--junit", "report.xml", "--seed", 2)
    assert (code, "3 ok, 2 wrong" in out) == (1, True)
    lines = [line.split("reproduce: ")[1] for line in out.splitlines() if "reproduce: " in line]
    assert lines == [
        f"convgrad verify '{line}' --fill normal --seed 2 --call foreign_functions:wrong_weights"
        for line in (LINES[0].replace("BWD_WB", "BWD_W"), LINES[3])
    ]
    assert junit("report.xml") == {"tests": 5, "failures": 2, "errors": 0, "skipped": 0}
    failures = ElementTree.parse("report.xml").getroot().findall(".//failure")
    assert [one.get("type") for one in failures] == ["wrong"] * 2
    assert all(line in str(one.text) for line, one in zip(lines, failures, strict=True))
    for line in lines:
        code, again, _ = said(*shlex.split(line)[2:])
        assert code == 1
        verdicts = [text.partition("WRONG: ")[2] for text in again.splitlines() if "WRONG: " in text]
        assert len(verdicts) == 1
        assert verdicts[0] in out


def test_json_has_all_of_a_verdict(said: Run) -> None:
    code, out, _ = said("cases.txt", *call("wrong_weights"), "--json")
    *each, last = values(out)
    assert (code, last["summary"], last["cases"], last["judged"]) == (1, {"ok": 3, "wrong": 2}, 5, 5)
    assert [one["outcome"] for one in each] == ["wrong", "ok", "ok", "ok", "wrong"]
    posed = pose(
        cases_of(options("cases.txt"), DEFAULT_LIMITS, UnreadSources())[0], options("cases.txt"), DEFAULT_LIMITS
    )
    inputs, attributes = arguments(posed.call)
    verdict = check(posed.case.operator, np.zeros(posed.call.problem.output_shape, np.float32), *inputs, **attributes)
    one = each[0]
    assert (one["text"], one["details"], one["types"]) == (verdict.brief, [*verdict.details], ["f32", "f32"])
    assert [defect["name"] for defect in one["defects"]] == list(verdict.defects)
    assert (one["place"], one["ok"]) == ("cases.txt:1:1", False)


def test_every_outcome_but_ok_is_a_failure(said: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    judgements = {
        "ok": Judgement(),
        "degraded": Judgement(evidence=(Evidence("spread", 3.0, 2.0, "channel 1"),), statistics={"spread": 3.0}),
        "undecided": Judgement(reason="no model"),
    }
    for outcome, judgement in judgements.items():
        monkeypatch.setattr(checking, "judge", lambda *given, judgement=judgement: judgement)
        code, out, _ = said(LINES[1], *call("right"), "--json", "--junit", "report.xml", "--force")
        one = values(out)[0]
        assert (code, one["outcome"], one["ok"]) == (int(outcome != "ok"), outcome, outcome == "ok")
        assert junit("report.xml")["failures"] == code
        assert [e["statistic"] for e in one["evidence"]] == [e.statistic for e in judgement.evidence]
        assert one["statistics"] == judgement.statistics


def test_verbose_has_a_line_for_every_case(said: Run) -> None:
    assert len(said("cases.txt")[1].splitlines()) == 2
    assert len(said("cases.txt", "--verbose")[1].splitlines()) == 7


def test_lines_take_the_place_of_the_progress_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = io.StringIO()
    terminal.isatty = lambda: True  # type: ignore[method-assign]
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setattr(showing, "FIRST_AFTER_S", 0.0)
    with showing.ProgressLine("first") as progress:
        progress.relabel("17/1000 16 ok")
        while "17/1000" not in terminal.getvalue():
            time.sleep(0.01)
        progress.say("a verdict")
    *_, shown, said, end = terminal.getvalue().split("\r\x1b[K")
    assert "17/1000 16 ok" in shown
    assert (said, end) == ("a verdict\n", "")


@pytest.mark.parametrize("silent", [False, True])
def test_a_heartbeat_where_no_terminal_is(silent: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    beats: list[str] = []
    monkeypatch.setattr(showing, "PIPED_EVERY_S", 0.01)
    monkeypatch.setattr(showing, "complain", beats.append)
    with showing.ProgressLine("1/9 1 ok", silent, heartbeat=True) as progress:
        progress(0.25)
        while len(beats) < 3:
            time.sleep(0.01)
    assert re.fullmatch(r"convgrad: 1/9 1 ok  25%  \d+ s", beats[-1])
    beats.clear()
    with showing.ProgressLine("1/9 1 ok", silent):
        time.sleep(0.05)
    assert beats == []


@pytest.mark.parametrize("how", ["interrupted", "terminated"])
def test_an_interrupted_run_says_so(how: str, said: Run) -> None:
    before = signal.getsignal(signal.SIGTERM)
    code, out, err = said("cases.txt", *call(how), "--junit", "report.xml")
    assert signal.getsignal(signal.SIGTERM) == before
    assert code == 130
    assert re.fullmatch(r"wrote report.xml: [\d,]+ bytes\nconvgrad: interrupted\n", err)
    assert out.splitlines()[-1].startswith("interrupted after 1 of 5 cases: 1 ok in ")
    assert junit("report.xml") == {"tests": 2, "failures": 0, "errors": 1, "skipped": 0}
    last = ElementTree.parse("report.xml").getroot().find(".//error")
    assert last is not None
    assert last.get("message") == "interrupted after 1 of 5 cases"
    *_, counts, error = values(said("cases.txt", *call(how), "--json")[1])
    assert (counts["judged"], error["error"]["exit_code"]) == (1, 130)


def test_a_crash_is_a_verdict_and_the_others_are_judged(said: Run) -> None:
    code, out, _ = said("cases.txt", *call("segfault_once"), "--isolate")
    assert (code, "3 ok, 2 wrong" in out, out.count("it crashed with SIGSEGV")) == (1, True, 2)
    assert "segfault_once --isolate" in out


def test_what_nobody_serves_is_told_apart(said: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    left = replace(next(readers.read(LINES[1])), unsupported="int8 is not served")
    found = [left, *readers.read(LINES[2])]
    monkeypatch.setattr(readers, "read", lambda source, limits, refused: iter(found))
    code, out, _ = said("cases.txt", "--junit", "report.xml")
    assert (code, "1 ok, 1 not served" in out) == (0, True)
    assert junit("report.xml") == {"tests": 2, "failures": 0, "errors": 0, "skipped": 1}
    assert "reproduce" not in Path("report.xml").read_text()
    found.pop()
    assert said("cases.txt")[0] == 1  # nothing was judged, which is no success


def test_a_result_of_other_operands_says_so(said: Run) -> None:
    """A file of results without operands beside it is judged on generated ones."""
    line = "BWD_W f32 NXC mb1ic2iw4oc2ow4kw1pw0"
    np.save("got.npy", np.ones((1, 2, 2), np.float32))
    out = said(line, "--got", "got.npy")[1]
    assert "operands  generated (normal, seed 0), not read. Use --operands DIR" in out
    assert said(line, "--export", "own")[0] == 0
    read = said(line, "--got", "got.npy", "--operands", "own")[1]
    assert ("reproduce" in read, "--fill" in out, "--fill" in read) == (True, True, False)
    Path("empty").mkdir()
    assert "BWD_W_f32_NXC_XIO.src.npy (" in said(line, "--got", "got.npy", "--operands", "empty")[1]


@pytest.mark.every(2)
@pytest.mark.parametrize("isolate", [(), ("--isolate",)], ids=["here", "isolated"])
def test_unsupported_cases_are_not_served(said: Run, isolate: tuple[str, ...]) -> None:
    """A function refuses a case by NotImplementedError or NotImplemented; such cases fail the run only if --strict."""
    ours, lines = call("weights_only"), ["BWD_W f32 NXC mb1ic2iw4oc2ow4kw1pw0"]
    others = [lines[0].replace("BWD_W", name) for name in ("FWD_D", "BWD_D")]
    code, out, _ = said(*lines, *others, *ours, *isolate, "--verbose", "--junit", "report.xml")
    assert (code, "3 cases: 1 ok, 2 not served" in out) == (0, True)
    assert "NOT SERVED: it raised NotImplementedError: no forward" in out
    assert ("NOT SERVED: it returned NotImplemented" in out, "reproduce" in out) == (True, False)
    assert junit("report.xml") == {"tests": 3, "failures": 0, "errors": 0, "skipped": 2}
    code, out, _ = said(*lines, *others, *ours, *isolate, "--strict")
    assert (code, out.count("NOT SERVED"), "D_f32_NXC_XIO  NOT SERVED: it raised" in out) == (1, 1, True)
    assert said(*lines, *ours, *isolate, "--strict")[0] == 0
    assert said(*others, *ours, *isolate)[0] == 1  # nothing was judged


def test_a_case_that_takes_too_much_leaves_the_others_judged(said: Run) -> None:
    code, out, _ = said("cases.txt", "--limit", "memory_bytes=4000")
    assert (code, "memory_bytes" in out, " not judged" in out, " ok" in out) == (2, True, True, True)


def test_only_picks_cases_by_name(said: Run) -> None:
    names = [one["case"] for one in values(said("cases.txt", "--json")[1])[:-1]]
    assert len(set(names)) == 5
    for name in names:
        assert [one.get("case") for one in values(said("cases.txt", "--only", name, "--json")[1])] == [name, None]
    assert len(values(said("cases.txt", "--only", "*BWD_W*", "--json")[1])) == 4


# -- reproducers ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("op", OPERATORS, ids=lambda op: op.name)
def test_any_case_is_named_again_with_the_same_operands(op: Any) -> None:
    rng = np.random.default_rng(len(op.name))
    for seed in range(4):
        made = random_case(rng, op)
        to = FORMATS[made.dtype] if made.dtype else made.format
        case = Case("one", "here", op.name, made.shapes, made.attributes, made.format, to)
        given = options("cases.txt", "--seed", str(seed), "--height", "3,4", "--accumulation", "bf16")
        program, command, *words = shlex.split(reproducer(case, given))
        assert (program, command) == ("convgrad", "verify")
        again = options(*words)
        assert (again.height, again.accumulation, again.seed) == ([3, 4], "bf16", seed)
        (same,) = cases_of(again, DEFAULT_LIMITS, UnreadSources())
        first, second = (pose(c, o, DEFAULT_LIMITS).call for c, o in ((case, given), (same, again)))
        assert first.problem == second.problem
        for name, array in first.taken.items():
            assert_same_bits(array, second.taken[name], (made, name))


# -- instead of verdicts ---------------------------------------------------------------------------------------


def test_a_tolerance_is_printed_for_every_case(said: Run) -> None:
    code, out, _ = said("cases.txt", "--print-tolerance", "--json", "--height", 9)
    given = options("cases.txt")
    expected = []
    for case in cases_of(given, DEFAULT_LIMITS, UnreadSources()):
        posed = pose(case, given, DEFAULT_LIMITS).call
        expected.append(tolerance(posed, declared(case.operator, case.operand_format, height=9)))
    found = [(one["atol"], one["rtol"]) for one in values(out)]
    assert (code, found) == (0, [(one.atol, one.rtol) for one in expected])
    text = said("cases.txt", "--print-tolerance", "--height", 9)[1].splitlines()
    assert all(line.endswith(str(one)) for line, one in zip(text, expected, strict=True))


def test_a_certificate_of_one_element_is_printed(said: Run) -> None:
    found = json.loads(said(LINES[1], "--element", "0,1,2")[1])
    assert (found["index"], found["conclusions"]["verdict"]) == ([0, 1, 2], "inside")
    code, out, _ = said(LINES[3], *call("wrong_weights"), "--element", "(0, 1, 2)")
    assert (code, json.loads(out)["conclusions"]["verdict"]) == (1, "beyond")
    assert said(LINES[1], *call("raises"), "--element", "0,0,0")[0] == 1
    assert said(LINES[1], "--element", "0,0")[0] == said(LINES[1], "--element", "9,0,0")[0] == 2


REFUSED: dict[tuple[str, ...], str] = {
    (): "give cases",
    ("--colection", "hard"): "unrecognized arguments: --colection. Did you mean --collection?",
    ("cases.txt", "--got", ".", *call("right")): "--got and --call",
    ("cases.txt", "--isolate"): "--isolate goes with --call",
    ("cases.txt", *call("right"), "--timeout", "3"): "--timeout goes with --isolate",
    ("cases.txt", *call("right"), "--isolate", "--timeout", "0"): "a positive number of seconds",
    ("cases.txt", "--export", "out", "--junit", "a.xml"): "--export and --junit",
    ("cases.txt", "--with-references"): "--with-references goes with --export",
    ("cases.txt", "--element", "0,0"): "--element needs exactly one case; there are 5",
    ("cases.txt", "--element", "0,-1"): "an index is non-negative integers",
    ("cases.txt", "--height", "3,0"): "a height is a non-negative integer",
    **{("cases.txt", "--height", f"{one},1"): "an order" for one in (2**63 - 1, 2**53 + 1, "9" * 30, 0)},
    ("cases.txt", "--accumulation", "f31"): "accumulation must be one of",
    (
        "cases.txt",
        "--only",
        "none",
    ): "no case has a name like none; there are mb2ic3ih6oc4oh6kh3ph1_BWD_WB_f32_NXC_XIO,",
    ("cases.txt", "--export", "out", "--kind", "npy"): "--kind must be one of .npy, .npz, .safetensors, .pt, .bin",
    ("cases.txt", "--type", "f32"): "--type goes with --shapes",
    ("cases.txt", "--threads", "0"): "positive integer",
    ("cases.txt", "--call", "nowhere"): "module:function",
    ("cases.txt", "--call", "no_such_module:f"): "ModuleNotFoundError",
    ("cases.txt", "--call", "no_such_module:f", "--isolate"): "ModuleNotFoundError",
    ("BWD_W f32 NXC mb1ic3",): "the problem:1:15: a problem has at least one spatial axis",
    ("BiasAddBackward", "--shapes", "2x3", "--attr", "x=1"): "",
    ("--collection", "nope"): "the collections are",
}


@pytest.mark.parametrize("arguments", REFUSED, ids=" ".join)
def test_a_command_line_that_contradicts_itself_is_refused(said: Run, arguments: tuple[str, ...]) -> None:
    code, out, err = said(*arguments)
    assert (code, out) == (2, "")
    assert err.startswith("convgrad: ")
    assert REFUSED[arguments] in err


def test_files_without_a_case_are_told(said: Run) -> None:
    Path("empty.txt").write_text("# nothing yet")
    assert said("empty.txt") == (3, "", "convgrad: empty.txt: must contain a case; there is none\n")


def test_a_type_that_a_case_cannot_have_leaves_the_others_judged(said: Run) -> None:
    code, out, _ = said("cases.txt", "--dtype", "f64")
    assert (code, "1 ok, 4 not judged" in out, out.count("needs f64 operands")) == (2, True, 4)
    assert "--dtype f64 --only" in out


@pytest.mark.parametrize("words", [("none.txt",), ("cases.txt", "--got", "none"), ("cases.txt", "--junit", "no/a.xml")])
def test_files_that_are_missing_are_told(said: Run, words: tuple[str, ...]) -> None:
    code, out, err = said(*words)
    assert (code, out) == (3, "")
    assert "no such" in err or "neither a file nor a problem line" in err


@pytest.mark.parametrize(
    "words", [("none.txt",), ("cases.txt", "--only", "none"), ("cases.txt", "--call", "none:none")]
)
def test_a_report_of_a_run_without_a_case(said: Run, words: tuple[str, ...]) -> None:
    code, _, err = said(*words, "--junit", "report.xml")
    assert code in (2, 3)
    assert junit("report.xml") == {"tests": 1, "failures": 0, "errors": 1, "skipped": 0}
    (error,) = ElementTree.parse("report.xml").iter("error")
    assert f"convgrad: {error.get('message')}" in err


def test_the_tolerance_that_the_page_tells_is_printed(said: Run) -> None:
    page = (DOCS / "verify.md").read_text(encoding="utf-8")
    (command,) = re.findall(r"^convgrad verify (.* --print-tolerance)$", page, re.MULTILINE)
    code, out, err = said(*shlex.split(command))
    assert (code, err) == (0, "")
    assert "atol=1.56, rtol=0" in out
    assert "a 0 would pass at 30 of 2304" in out
    assert "prints an `atol` of 1.56." in page
    assert "30 of the 2,304 elements would pass even if they were 0." in " ".join(page.split())
