"""docs/scale.md: its tables and times are what the plan on paper and the simulation say."""

from __future__ import annotations

import csv
import random
import re
import sys
from math import log, sqrt
from pathlib import Path

from convgrad.notation import problem
from convgrad.scale.checkpoint import EVERY_S
from convgrad.scale.costs import costs
from convgrad.scale.cut import GOOD_BYTES, MOST_BYTES
from convgrad.scale.memory import words
from convgrad.scale.shares import Piece, known, tree
from pages import DOCS

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))
from thousand_workers import LAYERS, NETWORK, WORKER  # noqa: E402

PAGE = (DOCS / "scale.md").read_text(encoding="utf-8")


def figures() -> list[dict[str, str]]:
    """Return the program's figures."""
    with (BENCHMARKS / "results" / "thousand_workers.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def digits(number: float, of: int) -> str:
    """Return a number of so many digits, as people write it."""
    text = f"{number:.{of}g}"
    return f"{float(text):.0f}" if "e+" in text else text


def thousand_rows() -> list[str]:
    """Return the rows of the table of many workers."""
    lines = []
    for row in figures():
        moved = words(int(row["moved_bytes"]))
        names = ("join_s", "time_s", "most_s", "quiet_s", "noisy_s", "dying_s")
        times = [digits(float(row[name]), 3) for name in names]
        cells = [row["layer"], row["workers"], f"{row['cut']}, {row['piece_leaves']}", row["pieces"], moved, *times]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def limit_rows() -> list[str]:
    """Return the rows of the table of where adding workers stops paying."""
    lines = []
    for name, line in LAYERS.items():
        plan = costs(problem(line), 1, NETWORK, WORKER)
        work = max(plan.compute_s, plan.read_s)
        join = NETWORK.latency_s + 15 * plan.array_bytes / NETWORK.bytes_per_s
        store = WORKER.store_bytes_per_s / WORKER.read_bytes_per_s
        limits = (store, sqrt(work / NETWORK.task_s), work * log(16) / join)
        lines.append(f"  | {name} | {work:.0f} | {1e3 * join:.3g} | {' | '.join(digits(each, 2) for each in limits)} |")
    return lines


def table_under(head: str) -> list[str]:
    lines = PAGE.splitlines()
    (at,) = (n for n, line in enumerate(lines) if line.strip().startswith(head))
    return [line for line in lines[at + 2 : lines.index("", at)]]


def test_sizes_and_times_are_those_of_the_code() -> None:
    assert f"pieces have {GOOD_BYTES >> 20} MiB" in PAGE
    assert f"has at most {MOST_BYTES >> 20} MiB of operands" in PAGE
    for page in (PAGE, (DOCS / "resume.md").read_text(encoding="utf-8")):
        assert f"every {EVERY_S:.0f} seconds" in page


def test_the_tables_are_what_the_program_finds() -> None:
    assert table_under("| layer | workers |") == thousand_rows()
    assert table_under("| layer | T, s |") == limit_rows()


def test_what_is_said_of_the_table_is_true_of_it() -> None:
    found = {(row["layer"], row["workers"], row["cut"]): row for row in figures()}
    assert {row["binds"] for key, row in found.items() if key[2] == "nodes"} == {"read"}
    for workers, moved, faster in (("100", 14, 2), ("1000", 16, 3)):
        nodes, others = (found["resnet50:5_3x3", workers, cut] for cut in ("nodes", "round"))
        assert int(others["moved_bytes"]) // int(nodes["moved_bytes"]) == moved
        assert float(others["quiet_s"]) // float(nodes["quiet_s"]) == faster
        assert others["binds"] == "join"
    noise = {key: float(row["noisy_s"]) / float(row["quiet_s"]) for key, row in found.items()}
    assert max(noise, key=noise.__getitem__) == ("resnet50:5_3x3", "100", "nodes")
    assert round(max(noise.values()), 2) == 1.38


def test_at_nodes_each_array_moves_once() -> None:
    """All but one of 16 in a join, so all but the last; of a tree of two neighbours, twice as many."""
    for number, more in ((16, 0), (17, 0), (256, 0), (300, 1), (4096, 0), (4400, 1)):
        levels = tree([Piece(range(n, n + 1), 0, 0) for n in range(number)], number)
        assert sum(join.moved for level in levels for join in level) == number - 1 + more
        assert more < len(levels)
    by_two = tree([Piece(range(n, n + 1), 0, 0) for n in range(16)], 16, fan_in=2)
    assert [sum(join.moved for join in level) for level in by_two] == [8, 4 * 2, 2 * 4, 8]


def test_the_table_of_arrays_is_what_the_tree_says() -> None:
    for row in table_under("| piece | arrays"):
        piece, arrays = row.strip("| ").split(" | ")
        if "anywhere" in piece:
            leaves = int(piece.split()[0])
            mean, most = map(int, re.findall(r"\d+", arrays))
            found = [known(range(first, first + leaves)) for first in random.Random(0).sample(range(65536), 1000)]
            assert round(sum(found) / len(found)) == mean
            assert max(known(range(first, first + leaves)) for first in range(4096)) == most, piece
        else:
            for q in (1, 3, 8) if "q" in piece else (1,):
                assert max(known(range(n * q * 256, (n + 1) * q * 256)) for n in range(100)) <= q
