"""The interpreter's end with threads at work, calls while it ends, and threads with small stacks."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest

from tests.support.children import HANG_S
from tests.support.tiers import tiers

SET_UP = """
import atexit, gc, sys, threading, time
import numpy as np
import convgrad

def gradient(batch, channels, threads):
    x = np.broadcast_to(np.float32(1), (batch, 56, 56, channels))
    shape = 3, 3, channels, channels
    return convgrad.convolution_backward_weights(x, x, shape, auto_pad="same_upper", threads=threads)

class Late:
    def __init__(self):
        self.itself = self  # collected when the interpreter ends, not before

    def __del__(self):
        late()
"""
AT_WORK = """
def again():
    while True:
        gradient({batch}, 128, 2)

gradient({batch}, 128, 2)
threading.Thread(target=again, daemon=True).start()
time.sleep({wait})
"""
COMPILING = """
def again():
    for channels in range(1, 100):
        gradient(1, channels, 1)

threading.Thread(target=again, daemon=True).start()
time.sleep({wait})
"""
LATE = """
def late():
    print(sys.is_finalizing(), gradient({batch}, 64, 2)[1, 1, 0, 0] == {batch} * 56 * 56)

{before}
{when}
"""
SMALL_STACK = """
def call():
    print(gradient(2, 24, 2)[1, 1, 0, 0] == 2 * 56 * 56)

threading.stack_size({stack_kib} << 10)
{how}
assert threading.stack_size() == {stack_kib} << 10
"""
ON_A_THREAD = "thread = threading.Thread(target=call); thread.start(); thread.join()"


def python(code: str, timeout: float = HANG_S) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "-c", SET_UP + code], capture_output=True, text=True, timeout=timeout, check=False
    )
    return done.returncode, done.stdout, done.stderr


DAEMONS: dict[str, Callable[[int], str]] = {
    "computes": lambda at: AT_WORK.format(batch=4 << at % 3, wait=0.02 * (at % 5)),
    "compiles": lambda at: COMPILING.format(wait=0.2 + 0.3 * (at % 17) / 17),
}


@pytest.mark.parametrize("name", DAEMONS)
@tiers("count", [1], long=[200])
def test_the_interpreter_ends_while_a_daemon_is_at_work(count: int, name: str) -> None:
    """What threads write to lives as long as they, and LLVM is not taken down: the end waits for the kernel."""
    assert [python(DAEMONS[name](at)) for at in range(count)] == [(0, "", "")] * count


@tiers("batch, before", [1, 256], ["", "gradient(1, 64, 2)"], every=4)
def test_a_call_while_the_interpreter_ends(batch: int, before: str) -> None:
    """No thread of the pool is alive then, and none can be started."""
    assert python(LATE.format(batch=batch, before=before, when="Late()")) == (0, "True True\n", "")


@tiers("count, before", [1, 20], ["", "gradient(1, 64, 2)"], every=4)
def test_a_call_at_exit(before: str, count: int) -> None:
    """LLVM's binding, first loaded there, does not hear that the interpreter ends."""
    for _ in range(count):
        assert python(LATE.format(batch=1, before=before, when="atexit.register(late)")) == (0, "False True\n", "")


CALLING = {"ours": "call()", "theirs": ON_A_THREAD, "both": f"{ON_A_THREAD}; call()"}


@tiers("stack_kib, whose", [32, 40, 48], list(CALLING), every=11)
def test_small_stacks(stack_kib: int, whose: str) -> None:
    """Threads of ours have their own size; LLVM and the interpreter's compiler never run on somebody else's."""
    how = CALLING[whose]
    right = "True\n" * (1 + how.count("; call"))
    assert python(SMALL_STACK.format(stack_kib=stack_kib, how=how)) == (0, right, "")
