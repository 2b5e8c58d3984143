"""The command line: as users run it, where it matters that it is a program, else in this process."""

from __future__ import annotations

import json
import os
import pty
import re
import resource
import shlex
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import convgrad
from convgrad import files
from convgrad.cli import main
from convgrad.verify.exact import exact
from tests.support.children import HANG_S

COMMAND = str(Path(sysconfig.get_path("scripts")) / "convgrad")
Run = Callable[..., tuple[int, str, str]]
LAYER = ["--attr", "strides=2,2", "--attr", "dilations=1,1", "--attr", "auto_pad=same_upper"]
MADE_UP = ["run", "ConvolutionBackwardWeights", "--shapes", "2x8x8x4", "2x4x4x6", "3x3x4x6", *LAYER]


def program(*arguments: str, expect: int = 0, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    done = subprocess.run([COMMAND, *arguments], capture_output=True, text=True, cwd=cwd, timeout=HANG_S, check=False)
    assert done.returncode == expect, done.stdout + done.stderr
    return done


def test_version_help_and_no_command(capsys: pytest.CaptureFixture[str]) -> None:
    as_module = subprocess.run([sys.executable, "-m", "convgrad", "--version"], stdout=-1, text=True, check=True)
    assert program("--version").stdout == as_module.stdout == f"convgrad {convgrad.__version__}\n"
    with pytest.raises(SystemExit, match="0"):
        main(["run", "--help"])
    assert "--expect" in capsys.readouterr().out
    assert main([]) == 2
    assert "usage" in capsys.readouterr().out


def test_help_is_quick() -> None:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert "exit codes" in program("--help").stdout
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert after.ru_utime - before.ru_utime < 2  # seconds of processor time; 0.1 is usual


def test_made_up_operands(said: Run) -> None:
    code, text, _ = said(*MADE_UP, "--check", "oracle")
    assert code == 0
    for words in (r"src +2x8x8x4 +integers, seed 0", r"pads_end +1,1", r"diff_weights +3x3x4x6", "time", "largest"):
        assert re.search(words, text), words
    assert "against oracle  ok: 216 of 216 equal" in text


def test_json_says_the_same(said: Run) -> None:
    report = json.loads(said(*MADE_UP, "--check", "oracle", "--fill", "normal", "--seed", "3", "--json")[1])
    assert report["attributes"]["pads_begin"] == [0, 0]
    assert report["operands"]["diff_dst"] == {"shape": [2, 4, 4, 6], "from": "normal, seed 3"}
    assert report["result"] == {"name": "diff_weights", "shape": [3, 3, 4, 6], "type": "f32"}
    assert report["checks"]["oracle"]["ok"]
    assert 0 < report["checks"]["oracle"]["share_of_bound"] < 1
    assert report["largest"] > abs(report["mean"])


@pytest.fixture
def layer(tmp_path: Path) -> Path:
    """Files of a strided layer: operands and the exact gradient."""
    rng = np.random.default_rng(5)
    src = rng.standard_normal((2, 8, 8, 4), np.float32)
    diff_dst = rng.standard_normal((2, 4, 4, 6), np.float32)
    attributes = {"strides": [2, 2], "dilations": [1, 1], "auto_pad": "same_upper", "weights_shape": [3, 3, 4, 6]}
    expected = exact("ConvolutionBackwardWeights", src, diff_dst, **attributes)
    np.savez(tmp_path / "layer.npz", src=src, diff_dst=diff_dst, exact=expected)
    np.save(tmp_path / "src.npy", src)
    return tmp_path


RUN_FILES = ["run", "ConvolutionBackwardWeights", "src.npy", "layer.npz:diff_dst", *LAYER]
RUN_FILES += ["--attr", "weights_shape=3,3,4,6"]


def test_files_in_and_out(layer: Path) -> None:
    text = program(*RUN_FILES, "-o", "dw.npy", "--expect", "layer.npz:exact", "--check", "oracle", cwd=layer).stdout
    assert "layer.npz:exact against oracle  ok: 216 of 216 equal" in text
    assert "against oracle  ok" in text
    expected = np.load(layer / "layer.npz")["exact"]
    assert np.allclose(np.load(layer / "dw.npy"), expected, rtol=1e-5, atol=1e-5)


def test_bf16_goes_through_safetensors(said: Run) -> None:
    assert said(*MADE_UP, "--type", "bf16", "-o", "dw.safetensors:w")[0] == 0
    assert files.read("dw.safetensors:w").dtype == ml_dtypes.bfloat16
    assert said(*MADE_UP, "--type", "bf16", "--dtype", "f32", "-o", "dw.npz")[0] == 0


def test_problem_lines(said: Run) -> None:
    code, text, _ = said("run", "BWD_WB bf16 NCX g2mb2ic4ih8oc8kh3ph1", "--check", "oracle")
    assert code == 0
    assert text.startswith("ConvolutionBackwardWeights bf16\n")
    assert "\nBiasAddBackward bf16\n" in text
    assert text.count("against oracle  ok") == 2


FAILURES = {
    "operator": ([MADE_UP[0], MADE_UP[1][:-1], *MADE_UP[2:]], 2, "Did you mean ConvolutionBackwardWeights"),
    "shape": ([*MADE_UP[:4], "2x4x5x6", *MADE_UP[5:]], 2, "[G6]"),
    "attribute": ([*MADE_UP, "--attr", "stride=2"], 2, "Did you mean strides=[2, 2]?"),
    "attribute value": ([*MADE_UP, "--attr", "groups=two"], 2, "groups must be an integer; got 'two'"),
    "negative pads": ([*MADE_UP, "--attr", "pads_end=0,-1"], 2, "Negative pads"),
    "line without quotes": (["run", "BWD_W", "f32", "NXC", "ic3ih5oc3kh3"], 2, "put it in quotes"),
    "seed": ([*MADE_UP, "--seed", "-1"], 2, "a seed is a non-negative integer"),
    "two results": (["run", "BWD_WB f32 NXC ic4ih5oc4oh5kh3ph1", "-o", "a.npy"], 2, "makes two results"),
    "key of npy": ([*MADE_UP, "-o", "a.npy:k"], 3, "no keys"),
    "not writable": ([*MADE_UP, "-o", "/proc/a.npy"], 3, "cannot be written"),
    "operand as attribute": ([*MADE_UP, "--attr", "src=1"], 2, "Pass src as operand number 1"),
    "padding": ([*MADE_UP, "--attr", "padding=same"], 2, "Did you mean auto_pad='same_upper'?"),
    "type": ([*MADE_UP, "--dtype", "int8"], 2, "dtype must be one of f32, bf16, f16, f64, f8_e4m3, f8_e5m2"),
    "threads": ([*MADE_UP, "--threads", "0"], 2, "threads must be a positive integer"),
    "notation": (["run", "BWD_W f32 NXC ic3oc3"], 2, "at least one spatial axis"),
    "no operands": (["run", "BiasAddBackward"], 2, "give either input files or --shapes"),
    "both": (["run", "BiasAddBackward", "a.npy", "--shapes", "2x2"], 2, "give either"),
    "fill of files": (["run", "BiasAddBackward", "a.npy", "--seed", "1"], 2, "go with --shapes"),
    "attribute syntax": ([*MADE_UP, "--attr", "groups"], 2, "NAME=VALUE"),
    "attribute twice": ([*MADE_UP, "--attr", "strides=1,1"], 2, "strides twice"),
    "shape syntax": (["run", "BiasAddBackward", "--shapes", "2xtwo"], 2, "8x56x56x64"),
    "line with shapes": (["run", "BWD_W f32 NXC ic3ih5oc3kh3", "--shapes", "1x1"], 2, "stands alone"),
    "option": (["run", "BiasAddBackward", "--chekc"], 2, "unrecognized"),
}


@pytest.mark.parametrize("name", FAILURES)
def test_failures_say_what_to_do(name: str, said: Run) -> None:
    arguments, code, message = FAILURES[name]
    found, _, err = said(*arguments)
    assert (found, message in err) == (code, True)
    first, *others = err.splitlines()
    assert first.startswith("convgrad: ")
    assert len(others) == (code != 3)  # an error of a file is not repeated
    last = (others or ["try convgrad run --help"])[0]
    if last != "try convgrad run --help":
        assert last.startswith("reproduce: convgrad run ")
        again, _, err = said(*shlex.split(last)[2:])
        assert (again, message in err) == (code, True)


def test_the_ignored_output_padding_warns(said: Run) -> None:
    shapes = ["--shapes", "1x2x1", "1x1x1", "1x3x1", "--attr", "strides=2", "--attr", "dilations=1"]
    err = said("run", "ConvolutionBackwardData", *shapes, "--attr", "output_padding=1")[2]
    assert err.startswith("convgrad: warning: ConvolutionBackwardData: output_padding [1] is ignored")


def test_info_is_complete_and_impersonal(said: Run) -> None:
    text = said("info")[1]
    for part in ("convgrad", "python", "numpy", "ml_dtypes", "blas", "system", "cpu", "cores", "engine"):
        assert re.search(rf"^{part} ", text, re.MULTILINE), part
    assert str(Path.home()) not in text
    assert sys.prefix not in text
    assert json.loads(said("info", "--json")[1])["convgrad"] == convgrad.__version__


LONG_WORK = "FWD_D f32 NXC mb1ic64iw40000oc64ow40000kw127pw63"


def test_progress_on_a_terminal_and_interruption() -> None:
    """On a terminal long work shows itself; Ctrl-C ends it with exit code 130 and no traceback."""
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [COMMAND, "run", LONG_WORK, "--check", "oracle"], stdout=slave, stderr=subprocess.PIPE, text=True
    )
    os.close(slave)
    shown = b""
    while b" s" not in shown:
        shown += os.read(master, 1000)
    assert re.search(rb"(Convolution|oracle):", shown)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=HANG_S)
    os.close(master)
    assert process.returncode == 130, errors
    assert "interrupted" in errors
    assert "Traceback" not in errors


