"""Random problems of ``campaigns/cuda.py``, with the GPU's kernels on the CPU."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from campaigns import cuda
from convgrad.plan.cuda.plan import DevicePlan, plan
from tests.support.engine_helpers import HOST

if not HOST:
    pytest.skip("no generated kernels run here", allow_module_level=True)


def campaign(*arguments: str) -> int:
    return cuda.main(["--emulated", "--jobs", "1", *arguments])


def test_some_problems(capsys: pytest.CaptureFixture[str]) -> None:
    assert campaign("--problems", "3", "--types", "bf16", "--seed", "3") == 0
    assert "problems, 0 problems wrong" in capsys.readouterr().out


def test_launch_left_out(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A plan without its last launch is reported with arguments that run it alone."""

    def without_last(*given: Any) -> DevicePlan:
        made = plan(*given)
        return replace(made, launches=made.launches[:-1])

    monkeypatch.setattr(cuda, "plan", without_last)
    assert campaign("--problems", "2") == 1
    reported = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("wrong: "))
    command, *_ = reported.removeprefix("wrong: python -m campaigns cuda ").split(":")
    assert campaign(*command.split()) == 1
    monkeypatch.undo()
    assert campaign(*command.split()) == 0
