"""What the tests of the benchmark are run on: a tiny problem, made-up roofs, the peers that are there."""

from __future__ import annotations

import importlib.util
import sysconfig
from pathlib import Path

import pytest

from convgrad.cli.bench.roofs import Level, Roofs

COMMAND = str(Path(sysconfig.get_path("scripts")) / "convgrad")
TINY = "BWD_W f32 NXC mb2ic4ih9oc6oh9kh3ph1ntiny:a"
ROOFS = Roofs(2, 100.0, (Level("L1", 1 << 14, 400.0), Level("L2", 1 << 20, 200.0), Level("memory", None, 20.0)))
needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs torch")
