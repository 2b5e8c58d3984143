"""A call in pieces takes no more than it is told, however large its operands are and however many its pieces."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import convgrad
from tests.support.children import HANG_S, run_program
from tests.support.engine_helpers import HOST
from tests.support.places import BENCHMARKS

if not sys.platform.startswith("linux"):
    pytest.skip("limits memory as Linux does", allow_module_level=True)
if not HOST:
    pytest.skip("sums in pieces need kernels", allow_module_level=True)

from tests.scale.in_little_memory import CASES, MANY, MEMORY, hashed, integers

PLAIN = {"MALLOC_ARENA_MAX": "1", "MALLOC_MMAP_THRESHOLD_": "131072"}  # the allocator keeps nothing back
LOADED, MAPPED = 24 << 20, 48 << 20


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Any:
    """What a process with so little memory told of the cases that are asked for, on files that are larger."""
    folder = tmp_path_factory.mktemp("files")
    names = [name for name in CASES if any(item.nodeid.endswith(f"no_room[{name}]") for item in request.session.items)]
    for case in map(CASES.__getitem__, names):
        for path, shape in zip(case.paths(folder), case.shapes, strict=False):
            if not path.exists():
                np.save(path, integers(shape))
    *_, last = run_program("tests.scale.in_little_memory", folder, *names, **PLAIN)
    return json.loads(last)


@pytest.mark.every(2)
@pytest.mark.parametrize("name", CASES)
def test_the_bits_are_those_of_the_call_for_which_there_is_no_room(name: str, told: Any) -> None:
    case = CASES[name]
    seen = told["cases"][name]
    assert not seen["loads"]
    assert MEMORY // 2 < seen["planned"] <= MEMORY
    whole = convgrad.run(case.operator, *map(integers, case.shapes), **case.attributes)
    assert whole.any()
    assert seen["hash"] == hashed(whole)


def test_memory_does_not_grow_with_the_pieces(told: Any) -> None:
    assert told["grown"] < integers(MANY).nbytes, "as if every piece were kept"


def test_a_child_is_seen_to_hold_pages_of_its_own_and_of_files(monkeypatch: Any, tmp_path: Path) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    from watched import EVERY_S, watched  # noqa: PLC0415 - a program beside the package

    child, file = tmp_path / "child.py", tmp_path / "file"
    file.write_bytes(bytes(MAPPED))
    lines = f"""
import mmap, time
own = b"1" * {LOADED}
file = open({str(file)!r}, "rb")
map = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
read = sum(map[at] for at in range(0, len(map), mmap.PAGESIZE))
time.sleep({10 * EVERY_S})
print(len(own))
"""
    child.write_text(lines)
    seen = watched(child, [], timeout_s=HANG_S)
    assert seen.told == LOADED
    assert LOADED <= seen.peaks["RssAnon"] < MAPPED <= seen.peaks["RssFile"]
    assert seen.peaks["RssAnon"] <= seen.peaks["VmData"]


def test_each_call_in_pieces_is_measured_beside_its_control(monkeypatch: Any) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import larger_than_memory as program  # noqa: PLC0415 - a program beside the package

    measured = list(program.runs(8 * 10**9, [2, 1], program.MEMORIES))
    pieces, controls = (
        {(run.problem, run.size) for run in measured if run.how == how} for how in ("in pieces", "whole")
    )
    assert pieces == controls
    assert {name for name, _ in pieces} == set(program.PROBLEMS)
    rows = [{"problem": "one", "GB": "8", "sha256": text} for text in ("a", "", "a")]
    assert not program.disagree(rows)
    assert program.disagree([*rows, rows[0] | {"sha256": "b"}]) == ["one of 8 GB"]


@pytest.mark.long
def test_the_benchmark_ends_with_one_hash_a_problem(tmp_path: Path) -> None:
    table = tmp_path / "rows.csv"
    command = [sys.executable, str(BENCHMARKS / "larger_than_memory.py"), "--size", "0.5", "--limit", "0.4"]
    command += ["--memory", "50MB", "100MB", "--folder", str(tmp_path), "-o", str(table)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    with table.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert {row["how"] for row in rows} == {"in pieces", "whole", "read", "reader"}
    assert list(tmp_path.iterdir()) == [table], "the files are gone"