def test_import_adds_little_to_numpy(tmp_path: Path) -> None:
    code = "from time import process_time as now; a = now(); import numpy; b = now(); import convgrad; c = now()"
    code += "; import sys; assert 'convgrad.functional.in_words' not in sys.modules"
    code += "; assert not any(name.startswith(('convgrad.plan.gemm', 'convgrad.engines.llvm')) for name in sys.modules)"
    code += "; print((c - b) / (b - a))"
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    env["PYTHONPYCACHEPREFIX"] = str(tmp_path)  # the first import compiles the modules, as pip does when it installs
    of_numpy_s = [float(subprocess.check_output([sys.executable, "-c", code], env=env)) for _ in range(3)]
    assert min(of_numpy_s) < 1  # what convgrad adds, in times of NumPy's own import on this processor; 0.5 is usual


@pytest.mark.usefixtures("layer")
def test_options_may_stand_anywhere(said: Run) -> None:
    operator, src, diff_dst, *rest = RUN_FILES[1:]
    arguments = ["run", *rest[:-2], operator, src, *rest[-2:], diff_dst]
    assert "diff_weights" in said(*arguments)[1]


@pytest.mark.parametrize("text", ["2,2", "[2, 2]", "2x2", "(2,2)", "2 2"])
def test_lists_are_written_in_any_usual_way(text: str, said: Run) -> None:
    arguments = [a for a in MADE_UP if a != "strides=2,2"]
    arguments.insert(arguments.index("--attr") + 1, f"strides={text}")
    assert json.loads(said(*arguments, "--json")[1])["attributes"]["strides"] == [2, 2]


