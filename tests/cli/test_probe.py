"""``convgrad probe``: what it prints of a function beside it, and what it refuses."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from convgrad.cli import main

ADDERS = """
import numpy as np
threads = 1
def set_threads(number):
    global threads
    threads = number
def gradient(operator, src, diff_dst, shape, **attributes):
    products = (src[..., :1] * diff_dst).reshape(-1, diff_dst.shape[-1])
    parts = [np.add.accumulate(part)[-1] for part in np.array_split(products, min(threads, 2))]
    sums = np.add.accumulate(np.stack(parts))[-1]
    return np.broadcast_to(sums, shape).copy()
"""


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "adders.py").write_text(ADDERS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path[:])
    line = "BWD_W f32 NXC mb1ic2iw40oc40ow40kw1pw0"
    threads = ["--threads", "1,2,3", "--set-threads", "adders:set_threads"]
    assert main(["probe", "adders:gradient", line, *threads]) == 0
    said = capsys.readouterr().out
    assert said.splitlines()[0] == "1 thread: ConvolutionBackwardWeights f32, 40 terms: one chain"
    assert "2, 3 threads: ConvolutionBackwardWeights f32, 40 terms: 2 blocks, joined one after the other" in said
    assert "declare --height 20,20" in said
    assert said.splitlines()[-1] == "the order CHANGES with threads"
    assert main(["probe", "adders:gradient", line, "--threads", "2,3", *threads[2:]]) == 0
    assert "does not change" in capsys.readouterr().out
    assert main(["probe", "convgrad:run", "--role", "dst", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["blocks"] == [256, 256, 64]
    (tmp_path / "cases.txt").write_text(f'{line}\n--dir=BWD_W --stag=axb --dt=s8,f32 mb1ic2iw30oc20ow30kw1pw0n"thirty"')
    assert main(["probe", "adders:gradient", "cases.txt"]) == 0
    out, err = capsys.readouterr()
    assert [row.split(":")[0] for row in out.splitlines() if row.startswith("Conv")] == [
        f"ConvolutionBackwardWeights f32, {terms} terms" for terms in (40, 30)
    ]
    assert "thirty_BWD_W_f32_NXC_XIO" in out
    assert "is left out: type s8 is not supported" in err
    assert main(["probe", "adders:gradient", "none.txt"]) == 3


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["convgrad:run", "--threads", "2"], "go together"),
        (["convgrad:run", "BWD_W f32 NXC mb1ic2iw4oc2ow4kw1pw0", "--role", "dst"], "does not go with CASE"),
        (["convgrad:run", "BWD_W f33 NXC mb1ic2iw4oc2ow4kw1pw0"], "the problem:1:7: expected one of f32"),
        (["convgrad:no_such"], "cannot be loaded"),
        (["convgrad"], "module:function"),
    ],
)
def test_the_command_refuses(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["probe", *words]) == 2
    assert said in capsys.readouterr().err


C_GRADIENT = """
void gradient(const float *src, const float *diff_dst, float *out, int N, int C, int O, int H, int W) {
    for (int c = 0; c < C; c++)
        for (int o = 0; o < O; o++) {
            float sum = 0;
            for (int p = 0; p < N * H * W; p++) sum += src[p * C + c] * diff_dst[p * O + o];
            out[c * O + o] = sum;
        }
}
"""


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_a_function_of_a_c_library(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "gradient.c").write_text(C_GRADIENT)
    subprocess.run(["cc", "-shared", "-fPIC", tmp_path / "gradient.c", "-o", tmp_path / "gradient.so"], check=True)
    function, line = f"{tmp_path}/gradient.so:gradient", "BWD_W f32 NXC mb1ic2ih5iw8oc40oh5ow8kh1kw1ph0pw0"
    signature = ["--signature", "f32 NXC src diff_dst out N C O H W"]
    for isolate in ([], ["--no-isolate"]):
        assert main(["probe", function, line, *signature, *isolate]) == 0
        assert "40 terms: one chain" in capsys.readouterr().out
    for words in ([function, line], ["convgrad:run", line, *signature]):
        assert main(["probe", *words]) == 2
        assert "LIBRARY:FUNCTION and --signature go together" in capsys.readouterr().err


def test_a_function_in_a_process_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "isolated_adders.py").write_text(f"import os\n{ADDERS}\ndef crash(*_, **__):\n    os.abort()\n")
    monkeypatch.chdir(tmp_path)
    line = "BWD_W f32 NXC mb1ic2iw40oc40ow40kw1pw0"
    assert main(["probe", "isolated_adders:gradient", line, "--isolate"]) == 0
    assert "40 terms: one chain" in capsys.readouterr().out
    assert "isolated_adders" not in sys.modules
    assert main(["probe", "isolated_adders:crash", line, "--isolate"]) == 2
    assert "it crashed with SIGABRT" in capsys.readouterr().err
    setter = ["--threads", "1", "--set-threads", "isolated_adders:set_threads"]
    assert main(["probe", "isolated_adders:gradient", line, "--isolate", *setter]) == 2
