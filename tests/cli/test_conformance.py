"""``convgrad conformance``: the list, the table, skips and expected failures, exit codes, pytest, the examples."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from convgrad import conformance
from convgrad.cli import main
from convgrad.cli.conformance import group_of
from convgrad.verify.cases import collection
from tests.support.places import EXAMPLES
from tests.support.verify_helpers import Said, here  # noqa: F401 - a fixture

CASES = collection.cases("conformance")
SOME = [case for case in CASES if case.name.startswith(("plain-1d", "types-2d", "dilation-2", "groups-deconv"))]
FLAT = """
import convgrad

def run(operator, *operands, **attributes):
    if operands[0].dtype == "float16":
        raise NotImplementedError("f16")
    result = convgrad.run(operator, *operands, **attributes)
    dilated = max(attributes.get("dilations", [1])) > 1
    return 0 * result if operator.endswith("Weights") and dilated else result
"""
ADAPTERS = EXAMPLES / "conformance"
LAST = re.compile(r"^all +(\d+) +(\d+) +(\d+) +(\d+) +(\d+)$", re.MULTILINE)


@pytest.fixture(name="some")
def some_cases(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer cases, and a function that is wrong for dilated weight gradients and does not serve f16."""
    monkeypatch.setattr(collection, "cases", lambda name: SOME)
    Path("flat.py").write_text(FLAT)


def said(capsys: pytest.CaptureFixture[str], *words: str) -> Said:
    code = main(["conformance", *words])
    return code, *capsys.readouterr()


def rows(out: str) -> dict[str, list[int]]:
    """Return the numbers of a table in text by group."""
    found = re.findall(r"^(\S.*?)  +(\d+(?: +\d+){4})$", out, re.MULTILINE)
    return {group: [int(number) for number in numbers.split()] for group, numbers in found}


# -- the list ------------------------------------------------------------------------------------------------------


def test_the_list_has_every_feature() -> None:
    groups = Counter(group_of(case) for case in CASES)
    assert 150 <= len(CASES) <= 300
    passes = {group.partition(",")[0] for group in groups}
    assert len(passes) == 7
    features = {group.partition(", ")[2] for group in groups}
    assert features == {
        "plain", "types", "bias", "stride", "dilation", "padding", "groups", "output padding", "edges", "hard",
    }  # fmt: skip
    assert {case.operand_format.name for case in CASES} == {"f32", "bf16", "f16"}
    assert {case.attributes["data_format"] for case in CASES} == {"NXC", "NCX"}


@pytest.mark.long
def test_convgrad_passes_every_case(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CONVGRAD_MAX_ISA")
    code, out, _ = said(capsys, "convgrad", "--strict")
    assert (code, rows(out)["all"]) == (0, [len(CASES), 0, 0, 0, 0])


# -- the table -----------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("some")
def test_a_wrong_function_fails_its_groups(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = said(capsys, "flat", "--table", "table.md")
    table = rows(out)
    assert code == 1
    assert {group for group, numbers in table.items() if numbers[1]} == {"weight gradient, dilation", "all"}
    assert table["weight gradient, dilation"] == [0, 3, 0, 1, 0]
    assert table["data gradient, dilation"] == [3, 0, 0, 1, 0]
    assert table["forward, types"] == [2, 0, 0, 2, 0]
    assert sum(table["all"]) == len(SOME)
    assert len(re.findall(r"^dilation-2\S+  WRONG: ", out, re.MULTILINE)) == 3
    assert out.count("reproduce: convgrad verify ") == 3
    badge = f"convgrad conformance: {table['all'][0]} of {len(SOME)}"
    assert f"\n\n{badge}\n" in out
    first, _, about, _, _, _, *lines = Path("table.md").read_text().splitlines()
    assert first.startswith(f"![{badge}](https://")
    assert " " not in first.partition("](")[2]
    assert about.startswith("`flat:run`, judged by convgrad ")
    assert lines == [f"| {group} | {' | '.join(map(str, numbers))} |" for group, numbers in table.items()]


@pytest.mark.every(4)
@pytest.mark.usefixtures("some")
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["foreign_functions:right"], 0),
        (["foreign_functions:right", "--isolate", "--timeout", "60", "--strict"], 0),
        (["flat"], 1),
        (["flat", "--xfails", "known.txt"], 0),
        (["flat", "--xfails", "known.txt", "--strict"], 1),  # f16 is not served
        (["foreign_functions:raises", "--xfails", "all.txt", "--strict"], 0),
        (["foreign_functions:biases", "--xfails", "all.txt"], 0),  # all others are not served
        (["flat", "--skips", "known.txt"], 0),
        (["flat", "--timeout", "1"], 2),
        (["no_such_module"], 2),
        (["flat", "--skips", "missing.txt"], 3),
    ],
)
def test_exit_codes(words: list[str], expected: int, capsys: pytest.CaptureFixture[str]) -> None:
    Path("known.txt").write_text("dilation-2-*Weights-*  dilations are ignored\n")
    Path("all.txt").write_text("*  unfinished\n")
    code, out, _ = said(capsys, *words)
    assert code == expected
    assert out.count("NOT SERVED") == ("--strict" in words and "flat" in words)  # the reason for the exit code


