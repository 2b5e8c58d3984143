"""benchmarks/mapped.py: each way has its rows, cold and warm, and what is compared computes the same."""

from __future__ import annotations

from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="what came from the disk is told by Linux")
def test_a_short_run_has_all_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import mapped  # noqa: PLC0415 - a program beside the package

    found = mapped.measured("BWD_W f32 NCX mb40ic2ih20oc3oh20kh3ph1ntest:layer", 1, 1, tmp_path, "100kB")
    rows = {(row["files"], row["how"]): row for row in found}
    assert len(rows) == len(found) == 6
    assert {how for _, how in rows} == {"reading alone", "plain call", "in pieces"}
    assert all(float(row["seconds"]) >= 0 <= float(row["disk_ratio"]) for row in found)
