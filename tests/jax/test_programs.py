"""convgrad.jax in processes of their own: on several devices, in many large calls, at the end, without JAX."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.support.children import HANG_S
from tests.support.places import TESTS

CALLS = TESTS / "jax" / "large_calls.py"


def run(*words: object, **environment: str) -> str:
    command = [sys.executable, "-W", "error", *map(str, words)]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=HANG_S, env=os.environ | environment
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


REFUSED = """
import sys
for folder in {folders!r}:
    sys.path.insert(0, folder)
    sys.modules.pop("jax", None)
    try: import convgrad.jax
    except ImportError as error: print(error)
"""


def test_without_jax_and_with_an_old_one_the_error_says_what_is_needed(tmp_path: Path) -> None:
    texts = "raise ImportError('no jax')", "__version__, __version_info__ = '0.9.2', (0, 9, 2)"
    folders = [tmp_path / "none", tmp_path / "old"]
    for folder, text in zip(folders, texts, strict=True):
        folder.mkdir()
        (folder / "jax.py").write_text(text + "\n")
    none, old = run("-c", REFUSED.format(folders=[*map(str, folders)])).splitlines()
    assert "pip install jax" in none
    assert "needs JAX 0.10 or later; got 0.9.2" in old


needs_jax = pytest.mark.skipif(find_spec("jax") is None, reason="needs JAX")


@needs_jax
@pytest.mark.long
def test_devices_agree() -> None:
    run(TESTS / "jax" / "devices.py")


@needs_jax
@pytest.mark.long
@pytest.mark.parametrize("number", [1, 2])
def test_large_calls_do_not_wait_for_each_other(number: int) -> None:
    """On one core, or two, XLA has as many threads."""
    cores = sorted(os.sched_getaffinity(0))[:number]
    begin = f"import os, runpy; os.sched_setaffinity(0, {cores}); "
    assert run("-c", begin + f"runpy.run_path({str(CALLS)!r}, run_name='__main__')").count("500 calls of 100 MB") == 3


FORKED = """
import ctypes, os, threading, time, warnings
from convgrad.jax import frame, gate
inside, leave = threading.Event(), threading.Event()
def handle(_, slot):
    inside.set()
    leave.wait()
    slot[0] = None
before = gate.gate(gate.Answers(handle))
thread = threading.Thread(target=before.entry, args=(ctypes.addressof(frame.Frame()),), daemon=True)
thread.start()
inside.wait()
warnings.simplefilter("ignore")  # of a fork with threads
child = os.fork()
if child == 0:
    before.shut()
    os._exit(0)
end = time.monotonic() + 600  # seconds that only a hang takes
while os.waitpid(child, os.WNOHANG)[0] == 0:
    assert time.monotonic() < end or os.kill(child, 9), "the child waits for threads that it does not have"
    time.sleep(0.01)
leave.set()
thread.join()
assert before.words[1] == 0
print("ended")
"""


@needs_jax
@pytest.mark.long
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_waits_for_no_thread_of_its_parent() -> None:
    assert "ended" in run("-c", FORKED)


CACHED = """
import os, jax, numpy as np
import convgrad, convgrad.jax as cj
from jax import monitoring
jax.config.update("jax_compilation_cache_dir", {folder!r})
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
events = []
monitoring.register_event_listener(lambda event, **_: events.append(event.rsplit("/")[-1]))
src, weights = np.arange(96, dtype=np.float32).reshape(2, 4, 4, 3), np.ones((2, 2, 3, 5), np.float32)
got = jax.jit(lambda *given: cj.convolution(*given, strides=2))(src, weights)
assert np.array_equal(got, convgrad.convolution(src, weights, strides=2))
print(events.count("cache_hits"), "read from disk")
"""


@needs_jax
@pytest.mark.long
def test_a_program_that_is_kept_on_disk_means_the_same_in_another_process(tmp_path: Path) -> None:
    code = CACHED.format(folder=str(tmp_path))
    assert run("-c", code) == "0 read from disk\n"
    assert run("-c", code, CONVGRAD_NUM_THREADS="1") == "1 read from disk\n"


@needs_jax
@pytest.mark.long
def test_a_process_may_end_while_calls_are_outstanding() -> None:
    for _ in range(5):
        assert "20 outstanding" in run(CALLS, "--calls", 20, "--leave")
