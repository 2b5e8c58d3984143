"""docs/same_bits.md and README: what their picture shows was measured, and is so here; hashes are counted."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest

from tests.support.engine_helpers import HOST
from tests.support.places import BENCHMARKS, DOCS, ROOT


@pytest.fixture
def same_bits(monkeypatch: pytest.MonkeyPatch):  # type: ignore[no-untyped-def]
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import same_bits  # noqa: PLC0415 - a program beside the package

    return same_bits


@pytest.mark.parametrize("page", [DOCS / "same_bits.md", ROOT / "README.md"], ids=lambda page: page.name)
def test_the_pages_say_what_was_measured(same_bits, page: Path) -> None:  # type: ignore[no-untyped-def]
    rows = same_bits.read(same_bits.RESULTS)
    text = " ".join(page.read_text(encoding="utf-8").split())
    (ours,) = same_bits.distinct(rows, "convgrad")
    theirs = same_bits.distinct(rows, "torch")
    assert ours not in theirs
    assert {row["outcome"] for row in rows} == {"ok"}  # "None of these is wrong"
    counts = {library: sum(row["library"] == library for row in rows) for library in same_bits.LIBRARIES}
    assert counts == dict.fromkeys(same_bits.LIBRARIES, 40)
    assert f"convgrad's 40 cells are all {ours[:4]}; PyTorch's 40 cells have {len(theirs)} different values." in text
    assert f"convgrad has one result, PyTorch {rows[-1]['version'].split('+')[0]} has {len(theirs)}." in text


def test_numerics_says_how_many_hashes_there_are() -> None:
    *_, last = (ROOT / "tests/golden/hashes.txt").read_text(encoding="utf-8").splitlines()
    count = last.rpartition(" all of ")[2]
    assert f"has the SHA-256 of {count} results" in (DOCS / "numerics.md").read_text(encoding="utf-8")


@pytest.mark.skipif(not HOST, reason="no generated kernels run here")
def test_this_machine_has_the_hash_of_the_picture(same_bits) -> None:  # type: ignore[no-untyped-def]
    (committed,) = same_bits.distinct(same_bits.read(same_bits.RESULTS), "convgrad")
    src, diff_dst = same_bits.operands()
    for layout, cut in (("NXC", (0, 3, 8)), ("NCX", (0, 8))):
        gradient = same_bits.ours(src, diff_dst, layout, cut)
        assert hashlib.sha256(np.ascontiguousarray(gradient).tobytes()).hexdigest() == committed, (layout, cut)
