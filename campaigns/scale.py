"""Random calls in pieces, by any memory, of any sources, into any ``out``: each beside the plain call, bit by bit.

``python -m campaigns scale --calls 1000 --seed 7`` draws calls of every operator that ties three tensors together,
of every class, name, layout and type. What differs is printed as a call; the exit code is then 1.
"""

from __future__ import annotations

import re
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import convgrad
from campaigns.command import run_chunks
from campaigns.cut import SHARED
from campaigns.resume import BATCHES, ELEMENTS, LAYERS, MULTIPLY_ADDS
from convgrad import scale
from convgrad.formats import FORMATS
from tests.scale.sources import Slices
from tests.support.classes import CONVOLUTIONS, any_case, draw
from tests.support.engine_helpers import HOST
from tests.support.helpers import Case, operands_of

Array = np.ndarray
CHUNK = 25


@dataclass
class Tally:
    """What was computed, how, and what of it has other bits than the plain call."""

    calls: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        kinds = ", ".join(f"{name} {number}" for name, number in sorted(self.kinds.items()))
        return f"{self.calls} calls: {len(self.wrong)} with other bits than the plain call; {kinds}"


class Odd(Slices):
    """What gives arrays that lie oddly: backwards, by columns, between the bytes of others, in foreign order."""

    def __init__(self, array: Array, way: int) -> None:
        super().__init__(array)
        self.way = way

    def __getitem__(self, region: Any) -> Array:
        array = super().__getitem__(region)
        flip = (slice(None, None, -1),) * array.ndim
        if self.way == 0:
            return np.ascontiguousarray(array[flip])[flip]
        if self.way == 1:
            return np.asfortranarray(array)
        if self.way == 2 or not array.dtype.isnative or array.dtype.kind == "V":
            memory = np.empty(array.nbytes + 1, np.uint8)
            unaligned: Array = np.ndarray(array.shape, array.dtype, memory, 1)
            unaligned[...] = array
            return unaligned
        return array.astype(array.dtype.newbyteorder())


def chunks_of(array: Array, rng: np.random.Generator) -> tuple[int, ...]:
    return tuple(int(rng.integers(1, max(2, extent + 1))) for extent in array.shape)


def mapped(array: Array, place: Path) -> Array:
    """Return a map of a file that has an array, not at its beginning."""
    made: Array = np.memmap(place, array.dtype, "w+", offset=12, shape=array.shape)
    made[...] = array
    return made


def foreign(array: Array) -> Array:
    return array if array.dtype.kind == "V" else array.astype(array.dtype.newbyteorder())


def strided(array: Array) -> Array:
    """Return an array that lies in every second element of another."""
    wide = np.zeros((*array.shape, 2), array.dtype)
    wide[..., 1] = array
    return wide[..., 1]


def zarr_of(array: Array, rng: np.random.Generator) -> Any:
    import zarr  # noqa: PLC0415 - a guest

    if array.dtype.kind == "V" or 0 in array.shape:
        return Slices(array)
    made = zarr.create_array(store={}, shape=array.shape, chunks=chunks_of(array, rng), dtype=array.dtype)
    made[...] = array
    return made


Made = Callable[[Array, Path, np.random.Generator], Any]
SOURCES: dict[str, Made] = {
    "memory": lambda a, _, __: a,
    "strided": lambda a, _, __: strided(a),
    "map": lambda a, place, _: mapped(a, place),
    "foreign map": lambda a, place, _: mapped(foreign(a), place),
    "slices": lambda a, _, __: Slices(a),
    "chunks": lambda a, _, rng: Slices(a, chunks_of(a, rng)),
    "odd": lambda a, _, rng: Odd(a, int(rng.integers(4))),
    "zarr": lambda a, _, rng: zarr_of(a, rng),
}
OUTS: dict[str, Made] = SOURCES | {"none": lambda _, __, ___: None}
OUTS.pop("odd")
OUTS.pop("foreign map")


def run_call(case: Case, rng: np.random.Generator, folder: Path, tally: Tally) -> None:
    """Run a call in pieces, and hold it against the plain call."""
    operands = operands_of(case, "normal", int(rng.integers(1 << 30)))
    whole = convgrad.run(case.op.name, *operands, dtype=case.dtype, **case.attributes)
    into = str(rng.choice(list(OUTS)))
    accumulate = bool(into != "none" and rng.random() < 0.3)
    old = rng.standard_normal(whole.shape).astype(whole.dtype)
    if accumulate:
        whole = old.copy()
        convgrad.run(case.op.name, *operands, dtype=case.dtype, out=whole, accumulate=True, **case.attributes)
    kinds = [str(rng.choice(list(SOURCES))) for _ in operands]
    given = [
        one if port.is_shape else SOURCES[kind](one, folder / str(at), rng)
        for at, (one, port, kind) in enumerate(zip(operands, case.op.operands, kinds, strict=False))
    ]
    out = OUTS[into](old, folder / "out", rng)
    threads = int(rng.integers(1, 3))
    call: dict[str, Any] = {"dtype": case.dtype, "out": out, "accumulate": accumulate, "threads": threads}
    call |= dict(case.attributes)
    memory, pieces = 1, 1
    try:
        scale.plan(case.op.name, *given, memory=1, **call)
    except convgrad.InvalidAttributeError as error:
        least = int(re.findall(r"takes (\d+) bytes", str(error))[0])
        memory = int(least * 2 ** (rng.uniform(0, 4) if rng.random() < 0.5 else 0))
        pieces = scale.plan(case.op.name, *given, memory=memory, **call).pieces
    seen: list[scale.Progress] = []
    got = scale.run(case.op.name, *given, memory=memory, progress=seen.append, **call)
    tally.calls += 1
    tally.kinds.update([f"out {into}", *kinds, "several pieces" if pieces > 1 else "one piece"])
    bits = np.ascontiguousarray(got.array if isinstance(got, Slices) else got[...])
    words = f"{case} of {kinds} into {into}, memory {memory}, {pieces} pieces, {threads} threads"
    if bits.tobytes() != whole.tobytes():
        tally.wrong.append(f"{words}, accumulate {accumulate}")
    if len(seen) != pieces:
        tally.wrong.append(f"{words}: told {len(seen)} times")


def run_calls(chunk: int, calls: int, tally: Tally) -> None:
    """Run the calls of a chunk, which share types and an instruction set."""
    isa, _, operand, output = SHARED[chunk % len(SHARED)]
    rng = np.random.default_rng([18, chunk])
    drawn = [draw(replace(row, batch=BATCHES), rng, MULTIPLY_ADDS, most_elements=ELEMENTS) for row in LAYERS.values()]
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as folder:
        patch.setenv("CONVGRAD_MAX_ISA", isa or HOST[-1])
        for number in range(calls):
            conv = next(drawn[number % len(drawn)])
            case = any_case(conv, rng, FORMATS[operand], FORMATS[output], CONVOLUTIONS)
            try:
                run_call(case, rng, Path(folder), tally)
            except Exception as error:
                tally.wrong.append(f"{case}: {type(error).__name__}: {error}")


def main(arguments: Sequence[str] | None = None) -> int:
    return run_chunks(
        "scale",
        "Compute random calls in pieces, and hold them against plain calls.",
        ("calls", 200),
        CHUNK,
        Tally(),
        run_calls,
        arguments,
    )