def test_names_are_those_of_verify(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """So the line that reproduces a case with operands of its own finds the case."""
    views = [case for case in CASES if case.name.startswith("edges-sliced.Convolution.")]
    monkeypatch.setattr(collection, "cases", lambda name: views)
    code, out, _ = said(capsys, "foreign_functions:raises")
    (line, _) = re.findall(r"reproduce: convgrad (.*)", out)
    assert (code, rows(out)["forward, edges"][1]) == (1, 2)
    assert main(shlex.split(line)) == 1
    assert "1 case" in capsys.readouterr().out


# -- skips and expected failures -------------------------------------------------------------------------------------


@pytest.mark.usefixtures("some")
def test_skips_and_expected_failures_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    Path("skips.txt").write_text("# slow\nplain-1d-*  slow\n")
    Path("known.txt").write_text("dilation-2-ConvolutionBackwardWeights-*  dilations are ignored  # for now\n")
    code, out, _ = said(capsys, "flat", "--skips", "skips.txt", "--xfails", "known.txt")
    table = rows(out)
    assert code == 0
    assert table["weight gradient, dilation"] == [0, 0, 3, 1, 0]
    assert table["bias gradient, plain"] == [0, 0, 0, 0, 2]
    assert "WRONG" not in out


@pytest.mark.usefixtures("some")
def test_an_expected_failure_that_passes(capsys: pytest.CaptureFixture[str]) -> None:
    name = "plain-1d-Convolution-f32-NXC"
    Path("known.txt").write_text(f"{name} was wrong\n")
    for strict, expected in (([], 0), (["--strict"], 1)):
        code, out, err = said(capsys, "foreign_functions:right", "--xfails", "known.txt", *strict)
        assert code == expected
        assert f"convgrad: {name} is expected to fail, but passes; known.txt says: was wrong\n" in err
        assert rows(out)["forward, plain"] == [2, 0, 0, 0, 0]


@pytest.mark.usefixtures("some")
@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("plain-1d-*", "known.txt:2:1: a line must be a name or a pattern, and a reason; got 'plain-1d-*'"),
        (
            "plane-* why",
            "known.txt:2:1: a pattern must match a case, such as types-2d-Convolution-bf16-NXC; got 'plane-*'",
        ),
    ],
)
def test_lines_that_are_refused(line: str, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("known.txt").write_text(f"\n{line}\n")
    code, _, err = said(capsys, "flat", "--xfails", "known.txt")
    assert (code, err) == (3, f"convgrad: {words}\n")


# -- pytest ----------------------------------------------------------------------------------------------------------


def by_pytest(function: str, options: str, *words: str) -> str:
    given = {"CONVGRAD_CONFORMANCE_MODULE": function, "CONVGRAD_CONFORMANCE_OPTIONS": options}
    given["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # others' plugins take longer to load than the test
    command = [sys.executable, "-m", "pytest", "--pyargs", "convgrad.conformance", "-p", "no:cacheprovider", *words]
    done = subprocess.run(command, env=os.environ | given, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def test_each_case_is_a_test() -> None:
    Path("flat.py").write_text(FLAT)
    Path("known.txt").write_text("dilation-2-*Weights-f32*  dilations are ignored\n")
    Path("skips.txt").write_text("dilation-2-Convolution-f32-NXC  slow\n")
    out = by_pytest("flat:run", "--xfails known.txt --skips skips.txt", "-k", "dilation-2", "-rsxf")
    assert "1 failed, 5 passed, 4 skipped, 283 deselected, 2 xfailed" in out
    assert re.search(r"FAILED .*\bdilation-2-ConvolutionBackwardWeights-bf16-NXC\]", out)
    assert "NOT SERVED: it raised NotImplementedError: f16" in out
    out = by_pytest("flat:run", "--xfails known.txt --strict", "-k", "dilation-2 and f16")
    assert "4 failed" in out


def test_pytest_needs_the_function(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CONVGRAD_CONFORMANCE_MODULE", raising=False)
    with pytest.raises(pytest.UsageError, match=r"^set CONVGRAD_CONFORMANCE_MODULE to the function to judge"):
        conformance.pytest_generate_tests(None)  # type: ignore[arg-type]


# -- examples --------------------------------------------------------------------------------------------------------


def numbers_of(*words: str) -> list[int]:
    """Run the command in the folder of the adapters, and return the numbers of all cases."""
    command = [sys.executable, "-m", "convgrad", "conformance", *words]
    done = subprocess.run(command, cwd=ADAPTERS, capture_output=True, text=True, check=False)
    found = LAST.search(done.stdout)
    assert found, done.stdout + done.stderr
    assert int(found[1]) + int(found[2]) == len(CASES) - int(found[4])
    return [int(number) for number in found.groups()]


def test_adapters_are_short() -> None:
    assert {path.name for path in ADAPTERS.iterdir() if len(path.read_text().splitlines()) > 60} == set()


@pytest.mark.parametrize(
    ("adapter", "library", "passed"),
    [
        pytest.param("scipy_signal", "scipy", 216, marks=pytest.mark.long),
        pytest.param("kernelbench", "torch", 78, marks=pytest.mark.long),
        pytest.param("gpu_mode", "torch", 6, marks=pytest.mark.long),
        ("onnx_runtime", "onnxruntime", 45),
        pytest.param("jax_lax", "jax", 287, marks=[pytest.mark.long, pytest.mark.timeout(900)]),
        pytest.param("tensorflow_nn", "tensorflow", 139, marks=pytest.mark.long),
    ],
)
def test_adapter(adapter: str, library: str, passed: int) -> None:
    pytest.importorskip(library)
    found, failed, *_ = numbers_of(adapter)
    assert found + failed >= passed
    assert failed <= 3


@pytest.mark.long
def test_adapter_of_pytorch_serves_everything() -> None:
    """How many cases pass depends on the processor."""
    pytest.importorskip("torch")
    assert numbers_of("pytorch", "--isolate")[3] == 0


@pytest.mark.long
@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_a_c_library(tmp_path: Path) -> None:
    source = ADAPTERS / "c_library.c"
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", source, "-o", tmp_path / "c_library.so"], check=True)
    (signature,) = re.findall(r'"(f32 NXC .*)"', source.read_text())
    assert numbers_of(f"{tmp_path}/c_library.so:weight_gradient", "--signature", signature)[:2] == [32, 0]
