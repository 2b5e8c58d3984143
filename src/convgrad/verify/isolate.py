"""Calls of foreign functions in a child process, so that a crash or a hang gives a verdict.

One child process serves many calls. All processes that the functions start end with it.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Mapping
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from types import TracebackType
from typing import Any

import numpy as np

from convgrad.array_types import Array
from convgrad.errors import ConvgradError, UnsupportedError
from convgrad.verify.copies import laid
from convgrad.verify.foreign import Inputs, answer, load
from convgrad.verify.guardian import guarded
from convgrad.verify.verdict import WRONG, Defect, Verdict

CRASHED, HUNG = "crashed", "did not return"
ENDS_WITHIN_S = 5.0  # the time that a child process has to end by itself
LOOKS_EVERY_S = 1.0  # the interval between checks that the child process is alive


class Isolated:
    """A caller of ``module:function`` in a child process, which is restarted after a crash or a hang.

    The function is imported in the child only. ``seconds`` limits the time of a call; None means no limit.
    ``signature`` is as in ``load``.
    """

    def __init__(self, name: str, seconds: float | None = None, signature: str | None = None) -> None:
        self._name, self._seconds, self._signature = name, seconds, signature
        self._child: tuple[BaseProcess, Connection, Connection] | None = None  # with its pipe and its leash
        self._served = 0  # number of calls that this child answered
        self.took_s = 0.0  # time of the last call, without the transfer of arrays

    def __enter__(self) -> Isolated:
        """Start the child, so that a function that cannot be loaded is refused before any work."""
        self._start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._end(at_once=kind is not None)

    def answer(self, operator: str, inputs: Inputs, attributes: Mapping[str, object]) -> Array | Verdict:
        """Return the function's answer, as ``foreign.answer`` does, or the verdict on a crash or a hang.

        A call that crashes after other calls is repeated in a new child, because an earlier call may have damaged the
        memory.
        """
        child, pipe, _ = self._child or self._start()
        started = time.perf_counter()
        try:
            pipe.send((operator, [_packed(value) for value in inputs], dict(attributes)))
            while not pipe.poll(LOOKS_EVERY_S if self._seconds is None else min(self._seconds, LOOKS_EVERY_S)):
                self.took_s = time.perf_counter() - started
                if self._seconds is not None and self.took_s >= self._seconds:
                    self._end(at_once=True)
                    said = f"it {HUNG} in {self._seconds:g} seconds"
                    return Verdict(outcome=WRONG, reason=said, found=(Defect(HUNG),))
                if not child.is_alive() and not pipe.poll():  # without a guardian, the child's own processes may
                    raise EOFError  # keep the pipe open
            self.took_s, result = pipe.recv()
        except (EOFError, OSError):
            self.took_s = time.perf_counter() - started
            served, how = self._served, self._end(at_once=False)
            again = self.answer(operator, inputs, attributes) if served else None
            if isinstance(again, Verdict) and again.defects == (CRASHED,):
                return again
            behind = f" after {served} other calls, but not in a new process: one of these calls damages memory"
            return Verdict(outcome=WRONG, reason=f"it {how}{behind * (served > 0)}", found=(Defect(CRASHED),))
        self._served += 1
        answered: Array | Verdict = _unpacked(result)
        return answered

    def _start(self) -> tuple[BaseProcess, Connection, Connection]:
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        held, leash = context.Pipe(duplex=False)
        child = context.Process(target=_guarded, args=(theirs, held, self._name, self._signature), daemon=True)
        child.start()
        theirs.close()
        held.close()
        self._child, self._served = (child, ours, leash), 0
        try:
            refused: ConvgradError | None = ours.recv()
        except EOFError:
            how = self._end(at_once=False)
            refused = UnsupportedError(f"{self._name} cannot be loaded: importing it {how}")
        except BaseException:
            self._end(at_once=True)
            raise
        if refused is not None:
            self._end(at_once=False)
            raise refused
        return self._child

    def _end(self, *, at_once: bool) -> str:
        """End the child process and those that it started, and return a phrase with its exit code or signal.

        Unless ``at_once`` is true, the child has some seconds to end by itself.
        """
        if self._child is None:
            return ""
        (child, pipe, leash), self._child = self._child, None
        pipe.close()
        if not at_once:
            child.join(ENDS_WITHIN_S)
        leash.close()
        child.join(ENDS_WITHIN_S if hasattr(os, "fork") else 0)
        if child.exitcode is None:
            child.kill()
            child.join()
        return _how(child.exitcode or 0)


def _how(code: int) -> str:
    if code >= 0:
        return f"ended its process with exit code {code}"
    names = {number.value: number.name for number in signal.Signals}
    return f"crashed with {names.get(-code, f'signal {-code}')}"


def _guarded(pipe: Connection, leash: Connection, name: str, signature: str | None) -> None:
    guarded(lambda: _serve(pipe, name, signature), leash, pipe)


def _serve(pipe: Connection, name: str, signature: str | None) -> None:
    """Run in the child process: answer calls until the pipe closes, with standard output sent to standard error."""
    os.dup2(2, 1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C and ends this process
    try:
        function = load(name, signature)
    except ConvgradError as error:
        pipe.send(error)
        return
    pipe.send(None)
    while True:
        try:
            operator, packed, attributes = pipe.recv()
        except EOFError:
            return
        inputs = tuple(_unpacked(value) for value in packed)
        started = time.perf_counter()
        result = answer(function, operator, inputs, attributes)
        pipe.send((time.perf_counter() - started, _packed(result)))


class _Lying(tuple[Any, ...]):
    """An array as memory, offset and strides, because pickling the array itself would lose its strides."""

    __slots__ = ()


def _packed(value: object) -> object:
    if not isinstance(value, np.ndarray):
        return value
    memory, offset = laid(value)
    return _Lying((value.shape, value.dtype, memory, offset, value.strides))


def _unpacked(value: object) -> Any:
    return np.ndarray(*value) if isinstance(value, _Lying) else value
