"""Calls in pieces that are left anywhere, again and again, and gone on with by any cut: the bits of the plain call.

``python -m campaigns resume --calls 200 --seed 7`` draws calls of every operator that ties three tensors together,
of every class, name, layout and type. What differs is printed as a call; the exit code is then 1.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import convgrad
from campaigns.command import run_chunks
from campaigns.cut import SHARED
from convgrad import scale
from convgrad.formats import FORMATS
from convgrad.functional.call import prepare
from convgrad.functional.partials import SUMMED
from tests.scale.sources import Slices
from tests.support.classes import CLASSES, CONVOLUTIONS, Class, any_case, draw
from tests.support.engine_helpers import HOST
from tests.support.helpers import Case, operands_of

MULTIPLY_ADDS, ELEMENTS = 200_000, 20_000
WIDE = Class((1, 2), (1, 2, 3), (1, 2, 5), (2, 2, 3), (1, 2), (5, 40, 130, 256, 300, 600), (1, 2, 3), strides=(1, 2))
LAYERS = CLASSES | {"wide": WIDE}
BATCHES = (1, 2, 5, 17, 64)
TIMES = 6  # a call is left at most
CHUNK = 25


@dataclass
class Tally:
    """What was left and gone on with, and what of it has other bits than the plain call."""

    calls: int = 0
    left: int = 0
    by_rows: int = 0
    wrong: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        rows = f"{self.by_rows} of them within an image"
        return (
            f"{self.calls} calls, left {self.left} times, {rows}: {len(self.wrong)} with other bits than the plain call"
        )


class Left(BaseException):
    """A call is left."""


def run_call(case: Case, rng: np.random.Generator, folder: Path, patch: pytest.MonkeyPatch, tally: Tally) -> None:
    """Leave a call some times, each time cut otherwise, and hold what it comes to against the plain call."""
    operands = operands_of(case, "normal", int(rng.integers(1 << 30)))
    prepared = prepare(case.op.name, operands, case.attributes, case.dtype)
    whole = convgrad.run(case.op.name, *operands, dtype=case.dtype, **case.attributes)
    sums, path = prepared.problem.solves_for in SUMMED, folder / "kept"
    out = None if sums else np.full_like(whole, np.nan)
    shapes = [port.is_shape for port in case.op.operands]
    given = [one if shape else Slices(one) for one, shape in zip(operands, shapes, strict=False)]
    call: dict[str, Any] = {"dtype": case.dtype, "out": out} | dict(case.attributes)
    with pytest.raises(convgrad.InvalidAttributeError) as caught:
        scale.plan(case.op.name, *given, memory=1, threads=2, **call)
    least = int(re.findall(r"takes (\d+) bytes", str(caught.value))[0])
    for time_ in range(TIMES + 1):
        after = int(rng.integers(1, 4)) if time_ < TIMES else None
        patch.setenv("CONVGRAD_MAX_ISA", HOST[rng.integers(len(HOST))])
        seen = []

        def tell(now: scale.Progress, after: int | None = after, seen: list[scale.Progress] = seen) -> None:
            seen.append(now)
            if now.done - now.resumed == after:
                raise Left

        options = {"memory": int(2 * least * rng.choice([1, 1, 2, 8])), "threads": int(rng.integers(1, 3))}
        try:
            got = scale.run(case.op.name, *given, checkpoint=path, progress=tell, **options, **call)
        except Left:
            tally.left += 1
            tally.by_rows += seen[-1].done < seen[-1].pieces and b'"rows": 0' not in path.read_bytes()
        else:
            break
    tally.calls += 1
    if np.asarray(got).tobytes() != whole.tobytes():
        tally.wrong.append(f"{case} left {time_} times, memory from {least}")


def run_calls(chunk: int, calls: int, tally: Tally) -> None:
    """Run the calls of a chunk, which share types."""
    _, _, operand, output = SHARED[chunk % len(SHARED)]
    rng = np.random.default_rng([17, chunk])
    drawn = {
        name: draw(replace(row, batch=BATCHES), rng, MULTIPLY_ADDS, most_elements=ELEMENTS)
        for name, row in LAYERS.items()
    }
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as folder:
        for number in range(calls):
            conv = next(drawn[list(drawn)[number % len(drawn)]])
            case = any_case(conv, rng, FORMATS[operand], FORMATS[output], CONVOLUTIONS)
            run_call(case, rng, Path(folder), patch, tally)


def main(arguments: Sequence[str] | None = None) -> int:
    return run_chunks(
        "resume",
        "Leave calls in pieces anywhere, and hold what they come to.",
        ("calls", 200),
        CHUNK,
        Tally(),
        run_calls,
        arguments,
    )
