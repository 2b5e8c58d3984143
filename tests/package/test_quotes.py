"""What an error quotes of what somebody gave: 200 characters at most. Long lines are read in linear time."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from convgrad import ConvgradError, cases, infer_shapes, run
from convgrad.cli import main
from convgrad.descriptor import read_descriptor

LONGEST = 200
Q = "Q" * 3000
SMALL = "mb1ic4ih6oc6oh6kh3ph1"

LINES = {
    "descriptor": f"mb1{Q}",
    "digits": "mb" + "1" * 3000,
    "name": f"mb1ic4kh3n{Q}",
    "direction": f"FWD_{Q} f32 NXC {SMALL}",
    "type": f"BWD_W {Q} NXC {SMALL}",
    "problem": f"BWD_W f32 NXC mb1ic4{Q}",
    "options": f"BWD_W f32 NXC mb1 -{Q}",
    "knob": f"--{Q}=1",
    "value": f"--dt={Q}",
    "included": f"--batch={Q}",
    "flag": f"MIOpenDriver conv --{Q} 1",
    "number": f"MIOpenDriver conv -n {Q}",
    "elements": f"%y = f32[2{Q}] convolution(f32[2] %a, f32[2] %b)",
}
TOLD = {  # cases that say why they are not supported
    "tag": f"--stag={Q} {SMALL}",
    "attribute": f"--attr-post-ops={Q} {SMALL}",
    "strides": f"--strides={Q} {SMALL}",
}


def quoted(message: str) -> int:
    """Return how many characters of what was given a message has."""
    return max(message.count("Q"), message.count("1"))


@pytest.mark.parametrize("what", LINES)
def test_lines_in_errors(tmp_path: Path, what: str) -> None:
    (tmp_path / "list").write_text(LINES[what])
    with pytest.raises(ConvgradError) as refused:
        list(cases.read(tmp_path / "list"))
    place, message = f"{tmp_path}/list:1:", str(refused.value)
    assert message.startswith(place)
    assert quoted(message.removeprefix(place)) <= LONGEST


@pytest.mark.parametrize("what", TOLD)
def test_lines_in_reasons(what: str) -> None:
    assert max(quoted(case.unsupported) for case in cases.read(TOLD[what])) <= LONGEST


@pytest.mark.parametrize(
    "call",
    [
        lambda: cases.read(Q),
        lambda: run(Q),
        lambda: infer_shapes("Convolution", (1, 1, 1), (1, 1, 1), strides=[Q]),
        lambda: infer_shapes("Convolution", (1, 1, 1), (1, 1, 1), strides=[1], dilations=[1], auto_pad=Q),
    ],
    ids=["source", "operator", "list", "choice"],
)
def test_values_in_errors(call: Callable[[], object]) -> None:
    with pytest.raises(ConvgradError) as refused:
        call()
    assert quoted(str(refused.value)) <= LONGEST


@pytest.mark.parametrize(
    "words",
    [
        [Q],
        ["run", Q],
        ["run", "Convolution", f"--{Q}"],
        ["run", "Convolution", "--shapes", Q],
        ["run", "Convolution", "--shapes", "1", "--type", Q],
        ["run", "Convolution", "--shapes", "1", "--seed", Q],
        ["verify", Q],
        ["verify", "--collection", "hard", "--only", Q],
        ["verify", "BWD_W", "f32", "NXC", Q],
        ["probe", Q],
        ["bench", Q],
    ],
    ids=lambda words: " ".join(words)[:30],
)
def test_arguments_in_errors(capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    """The line that reproduces an error has them whole."""
    assert main(words) in (2, 3)
    said = [line for line in capsys.readouterr().err.splitlines() if not line.startswith("reproduce: ")]
    assert quoted("\n".join(said)) <= LONGEST


LONG = {
    "underscores": lambda n: "_" * n + "x",
    "problem": lambda n: "BWD_W f32 NXC " + "_" * n,
    "words of a problem": lambda n: "BWD_W f33 NXC " + "a " * (n // 2),
    "options of a problem": lambda n: "BWD_W f32 NXC a" + " -x" * (n // 3),
}


@pytest.mark.parametrize("what", LONG)
def test_refused_lines_take_linear_time(tmp_path: Path, what: str) -> None:
    """Four times the text takes four times the processor time, not sixteen times."""

    def took_s(n: int) -> float:
        (tmp_path / "list").write_text(LONG[what](n))
        started = time.process_time()
        with pytest.raises(ConvgradError):
            list(cases.read(tmp_path / "list"))
        return time.process_time() - started

    short, long = (min(took_s(n) for _ in range(3)) for n in (10_000, 40_000))
    assert long < 10 * short + 0.01


def test_a_line_in_many_parts_is_joined_once(tmp_path: Path) -> None:
    """A word that goes over 20,000 lines is one word, whatever else is wrong with it."""
    (tmp_path / "list").write_text("mb1ic4ih6oc6oh6kh3ph1n\\\n" + "x\\\n" * 20_000)
    assert {len(case.shapes) for case in cases.read(tmp_path / "list")} == {1, 3}
    assert read_descriptor("_" * 100_000 + "mb1ic4kh3ih6oc6").batch == 1
