"""Functions to verify, as somebody else might have written them: right ones, and one for each way to go wrong."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

import convgrad

Array = np.ndarray


def right(operator: str, *inputs: Any, **attributes: Any) -> Array:
    return convgrad.run(operator, *inputs, **attributes)


def wrong_weights(operator: str, *inputs: Any, **attributes: Any) -> Array:
    """Zeros for a weight gradient, else right."""
    result = right(operator, *inputs, **attributes)
    return np.zeros_like(result) if operator.endswith("BackwardWeights") else result


def raises(operator: str, *inputs: Any, **attributes: Any) -> Array:
    raise ZeroDivisionError("no kernel")


class Panic(BaseException):
    """As the panics of Rust extensions."""


class Unsaid(Exception):
    """An error whose message cannot be read."""

    def __str__(self) -> str:
        raise RuntimeError


def panics(operator: str, *inputs: Any, **attributes: Any) -> Array:
    raise Panic("no kernel")


def raises_what_cannot_be_said(operator: str, *inputs: Any, **attributes: Any) -> Array:
    raise Unsaid


def leaves(operator: str, *inputs: Any, **attributes: Any) -> Array:
    sys.exit(3)


def biases(operator: str, *inputs: Any, **attributes: Any) -> Array:
    """A bias gradient that is wrong, and no other operator."""
    if operator != "BiasAddBackward":
        raise NotImplementedError
    return right(operator, *inputs, **attributes) + 1


def interrupted(operator: str, *inputs: Any, **attributes: Any) -> Array:
    """Right, until Ctrl-C is pressed during a bias gradient."""
    if operator == "BiasAddBackward":
        raise KeyboardInterrupt
    return right(operator, *inputs, **attributes)


def terminated(operator: str, *inputs: Any, **attributes: Any) -> Array:
    """Right, until the job is ended, twice, during a bias gradient."""
    if operator == "BiasAddBackward":
        try:
            signal.raise_signal(signal.SIGTERM)
        finally:
            signal.raise_signal(signal.SIGTERM)
    return right(operator, *inputs, **attributes)


def wide(operator: str, *inputs: Any, **attributes: Any) -> Array:
    """In f32, whatever is asked for."""
    return right(operator, *inputs, **{**attributes, "dtype": "f32"})


def integers(operator: str, *inputs: Any, **attributes: Any) -> Array:
    return right(operator, *inputs, **attributes).astype(np.int64)


def writes(operator: str, *inputs: Any, **attributes: Any) -> Array:
    result = right(operator, *inputs, **attributes)
    inputs[0][...] = -0.0 if not inputs[0].any() else 0
    return result


def prints_or_raises(operator: str, *inputs: Any, **attributes: Any) -> Array:
    """Prints by Python's and by C's way, and is right; but has no kernel for a bias."""
    print("a line of Python's")
    os.write(1, b"a line of C's\n")
    return raises(operator) if operator.startswith("Bias") else right(operator, *inputs, **attributes)


def neighbours(operator: str, *inputs: Any, **attributes: Any) -> Array:
    """Reads operands as if their elements were neighbours, as kernels do that look at no strides."""
    flat = [np.ndarray(a.shape, a.dtype, a.base, 0) if isinstance(a, np.ndarray) else a for a in inputs]
    return right(operator, *flat, **attributes)


def segfault(operator: str, *inputs: Any, **attributes: Any) -> None:
    ctypes.string_at(0)


def weights_only(operator: str, *inputs: Any, **attributes: Any) -> Any:
    """Serve weight gradients in XIO; refuse forwards by an error, and others by a value."""
    if operator == "Convolution":
        raise NotImplementedError("no forward")
    return right(operator, *inputs, **attributes) if operator.endswith("Weights") else NotImplemented


def segfault_once(operator: str, *inputs: Any, **attributes: Any) -> Array:
    if operator.endswith("BackwardWeights"):
        ctypes.string_at(0)
    return right(operator, *inputs, **attributes)


def damages_memory(operator: str, *inputs: Any, **attributes: Any) -> Array:
    """Answers, so that the next call in this process crashes."""
    if _DAMAGED:
        ctypes.string_at(0)
    _DAMAGED.append(True)
    return right(operator, *inputs, **attributes)


_DAMAGED: list[bool] = []


def ends(operator: str, *inputs: Any, **attributes: Any) -> None:
    os._exit(7)


def ends_with_a_child(operator: str, *inputs: Any, **attributes: Any) -> None:
    """End while a process of its own, which has every pipe of its parent's, lives on for a while."""
    if os.fork():
        os._exit(7)
    time.sleep(5)
    os._exit(0)


def hangs(operator: str, *inputs: Any, **attributes: Any) -> None:
    time.sleep(600)


number = 3


def _sleeps(kind: str) -> None:
    """Start a process that stays, and note it in the folder ``started``."""
    if os.fork():
        return
    if kind in ("session", "orphan"):
        os.setsid()
        if kind == "orphan" and os.fork():
            os._exit(0)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    Path("started", str(os.getpid())).touch()
    if kind == "program":
        os.execvp("sleep", ["sleep", "3600"])
    if kind == "stopped":
        os.kill(os.getpid(), signal.SIGSTOP)
    time.sleep(3600)
    os._exit(0)


def forks(operator: str, *inputs: Any, **attributes: Any) -> Array:
    """Right, and leaves a process without an ``exec`` behind, which this process's SIGTERM ends."""
    (ours, theirs), parent = os.pipe(), os.getpid()
    forked = os.fork()
    if not forked:
        os.write(theirs, b"started")
        while os.getppid() == parent:
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(60)
    os.read(ours, 7)
    return right(operator, *inputs, **attributes)


def starts_processes(operator: str, *inputs: Any, **attributes: Any) -> Array:
    """Right, and leaves five processes behind."""
    Path("started").mkdir(exist_ok=True)
    kinds = ("child", "stopped", "program", "session", "orphan")
    for kind in kinds:
        _sleeps(kind)
    while len(os.listdir("started")) < len(kinds):
        time.sleep(0.001)
    return right(operator, *inputs, **attributes) if inputs else np.zeros(())


def starts_processes_and_raises(operator: str, *inputs: Any, **attributes: Any) -> Array:
    return starts_processes(operator, *inputs, **attributes) / (1 // 0)


def starts_processes_and_crashes(operator: str, *inputs: Any, **attributes: Any) -> Array:
    starts_processes(operator, *inputs, **attributes)
    os.kill(os.getpid(), signal.SIGSEGV)
    return inputs[0]


def starts_processes_and_exits(operator: str, *inputs: Any, **attributes: Any) -> Array:
    starts_processes(operator, *inputs, **attributes)
    os._exit(7)


def starts_processes_and_hangs(operator: str, *inputs: Any, **attributes: Any) -> Array:
    starts_processes(operator, *inputs, **attributes)
    time.sleep(3600)
    return inputs[0]


def its_session(operator: str, *inputs: Any, **attributes: Any) -> Array:
    """Whether it leads a session, how much standard input has, and whether it has no terminal."""
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY)
    except OSError:
        terminal = -1
    return np.array([os.getsid(0) == os.getpid(), len(os.read(0, 1)), terminal < 0], np.float32)


_calls: list[str] = []


def forgets(operator: str, *inputs: Any, **attributes: Any) -> Array:
    """Right, but every fourth call is off in the first element, and every sixth raises an error."""
    _calls.append(operator)
    result = right(operator, *inputs, **attributes)
    if len(_calls) % 6 == 0:
        raise MemoryError
    result.reshape(-1)[0] += 100 * (len(_calls) % 4 == 0)
    return result
