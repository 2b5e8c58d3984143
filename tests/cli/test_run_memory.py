"""``convgrad run --memory``: files in pieces on the command line, the same bits, interrupted and gone on with."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from convgrad import files
from convgrad.cli import main
from convgrad.cli.progress import ProgressLine
from tests.support.children import HANG_S

SAME = ["--attr", "strides=1,1", "--attr", "dilations=1,1", "--attr", "auto_pad=same_upper"]
F32, BF16 = np.float32, ml_dtypes.bfloat16


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of operands: maps of every kind of file; and the present one."""
    rng = np.random.default_rng(1)
    src, diff_dst = (rng.standard_normal((9, 20, 20, channels)).astype(F32) for channels in (3, 5))
    weights = rng.standard_normal((3, 3, 3, 5)).astype(F32)
    np.save(tmp_path / "src.npy", src.astype(">f4"))
    np.savez(tmp_path / "others.npz", diff_dst=diff_dst, weights=weights, shape=np.array([3, 3, 3, 5]))
    np.savez_compressed(tmp_path / "packed.npz", src)
    low = {"src": src.astype(BF16), "weights": weights.astype(BF16)}
    files.write_all(str(tmp_path / "low.safetensors"), low)
    monkeypatch.chdir(tmp_path)
    return tmp_path


RUNS = {
    "weights": ["ConvolutionBackwardWeights", "src.npy", "others.npz:diff_dst", "others.npz:shape", *SAME],
    "forward": ["Convolution", "src.npy", "others.npz:weights", *SAME],
    "bf16": ["Convolution", "low.safetensors:src", "low.safetensors:weights", *SAME],
}


MEMORY = {"weights": "60kB", "forward": "12kB", "bf16": "9000"}


@pytest.mark.parametrize(("name", "ending"), [("weights", ".npz"), ("forward", ".npy"), ("bf16", ".safetensors:dst")])
def test_pieces_write_the_same_file(name: str, ending: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place, (file, _, key) = f"pieces{ending}", ending.partition(":")
    assert main(["run", *RUNS[name], "-o", f"whole{ending}"]) == 0
    whole = capsys.readouterr().out
    assert main(["run", *RUNS[name], "--memory", MEMORY[name], "-o", place, "--threads", "1"]) == 0
    text = capsys.readouterr().out
    assert files.read(place).tobytes() == files.read(f"whole{ending}").tobytes()
    assert re.search(r"^  pieces +\d+; \d.* kB read, \d.* [kMG]B/s, .* (us|ms|s) waited for$", text, re.MULTILINE)
    for line in ("largest", "mean", "engine", "pads_end"):
        assert re.findall(rf"^  {line} .*", text, re.MULTILINE) == re.findall(rf"^  {line} .*", whole, re.MULTILINE)
    assert main(["run", *RUNS[name], "--memory", MEMORY[name], "-o", place]) == 3
    assert "give --force" in capsys.readouterr().err
    assert sorted(path.name for path in folder.iterdir() if "pieces" in path.name) == [f"pieces{file}"], key


def interrupted_after_3(self: ProgressLine, label: str) -> None:
    """Interrupt after three pieces, as Ctrl-C does."""
    if " 3 of " in label:
        raise KeyboardInterrupt


@pytest.mark.parametrize(("name", "output"), [("weights", "out.npz"), ("forward", "out.npy")])
def test_interrupted_and_gone_on_with(
    name: str, output: str, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ["run", *RUNS[name], "--memory", MEMORY[name], "-o", output, "--checkpoint", "kept", "--threads", "1"]
    assert main(["run", *RUNS[name], "-o", f"whole-{output}"]) == 0
    with monkeypatch.context() as patch:
        patch.setattr(ProgressLine, "relabel", interrupted_after_3)
        assert main(command) == 130
    assert capsys.readouterr().err.splitlines() == [
        "convgrad: interrupted",
        "kept has the finished part: the same call resumes from it",
    ]
    left = {"kept", "out.npy.unfinished"} if name == "forward" else {"kept"}
    assert {path.name for path in folder.iterdir()} >= left
    assert not (folder / output).exists()
    assert main([*command, "--json"]) == 0
    pieces = json.loads(capsys.readouterr().out)["pieces"]
    assert pieces["resumed"] == 3
    assert pieces["number"] > 3
    assert files.read(output).tobytes() == files.read(f"whole-{output}").tobytes()
    assert not {path.name for path in folder.iterdir()} & left


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGINT])
def test_only_a_checkpoint_is_left(
    end: signal.Signals, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ProgressLine, "relabel", lambda *_: signal.raise_signal(end))
    before, there = signal.getsignal(signal.SIGTERM), set(folder.iterdir())
    command = ["run", *RUNS["forward"], "--memory", "12kB", "-o", "out.npy", "--threads", "1"]
    assert main(command) == 130
    assert capsys.readouterr().err == "convgrad: interrupted\n"
    assert set(folder.iterdir()) == there
    assert main([*command, "--checkpoint", "kept"]) == 130
    assert {path.name for path in set(folder.iterdir()) - there} == {"kept", "out.npy.unfinished"}
    assert signal.getsignal(signal.SIGTERM) == before


