"""Recorded runs, and the first module and operator whose output differs between two of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from os import PathLike
from pathlib import Path

from torch.utils._pytree import tree_leaves

from convgrad.errors import FileError, InvalidDataTypeError
from convgrad.torch.fingerprint import digest_of, has_bytes
from convgrad.torch.training.watch import Watcher
from convgrad.words import counted

_UNWRITTEN = frozenset(
    ("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "empty_permuted", "resize_")
)


@dataclass(frozen=True)
class RecordedCall:
    """A call of an operator: its number in the run, its name and place, and the hash of its results."""

    number: int
    operator: str
    place: str
    digest: str


@dataclass(frozen=True)
class Run:
    """The calls of a recorded run.

    Args:
        calls: The calls in order, each with its number, operator, place and hash of its results.
    """

    calls: tuple[RecordedCall, ...]

    def __str__(self) -> str:
        """Return the number of calls, because a run is compared by `first_difference`."""
        return f"a run of {counted(len(self.calls), 'call')}"

    def save(self, path: str | PathLike[str]) -> None:
        """Write the run to a file of JSON lines, for example to compare it with a run on another machine.

        Args:
            path: The path of the file.
        """
        Path(path).write_text("".join(json.dumps(asdict(call)) + "\n" for call in self.calls), "utf-8")


@dataclass(frozen=True)
class Difference:
    """The first call that differs between two runs: it varies, or it reads a tensor that was made before the run.

    Args:
        left: The call in the first run; None if this run ends before the call.
        right: The call in the second run; None if this run ends before the call.
    """

    left: RecordedCall | None
    right: RecordedCall | None

    def __str__(self) -> str:
        """Return the two calls as text."""
        if self.left is None or self.right is None:
            last = self.left or self.right
            assert last is not None
            return f"one run ends before call {last.number}: {last.operator} at {last.place}"
        if self.left.operator != self.right.operator:
            return (
                f"call {self.left.number} is {self.left.operator} at {self.left.place} in one run, and "
                f"{self.right.operator} at {self.right.place} in the other"
            )
        return (
            f"call {self.left.number}, {self.left.operator} at {self.left.place}: "
            f"results {self.left.digest} and {self.right.digest}"
        )


def record(step: Callable[[], object]) -> Run:
    """Run a function, and return the hash of each operator's results, or of the tensors that it changes.

    Args:
        step: A function without arguments, for example a training step.

    Returns:
        A `Run`. ``run.save(path)`` writes it to a file.

    >>> import torch
    >>> x = torch.ones(3)
    >>> [call.operator for call in record(lambda: (x + x).sum()).calls]
    ['aten::add.Tensor', 'aten::sum']
    """
    if not callable(step):
        raise InvalidDataTypeError(f"record: step must be a function without arguments; got {type(step).__name__}")
    calls: list[RecordedCall] = []

    def see(name: str, place: str, results: object, arguments: object) -> None:
        packet = name.partition("::")[2].split(".")[0]
        tensors = [leaf for leaf in tree_leaves(results) if has_bytes(leaf)]
        if not tensors and packet.endswith("_"):  # such as a fused optimizer, which returns nothing
            tensors = [leaf for leaf in tree_leaves(arguments) if has_bytes(leaf)]
        if tensors and packet not in _UNWRITTEN:
            calls.append(RecordedCall(len(calls), name, place, digest_of(tensors)[0][:12]))

    with Watcher(see):
        step()
    return Run(tuple(calls))


def first_difference(run_a: Run | str | PathLike[str], run_b: Run | str | PathLike[str]) -> Difference | None:
    """Return the first operator whose results differ between two recorded runs; None if no results differ.

    Args:
        run_a: A run that `record` returned, or the file of a saved run.
        run_b: The other run.

    Raises:
        FileError: A file does not exist, or is not a saved run.

    >>> import torch
    >>> x = torch.ones(3)
    >>> print(first_difference(record(lambda: x + 1), record(lambda: x + 2)))  # doctest: +ELLIPSIS
    call 0, aten::add.Tensor at <doctest ...: results ... and ...
    """
    left, right = _run(run_a).calls, _run(run_b).calls
    for a, b in zip(left, right, strict=False):
        if a.operator != b.operator or a.digest != b.digest:
            return Difference(a, b)
    shared = min(len(left), len(right))
    if len(left) == len(right):
        return None
    return Difference(*(calls[shared] if len(calls) > shared else None for calls in (left, right)))


def _run(run: Run | str | PathLike[str]) -> Run:
    if isinstance(run, Run):
        return run
    try:
        lines = Path(run).read_text("utf-8").splitlines()
        return Run(tuple(RecordedCall(**json.loads(line)) for line in lines))
    except (OSError, ValueError, TypeError) as error:
        raise FileError(f"first_difference: {run} must be a file of Run.save; got {error}") from error
