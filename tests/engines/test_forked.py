"""Processes that were forked before they import convgrad: OpenMP's threads stayed in the parent, so ours compute."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from convgrad.engines import openmp
from tests.support.children import HANG_S, TORCH
from tests.support.tiers import tiers

STATS = {
    "7 (python) S 1 7 7 0 -1 4194304 96 0": False,  # fields of a process that has executed a program
    "7 (python) S 1 7 7 0 -1 4194368 96 0": True,
    "7 (a) (b) 64 64) R 1 7 7 0 -1 4194304 96 0": False,
    "7 (a (64) R 1 7 7 0 -1 4194368 96 0": True,
    "7 () ) ) S 1 7 7 0 -1 64 96 0": True,
    "7 (S 64\n64 64 64 64 64 64) S 1 7 7 0 -1 0 96 0": False,
    "": True,  # it is not known
    "7 (python) S 1": True,
    "7 (python) S 1 7 7 0 -1 flags 96 0": True,
}

# The parent's runtime of OpenMP runs a team. Children import convgrad first, and use two threads.
PROGRAM = """
import faulthandler, multiprocessing, os, sys, warnings
import torch
def child(*_):
    faulthandler.dump_traceback_later({hang}, exit=True)
    torch.set_num_threads(1)  # as PyTorch's DataLoader does
    import convgrad.torch as ct
    x, w = torch.ones(4, 16, 40, 40), torch.ones(16, 16, 3, 3)
    assert ct.conv2d(x, w)[0, 0, 0, 0] == 144
    return ct.conv2d(x, w).sum().item()
class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 4
    def __getitem__(self, at):
        return child()
def forked(depth):
    pid = os.fork()
    if pid == 0:
        if depth > 1:
            os._exit(forked(depth - 1))
        os._exit(child() != 4 * 16 * 38 * 38 * 144)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
if __name__ == "__main__":
    warnings.simplefilter("ignore")
    torch.set_num_threads(2)
    torch.sum(torch.ones(1 << 20))
    assert "convgrad" not in sys.modules
    how = sys.argv[1]
    if how == "loader":
        assert sum(torch.utils.data.DataLoader(Data(), num_workers=2)) == 4 * 4 * 16 * 38 * 38 * 144
    elif how.isdigit():
        assert forked(int(how)) == 0
    else:
        with multiprocessing.get_context(how).Pool(2) as pool:
            assert pool.map(child, range(4)) == [4 * 16 * 38 * 38 * 144] * 4
"""


@pytest.mark.parametrize("stat", STATS)
def test_the_flags_of_a_process(stat: str, tmp_path: Path) -> None:
    path = tmp_path / "stat"
    path.write_text(stat)
    assert openmp._was_forked(path) == STATS[stat]


def test_a_system_without_proc(tmp_path: Path) -> None:
    assert openmp._was_forked(tmp_path / "stat")


LATE = """
import os, sys
forked = [os.fork() == 0 for _ in range(int(sys.argv[1]))]
from convgrad.engines import openmp
if True in forked:
    os._exit("this process was forked" in openmp.why_not())
assert "no OpenMP runtime is loaded" in openmp.why_not()
assert [os.waitstatus_to_exitcode(os.wait()[1]) for _ in forked] == [1] * len(forked)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the flag is Linux's")
def test_processes_that_import_after_a_fork() -> None:
    """The parent of all executed a program and was not forked since."""
    subprocess.run([sys.executable, "-c", LATE, "2"], check=True, timeout=HANG_S)


@pytest.mark.skipif(not TORCH, reason="there is no runtime of OpenMP")
@tiers("how", [], long=["1", "2", "loader", "fork", "forkserver", "spawn"])
def test_a_first_import_after_the_fork(how: str, tmp_path: Path) -> None:
    """A region of OpenMP would wait for threads that are only in the parent."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM.format(hang=HANG_S))
    environment = os.environ | {"CONVGRAD_NUM_THREADS": "2"}
    subprocess.run([sys.executable, program, how], check=True, env=environment, timeout=10 * HANG_S)
