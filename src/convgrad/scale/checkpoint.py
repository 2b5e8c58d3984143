"""Checkpoints: files with the finished part of a call. An interrupted call resumes from this part, with equal bits."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from convgrad.array_types import Array
from convgrad.disk import check_new
from convgrad.errors import FileError
from convgrad.functional.partials import SUMMED
from convgrad.scale import durable, head
from convgrad.scale.finished import FinishedPart, checksum
from convgrad.scale.identity import Words, difference, identity_of
from convgrad.spec.problem import Problem
from convgrad.spec.rules import refuse

EVERY_S = 10.0  # the time between saves; a killed process loses the work since the last save
LINE = b"convgrad checkpoint 2\n"  # change the number if the order of sums changes, too


@dataclass(frozen=True)
class State:
    """The finished part of a call: the first ``images``, and the first ``rows`` of the next image.

    For a weight or bias gradient, ``sums`` are the sums in ``Partials`` of these images, and ``started`` are the sums
    in ``Rows`` of these rows. For a forward or data gradient, ``out`` contains the finished results.
    """

    images: int = 0
    rows: int = 0
    sums: tuple[Array, ...] = ()
    started: tuple[Array, ...] = ()

    def __str__(self) -> str:
        return f"{self.images} images" + f" and {self.rows} rows of the next" * bool(self.rows)


@dataclass(frozen=True)
class Checkpoint:
    """The checkpoint file of a call. ``identity`` are texts that identify the call, and ``out`` is its result."""

    path: Path
    problem: Problem
    identity: Words
    out: object = None
    parts: list[FinishedPart] = field(default_factory=list)  # the finished parts of out that the file lists

    def load(self) -> State | None:
        """Return the saved state, or None if there is no file. Raise FileError if the file is of another call."""
        check_new(self.path, force=True)
        if not self.path.exists():
            return None
        said, flat = durable.read(self.path, LINE)
        try:
            if differs := difference(head.identity_in(said), self.identity):
                raise self._refusal(f"is of another call: {differs}")
            place = head.place_in(said, self.problem)
            of_sums = head.sums_in(said, self.problem, place, [array.size for array in flat])
            parts = head.parts_in(said, self.problem, place, self._is_in_out)
        except head.Misfit as error:
            raise self._refusal(f"has values that no call saves: {error}") from None
        arrays = [array.reshape(self.problem.output_shape) for array in flat]
        self._compare(parts)
        self.parts[:] = parts
        return State(*place, tuple(arrays[:of_sums]), tuple(arrays[of_sums:]))

    def save(self, state: State) -> None:
        """Flush ``out`` to the disk, then write the state, with a checksum of the results since the last save."""
        if flush := getattr(self.out, "flush", None):
            flush()
        place = state.images, state.rows
        self.parts[:] = [part for part in self.parts if part.end <= place]
        last = self.parts[-1].end if self.parts else (0, 0)
        if self._is_in_out and last < place:
            self.parts.append(FinishedPart(*place, checksum(self.problem, self.out, last, place)))
        says = head.written(self.identity, place, (len(state.sums), len(state.started)), self.parts)
        durable.write(self.path, LINE, says, [*state.sums, *state.started])

    def remove(self) -> None:
        """Remove the file if it exists."""
        self.path.unlink(missing_ok=True)

    @contextmanager
    def kept(self) -> Iterator[Callable[[State], None]]:
        """Yield a function that saves a state if the last save was ``EVERY_S`` ago.

        After an error, the last state is saved. After success, the file is removed.
        """
        unsaved: State | None = None  # None after a save, so that the sums of a saved state are freed
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
                    error.add_note(f"{self.path} could not store the finished part: {another}")
                    raise error from None
            if unsaved is not None or self.path.exists():
                error.add_note(f"{self.path} has the finished part: the same call resumes from it")
            raise
        self.remove()

    @property
    def _is_in_out(self) -> bool:
        """Whether ``out`` contains finished results: the problem is not a sum, and ``out`` is not empty."""
        return self.out is not None and self.problem.solves_for not in SUMMED and 0 not in self.problem.output_shape

    def _compare(self, parts: Sequence[FinishedPart]) -> None:
        """Raise FileError if ``out`` does not contain all finished results."""
        begin = (0, 0)
        for part in parts:
            if checksum(self.problem, self.out, begin, part.end) != part.crc:
                says = f"says that {State(*parts[-1].end)} are finished in out"
                last = part.images - (not part.rows)
                raise self._refusal(f"{says}, which has different contents in images {begin[0]} to {last}")
            begin = part.end

    def _refusal(self, what: str) -> FileError:
        return FileError(f"{self.path}: the checkpoint {what}; remove the file to begin anew")


def checkpoint_of(problem: Problem, path: object, inputs: Sequence[object], out: object) -> Checkpoint:
    """Return the checkpoint of a call in the file ``path``, or raise the error of rule K1."""
    if not isinstance(path, str | os.PathLike):  # K1
        refuse("K1", problem.operator, f"checkpoint must be the path of a file; got {path!r:.200}")
    if problem.solves_for not in SUMMED:
        where = "because it stores the finished parts; out can be a map of a file"
        if out is None:  # K1
            refuse("K1", problem.operator, f"a checkpoint must come with out, {where}; got no out")
        if problem.accumulate:  # K1
            must = "a checkpoint must come with an out that is not added to: a repeated piece would be added twice"
            refuse("K1", problem.operator, f"{must}; got accumulate=True")
    return Checkpoint(Path(os.fspath(path)), problem, identity_of(problem, inputs, out), out)
