"""What is finished of a call in pieces, in a file: a call that was left goes on from there, to the same bits."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from convgrad.disk import check_new
from convgrad.errors import FileError
from convgrad.functional.partials import SUMMED
from convgrad.scale import durable
from convgrad.scale.identity import Words, difference, identity_of
from convgrad.spec.problem import Problem
from convgrad.spec.rules import refuse
from convgrad.spec.slabs import positions, slab_of

Array = NDArray[Any]

EVERY_S = 10.0  # what a process that is killed may have done in vain
LINE = b"convgrad checkpoint 1\n"  # to be changed with the order of sums, too: those of two orders cannot be joined
SAMPLES = 8  # at how many of its images out is looked at, about


@dataclass(frozen=True)
class State:
    """What is finished: the first ``images``, and the first ``rows`` of the image behind them.

    Of a weight or bias gradient ``sums`` are those that ``Partials`` of these images have, and ``started`` those of
    ``Rows`` of these rows. What is finished of a forward or data gradient lies in ``out``.
    """

    images: int = 0
    rows: int = 0
    sums: tuple[Array, ...] = ()
    started: tuple[Array, ...] = ()

    def __str__(self) -> str:
        return f"{self.images} images" + f" and {self.rows} rows of the next" * bool(self.rows)


@dataclass(frozen=True)
class Checkpoint:
    """The file of a call's state: of a problem, of the words that tell the call from others, of its ``out``."""

    path: Path
    problem: Problem
    identity: Words
    out: Any = None

    def load(self) -> State | None:
        """Return the state that was saved, None where there is none yet; refuse that of another call."""
        check_new(self.path, force=True)
        if not self.path.exists():
            return None
        head, flat = durable.read(self.path, LINE)
        if differs := difference(head["identity"], self.identity):
            raise self._refusal(f"is of another call: {differs}")
        arrays = [array.reshape(self.problem.output_shape) for array in flat]
        of_sums, _ = head["sums"]
        state = State(head["images"], head["rows"], tuple(arrays[:of_sums]), tuple(arrays[of_sums:]))
        if head["out"] != self._sample(state):
            raise self._refusal(f"says that {state} are finished in out, which holds something else there")
        return state

    def save(self, state: State) -> None:
        """Write to the disk what out has, then the state."""
        if flush := getattr(self.out, "flush", None):
            flush()
        head = {"identity": dict(self.identity), "images": state.images, "rows": state.rows}
        head |= {"sums": [len(state.sums), len(state.started)], "out": self._sample(state)}
        durable.write(self.path, LINE, head, [*state.sums, *state.started])

    def remove(self) -> None:
        """Remove the file, where there is one."""
        self.path.unlink(missing_ok=True)

    @contextmanager
    def kept(self) -> Iterator[Callable[[State], None]]:
        """Give who is told of each state: it is saved now and then, and where the call is left; at the end removed."""
        unsaved: State | None = None  # and no other: what was saved may have sums that nobody else holds any more
        saved_s = time.monotonic()

        def keep(state: State) -> None:
            nonlocal unsaved, saved_s
            unsaved = state
            if time.monotonic() - saved_s >= EVERY_S:
                self.save(state)
                unsaved, saved_s = None, time.monotonic()

        try:
            yield keep
        except BaseException as error:
            if unsaved is not None:
                try:
                    self.save(unsaved)
                except Exception as another:
                    error.add_note(f"{self.path} could not take what is finished: {another}")
                    raise error from None
            if unsaved is not None or self.path.exists():
                error.add_note(f"{self.path} has what is finished: the same call goes on from there")
            raise
        self.remove()

    def _sample(self, state: State) -> str:
        """Return a hash of some of what is finished in ``out``: one that was made anew holds something else there."""
        extents = positions(self.problem)
        if self.out is None or self.problem.solves_for in SUMMED or 0 in self.problem.output_shape:
            return ""
        middle = [extent // 2 for extent in extents]
        looked = [(n, middle) for n in range(0, state.images, max(1, state.images // SAMPLES))]
        looked += [(state.images, [state.rows - 1, *middle[1:]])] * bool(state.rows)
        return hashlib.sha256(b"".join(self._values(*place) for place in looked)).hexdigest()

    def _values(self, image: int, position: list[int]) -> bytes:
        box = tuple(range(at, at + 1) for at in position)
        region = slab_of(self.problem, range(image, image + 1), box).writes
        return np.asarray(self.out[region]).tobytes()

    def _refusal(self, what: str) -> FileError:
        return FileError(f"{self.path}: the checkpoint {what}; remove the file to begin anew")


def checkpoint_of(problem: Problem, path: object, inputs: Sequence[Any], out: Any) -> Checkpoint:
    """Return the checkpoint of a call at a path, by rule K1."""
    if not isinstance(path, str | os.PathLike):  # K1
        refuse("K1", problem.operator, f"checkpoint must be the path of a file; got {path!r}")
    if problem.solves_for not in SUMMED:
        where = "as what is finished lies there; a map of a file will do"
        if out is None:  # K1
            refuse("K1", problem.operator, f"a checkpoint must come with out, {where}; got no out")
        if problem.accumulate:  # K1
            must = "a checkpoint must come with an out that is not added to, as what is done again would be added twice"
            refuse("K1", problem.operator, f"{must}; got accumulate=True")
    return Checkpoint(Path(os.fspath(path)), problem, identity_of(problem, inputs, out), out)
