"""docs/scale.md: its table and times are what the code has."""

from __future__ import annotations

import random
import re

import numpy as np

from convgrad import partials
from convgrad.scale.checkpoint import EVERY_S
from convgrad.scale.cut import GOOD_BYTES, MAX_BYTES
from convgrad.spec.pieces import nodes_of
from tests.support.places import DOCS

PAGE = (DOCS / "scale.md").read_text(encoding="utf-8")


def table_under(head: str) -> list[str]:
    lines = PAGE.splitlines()
    (at,) = (n for n, line in enumerate(lines) if line.strip().startswith(head))
    return [line for line in lines[at + 2 : lines.index("", at)]]


def known(first: int, end: int) -> int:
    """Return how many sums are known of some leaves."""
    return len(nodes_of(first, end))


def test_sizes_and_times_are_those_of_the_code() -> None:
    assert f"pieces have {GOOD_BYTES >> 20} MiB" in PAGE
    assert f"has at most {MAX_BYTES >> 20} MiB of operands" in PAGE
    for page in (PAGE, (DOCS / "resume.md").read_text(encoding="utf-8")):
        assert f"every {EVERY_S:.0f} seconds" in page


def test_the_table_of_arrays_is_what_the_tree_says() -> None:
    for row in table_under("| piece | arrays"):
        piece, arrays = row.strip("| ").split(" | ")
        if "anywhere" in piece:
            leaves = int(piece.split()[0])
            mean, most = map(int, re.findall(r"\d+", arrays))
            found = [known(first, first + leaves) for first in random.Random(0).sample(range(65536), 1000)]
            assert round(sum(found) / len(found)) == mean
            assert max(known(first, first + leaves) for first in range(4096)) == most, piece
        else:
            for q in (1, 3, 8) if "q" in piece else (1,):
                assert max(known(n * q * 256, (n + 1) * q * 256) for n in range(100)) <= q


def test_a_piece_has_the_arrays_of_the_table() -> None:
    y = np.ones((90, 300, 3), np.float32)
    for first, end in ((0, 90), (3, 40), (16, 32), (15, 49)):
        part = partials("BiasAddBackward", y[first:end], first=first)
        assert part.nbytes == known(first, end) * y[0, 0].nbytes
