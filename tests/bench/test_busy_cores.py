"""benchmarks/busy_cores.py and the processes that keep cores busy: what is written, and that none is left behind."""

from __future__ import annotations

import csv
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.children import HANG_S
from tests.support.places import BENCHMARKS

PROBLEM = "FWD_D f32 NXC mb1ic8ih8oc8kh3ph1"
INSIDE = """
import os, sys, time
from others import busy
with busy(2) as ids:
    print(*ids, flush=True)
    if sys.argv[1:] == ["fails"]:
        raise SystemExit(5)
    time.sleep(600)
"""


def runs(process: int) -> bool:
    """Tell whether a process runs; one that ended and that nobody has waited for does not."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def end_soon(processes: list[int]) -> bool:
    deadline = time.monotonic() + HANG_S
    while any(map(runs, processes)) and time.monotonic() < deadline:
        time.sleep(0.01)
    return not any(map(runs, processes))


@pytest.mark.every(2)
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="asks the system by /proc")
@pytest.mark.parametrize(("sent", "argument", "code"), [
    (None, "fails", 5),
    (signal.SIGINT, "", -signal.SIGINT),
    (signal.SIGTERM, "", -signal.SIGTERM),
    (signal.SIGKILL, "", -signal.SIGKILL),
])  # fmt: skip
def test_no_process_is_left(sent: signal.Signals | None, argument: str, code: int) -> None:
    command = [sys.executable, "-c", INSIDE, argument]
    with subprocess.Popen(command, cwd=BENCHMARKS, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as parent:
        assert parent.stdout is not None
        others = [int(word) for word in parent.stdout.readline().split()]
        assert len(others) == 2
        if sent is not None:
            assert all(map(runs, others))
            os.kill(parent.pid, sent)
        assert parent.wait() == code
    assert end_soon(others)


@pytest.mark.long
def test_a_row_for_quiet_and_for_busy_cores(tmp_path: Path) -> None:
    table = tmp_path / "busy.csv"
    command = [sys.executable, BENCHMARKS / "busy_cores.py", PROBLEM, "--busy", "0", "1", "--calls", "3", "-o", table]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("median") == 3  # the heading's, and one a row
    quiet, busy = csv.DictReader(table.read_text().splitlines())
    assert [(row["problem"], row["busy"], row["calls"]) for row in (quiet, busy)] == [
        (PROBLEM, "0", "3"), (PROBLEM, "1", "3")
    ]  # fmt: skip
    assert float(quiet["median_ratio"]) == 1
    assert float(busy["median_ratio"]) == pytest.approx(float(busy["median_ms"]) / float(quiet["median_ms"]))
    assert all(float(row["worst_ms"]) >= float(row["median_ms"]) > 0 for row in (quiet, busy))
