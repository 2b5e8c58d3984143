"""Declared arithmetic on the command line: a depth that no sum has is refused, before anything is judged."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

CASE, LONG = "BWD_W f32 NXC mb1ic1iw9oc1ow9kw1", "BWD_W f32 NXC mb1ic1iw90oc1ow90kw1"


@pytest.mark.parametrize("command", ["verify", "run", "tolerance"])
@pytest.mark.parametrize(("height", "words"), [(0, "at least 5"), (4, "at least 5"), (10, "at most 9"), ("4,4", "9")])
def test_a_command_refuses_a_depth(said: Any, command: str, height: int | str, words: str) -> None:
    np.save("r.npy", np.zeros((1, 1, 1), np.float32))
    given = {"verify": ["verify", CASE], "tolerance": ["verify", CASE, "--print-tolerance"]}
    code, out, err = said(*given.get(command, ["run", CASE, "--expect", "r.npy"]), "--height", height)
    assert code == 2
    assert re.search(f"must (be|have) {words}", out + err)
    assert f"; got {height if height != '4,4' else '8 in 2 blocks'}" in out + err


def test_a_depth_of_several_cases_may_exceed_that_of_one(said: Any) -> None:
    """But not fall below the least of one, which alone is then not judged."""
    Path("cases.txt").write_text(f"{CASE}\n{LONG}\n")
    assert said("verify", "cases.txt", "--height", 90, "--call", "convgrad:run")[0] == 0
    code, out, _ = said("verify", "cases.txt", "--height", 6, "--call", "convgrad:run")
    assert (code, "1 ok, 1 not judged" in out, "at least 8, because no order of a sum of 90 terms" in out) == (2, 1, 1)