@pytest.mark.parametrize("key", ["file", "allow_pickle", "a b"])
def test_any_key_of_npz(tmp_path: Path, key: str) -> None:
    assert main([*MADE_UP, "-o", f"{tmp_path}/a.npz:{key}"]) == 0
    assert files.read(f"{tmp_path}/a.npz:{key}").shape == (3, 3, 4, 6)


@pytest.mark.every(2)
@pytest.mark.parametrize("where", ["| true", ">&-"])
def test_the_file_is_written_where_the_report_cannot_be(tmp_path: Path, where: str) -> None:
    words = shlex.join([COMMAND, *MADE_UP, "-o", str(tmp_path / "a.npy")])
    done = subprocess.run(f"{words} {where}", shell=True, capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr
    assert (tmp_path / "a.npy").is_file()


def test_json_has_no_bare_nan(said: Run) -> None:
    np.save("nan.npy", np.array([[np.nan, 1], [np.inf, 2]], np.float32))
    code, out, err = said("run", "BiasAddBackward", "nan.npy", "--json", "--check", "oracle")
    assert (code, err) == (0, "")
    report = json.loads(out, parse_constant=pytest.fail)
    assert (report["largest"], report["mean"]) == ("nan", "nan")


@pytest.mark.long
def test_wrong_results_of_long_sums_do_not_pass(said: Run) -> None:
    """Integers tell by themselves; of normal numbers a 0 lies inside the bound of any order, and its errors tell."""
    line = "BWD_W f32 NXC mb64ic4ih56oc4oh56kh3ph1"
    np.save("zeros.npy", np.zeros((3, 3, 4, 4), np.float32))
    judge = ["run", line, "--expect", "zeros.npy", "--fill"]
    code, out, _ = said(*judge, "integers")
    assert (code, "WRONG" in out) == (1, True)
    code, out, _ = said(*judge, "normal")
    assert code == 1
    for words in ("DEGRADED", "result all 0", "a 0 would pass at 144"):
        assert words in out, words
