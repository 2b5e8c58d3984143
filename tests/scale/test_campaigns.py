"""Campaigns against calls in pieces: killed, interrupted, starved, drawn at random."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.children import HANG_S
from tests.support.engine_helpers import HOST
from tests.support.places import ROOT

if not HOST:
    pytest.skip("sums in pieces need kernels", allow_module_level=True)

PROGRAMS = {
    "kill": ["--kills", "60", "--interrupts", "60"],
    "scale": ["--calls", "200"],
    "memory": ["--calls", "30", "--starved", "30"],
}


@pytest.mark.long
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="forks, and limits memory as Linux does")
@pytest.mark.parametrize("name", PROGRAMS)
def test_nothing_breaks(name: str) -> None:
    pytest.importorskip("zarr")
    command = [sys.executable, "-m", "campaigns", name, *PROGRAMS[name]]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=HANG_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
