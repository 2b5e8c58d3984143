"""``convgrad run`` tells the time of compiling kernels from that of computing."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from convgrad.cli import main
from convgrad.engines.llvm import jit
from convgrad.functional.call import Prepared
from tests.support.engine_helpers import HOST

LINE = "BWD_W f32 NXC mb1ic5ih7oc6oh7kh3ph1"
needs_kernels = pytest.mark.skipif(not HOST, reason="no generated kernels run here")


@needs_kernels
def test_a_run_has_both_times(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", LINE, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["compute_ms"] > 0
    assert told["compile_ms"] > 0
    assert told["time_ms"] == pytest.approx(told["compile_ms"] + told["compute_ms"], abs=1.5e-3)  # each is rounded
    assert main(["run", LINE]) == 0
    assert re.search(r"kernels ready after \S+ [mu]?s, computed in \S+ [mu]?s\n", capsys.readouterr().out)


@needs_kernels
def test_kernels_are_compiled_on_the_first_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []

    def told(words: str, of: Any) -> Any:
        return lambda *given, **named: order.append(words) or of(*given, **named)

    monkeypatch.setattr(jit, "compile", told("compiles", jit.compile))
    monkeypatch.setattr(Prepared, "execute", told("computes", Prepared.execute))
    assert main(["run", LINE.replace("ih7oc6oh7", "ih11oc6oh11")]) == 0  # which nothing else here has been ready for
    assert order == ["compiles", "computes"]


def test_without_kernels_nothing_is_compiled(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", LINE.replace("f32", "f64")]) == 0
    text = capsys.readouterr().out
    assert "computed in" in text
    assert "compiled" not in text