@pytest.mark.parametrize("shape", [["--attr", "output_shape=20,20"], ["extents.npy"]])
def test_spatial_extents_alone_are_a_shape_as_of_any_run(
    shape: list[str], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.save("extents.npy", np.array([20, 20]))
    np.save("data.npy", np.ones((9, 20, 20, 5), F32))
    command = ["run", "ConvolutionBackpropData-1", "data.npy", "others.npz:weights", *shape, *SAME]
    assert main([*command, "-o", "whole.npy"]) == 0
    assert main([*command, "-o", "pieces.npy", "--memory", "20kB"]) == 0
    (number,) = re.findall(r"^  pieces +(\d+);", capsys.readouterr().out, re.MULTILINE)
    assert int(number) > 1
    assert files.read("pieces.npy").tobytes() == files.read("whole.npy").tobytes()


REFUSED: dict[str, tuple[list[str], int, str]] = {
    "what is made up": (["BWD_W f32 NXC mb2ic4ih8oc6oh8kh3ph1"], 2, "--memory goes with files to read"),
    "a check": ([*RUNS["weights"], "--check", "oracle"], 2, "--check does not go with --memory: it reads all operands"),
    "an expectation": ([*RUNS["weights"], "--expect", "src.npy"], 2, "--expect does not go with --memory"),
    "an accuracy": ([*RUNS["weights"], "--max-error", "8"], 2, "--max-error does not go with --memory"),
    "an activation": ([*RUNS["forward"], "--activation", "relu"], 2, "--activation does not go with --memory"),
    "a limit": ([*RUNS["weights"], "--limit", "memory_bytes=9"], 2, "--limit does not go with --memory"),
    "a graph": (["step.json"], 2, "memory cannot go with it"),
    "a wrong unit": ([*RUNS["weights"], "--memory", "1parsec"], 2, "memory must be a positive number of bytes"),
    "too little": ([*RUNS["weights"], "--memory", "100"], 2, "memory must hold a piece of "),
    "compressed": (["BiasAddBackward", "packed.npz"], 3, "packed.npz: must have the same bytes in its file"),
    "no attributes": (RUNS["weights"][:4], 2, "strides"),
    "a checkpoint and no file": (
        [*RUNS["forward"], "--checkpoint", "kept"],
        2,
        "--checkpoint of a forward pass or data gradient goes with -o",
    ),
    "a checkpoint at the result's place": (
        [*RUNS["forward"], "--checkpoint", "./a.npy", "-o", "a.npy"],
        2,
        "--checkpoint and -o must name two files",
    ),
    "a checkpoint that is an operand": (
        [*RUNS["forward"], "--checkpoint", "src.npy", "-o", "a.npy"],
        3,
        "src.npy: must begin with 'convgrad checkpoint 2",
    ),
    "an archive": ([*RUNS["forward"], "-o", "a.npz"], 3, "only to .npy or .safetensors; got .npz"),
    "bf16 as .npy": ([*RUNS["bf16"], "-o", "a.npy"], 3, "bf16 cannot be kept in .npy files"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_before_any_work(name: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments, code, words = REFUSED[name]
    before = sorted(folder.iterdir())
    assert main(["run", "--memory", "100MB", *arguments]) == code
    assert words in capsys.readouterr().err
    assert sorted(folder.iterdir()) == before


def test_a_checkpoint_alone_has_nothing_to_go_on_from(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", *RUNS["weights"], "--checkpoint", "kept"]) == 2
    assert "--checkpoint goes with --memory" in capsys.readouterr().err


def test_what_fails_is_reproduced_with_its_options(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", *RUNS["weights"], "--memory", "100", "--checkpoint", "kept"]) == 2
    assert "--memory 100 --checkpoint kept" in capsys.readouterr().err


@pytest.mark.long
@pytest.mark.parametrize("name", ["weights", "forward"])
def test_a_real_interruption_and_a_kill(name: str, folder: Path) -> None:
    """Of a child that is told to end by a signal after a while, again and again, until it has come through."""
    rng = np.random.default_rng(2)
    np.save("src.npy", rng.standard_normal((60, 60, 60, 32)).astype(F32))
    others: dict[str, Any] = {"diff_dst": rng.standard_normal((60, 60, 60, 32)).astype(F32), "shape": [3, 3, 32, 32]}
    np.savez("others.npz", weights=rng.standard_normal((3, 3, 32, 32)).astype(F32), **others)
    every = "import sys; from convgrad.scale import checkpoint; checkpoint.EVERY_S = 0.0;"
    every += "from convgrad.cli import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", every, "run", *RUNS[name], "--threads", "1"]
    assert subprocess.run([*command, "-o", "whole.npy"], check=False, capture_output=True).returncode == 0
    codes = []
    for end in (signal.SIGINT, signal.SIGKILL) * 10 + (None,):
        child = subprocess.Popen(
            [*command, "--memory", "3MB", "--checkpoint", "kept", "-o", "out.npy"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        if end is not None:
            begin = time.monotonic()
            while not (folder / "kept").exists() and child.poll() is None and time.monotonic() - begin < HANG_S:
                time.sleep(0.01)
            time.sleep(0.05)
            child.send_signal(end)
        child.communicate()
        codes.append(child.returncode)
        if child.returncode == 0:
            break
    assert codes[-1] == 0
    assert {130, -signal.SIGKILL} <= set(codes)
    assert np.load("out.npy").tobytes() == np.load("whole.npy").tobytes()
    assert not (folder / "kept").exists()
