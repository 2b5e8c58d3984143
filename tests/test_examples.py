"""The example trains, and the step it records is what the operators compute."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import convgrad
from convgrad.engines.numpy import height
from convgrad.functional.call import prepare
from convgrad.spec.oracle import evaluate
from convgrad.verify.compare import compare_recorded

EXAMPLES = Path(__file__).parents[1] / "examples"
RECORDED = EXAMPLES / "digits_step.npz"
SHAPES = {
    "src": (16, 8, 8, 16),
    "diff_dst": (16, 4, 4, 32),
    "weights": (3, 3, 16, 32),
    "diff_weights": (3, 3, 16, 32),
    "diff_src": (16, 8, 8, 16),
}
ATTRIBUTES = {"strides": (2, 2), "dilations": (1, 1), "auto_pad": "same_upper"}


def train(*arguments):
    """Run the example; a warning about its arithmetic is an error."""
    command = [sys.executable, "-W", "error::RuntimeWarning", EXAMPLES / "train_digits.py", *arguments]
    return subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)


def accuracy(run):
    assert run.returncode == 0, run.stderr
    return float(re.search(r"^held-out accuracy (\S+):", run.stdout, re.MULTILINE)[1])


def check_step(path):
    assert path.stat().st_size <= 300 * 1024
    with np.load(path) as file:
        step = dict(file)
    assert {name: array.shape for name, array in step.items()} == SHAPES
    assert {array.dtype for array in step.values()} == {np.dtype(np.float32)}
    assert all(array.any() for array in step.values())
    src, diff_dst, weights = step["src"], step["diff_dst"], step["weights"]
    check_gradient("diff_weights", step, "ConvolutionBackwardWeights", (src, diff_dst, weights.shape))
    check_gradient("diff_src", step, "ConvolutionBackwardData", (diff_dst, weights, src.shape))


def check_gradient(name, step, operator, operands):
    functions = {"diff_weights": convgrad.convolution_backward_weights, "diff_src": convgrad.convolution_backward_data}
    prepared = prepare(operator, operands, ATTRIBUTES)
    answer = evaluate(prepared.problem, prepared.operands)
    recorded = prepared.canonical_output(step[name])
    np.testing.assert_array_max_ulp(recorded, answer.rounded(prepared.problem))  # another BLAS may sum otherwise
    got = prepared.canonical_output(functions[name](*operands, **ATTRIBUTES))
    verdict = compare_recorded(got, recorded, answer, prepared.problem, height(prepared.problem))
    assert verdict.ok, str(verdict)


def test_two_epochs_train_and_record(tmp_path):
    run = train("--epochs", 2, "--record", tmp_path / "step.npz")
    assert accuracy(run) > 0.9
    assert len(re.findall(r"^epoch .* loss .* reconstruction .* held-out .* s$", run.stdout, re.MULTILINE)) == 2
    check_step(tmp_path / "step.npz")


def test_committed_step():
    check_step(RECORDED)


def test_plot(tmp_path):
    accuracy(train("--epochs", 1, "--plot", tmp_path / "digits.png"))
    assert (tmp_path / "digits.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--epochs", 0), "--epochs and --batch begin at 1"),
        (("--record", Path("no", "such", "place.npz")), "is not a directory"),
    ],
)
def test_refusals_come_before_training(arguments, message):
    run = train(*arguments)
    assert (run.returncode, run.stdout) == (2, "")
    assert message in run.stderr


@pytest.mark.parametrize(
    ("module", "extra", "arguments"), [("sklearn", "examples", ()), ("matplotlib", "plot", ("--plot", "digits.png"))]
)
def test_missing_package_is_one_line(tmp_path, monkeypatch, module, extra, arguments):
    (tmp_path / f"{module}.py").write_text(f"raise ImportError('no {module}')\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    run = train(*arguments)
    assert run.returncode == 1
    assert run.stderr.count("\n") == 1
    assert f"pip install 'convgrad[{extra}]'" in run.stderr


@pytest.mark.long
def test_default_run_reaches_97_percent():
    assert accuracy(train()) >= 0.97
