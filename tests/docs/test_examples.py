"""The examples train; the step that one records is what the operators compute."""

import re
import runpy
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from convgrad.engines import height
from convgrad.graph import Execution, read, to_json
from convgrad.spec.exact_result import evaluate
from convgrad.verify.compare import compare
from tests.support.places import EXAMPLES
from tests.support.tiers import tiers

STEP = EXAMPLES / "digits_step.json"
OPS = {
    "Convolution": 3,
    "ConvTranspose": 1,
    "ConvolutionBackwardData": 2,
    "ConvTransposeBackwardData": 1,
    "ConvolutionBackwardWeights": 3,
    "ConvTransposeBackwardWeights": 1,
    "BiasAddBackward": 4,
    "ReLU": 2,
    "ReLUBackward": 2,
    "Add": 1,
}


def run(name: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run an example; a warning is an error."""
    kind = "error::RuntimeWarning" if name == "train_digits.py" else "error"  # scikit-learn has warnings of its own
    command = [sys.executable, "-W", kind, EXAMPLES / name, *arguments]
    return subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)


def printed(name: str, *arguments: object) -> str:
    done = run(name, *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def accuracy(text):
    return float(re.search(r"^held-out accuracy (\S+):", text, re.MULTILINE)[1])


def check_step(path):
    """A recorded step is a graph of these ops; every result keeps its bound, and the recorded ones are exact."""
    graph = read(path)
    assert Counter(op.kind for op in graph.ops) == OPS
    assert to_json(graph) == path.read_text()
    tensors = path.with_suffix(".npz")
    assert path.stat().st_size + tensors.stat().st_size <= 300 * 1024
    with np.load(tensors) as file:
        step = {int(key): array for key, array in file.items()}
    assert all(array.any() for array in step.values())
    recorded = {tensor: step.pop(tensor) for tensor in graph.outputs}
    executions: list[Execution] = []
    graph.run(step, observe=executions.append)
    assert len(executions) == sum(OPS.values()) - 5
    for execution in executions:
        prepared, output = execution.prepared, execution.op.outputs[0].id
        problem, got = prepared.problem, prepared.canonical_output(execution.result)
        answer = evaluate(problem, prepared.operands)
        assert compare(got, answer, problem, height(problem)).ok, execution.op.name
        if output in recorded:
            claimed = recorded.pop(output)  # exact, but another BLAS may sum otherwise
            np.testing.assert_array_max_ulp(prepared.canonical_output(claimed), answer.rounded(problem))
            assert compare(prepared.canonical_output(claimed), answer, problem, answer.terms).ok, execution.op.name
    assert not recorded


@pytest.mark.long
def test_two_epochs_train_and_record(tmp_path):
    text = printed("train_digits.py", "--epochs", 2, "--record", tmp_path / "step")
    assert accuracy(text) > 0.9
    assert len(re.findall(r"^epoch .* loss .* reconstruction .* held-out .* s$", text, re.MULTILINE)) == 2
    check_step(tmp_path / "step.json")


def test_committed_step():
    check_step(STEP)


@pytest.mark.long
def test_plot(tmp_path):
    printed("train_digits.py", "--epochs", 1, "--plot", tmp_path / "digits.png")
    assert (tmp_path / "digits.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.long
def test_default_run_reaches_97_percent():
    assert accuracy(printed("train_digits.py")) >= 0.97


def left(monkeypatch, name, *arguments):
    """Run an example that ends with an exit code or a message, in this process; return what it ends with."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.setattr(sys, "argv", [name, *map(str, arguments)])
    with pytest.raises(SystemExit) as caught:
        runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    return caught.value.code


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--epochs", 0), "--epochs and --batch begin at 1"),
        (("--record", Path("no", "such", "place")), "is not a directory"),
        (("--record", STEP), "give --force to replace it"),
    ],
)
def test_refusals_come_before_training(monkeypatch, capsys, arguments, message):
    assert left(monkeypatch, "train_digits.py", *arguments) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert message in printed.err


@pytest.mark.parametrize(("module", "arguments"), [("sklearn", ()), ("matplotlib", ("--plot", "digits.png"))])
def test_missing_package_is_one_line(monkeypatch, capsys, module, arguments):
    for loaded in [name for name in sys.modules if name.startswith(f"{module}.")] + [module]:
        monkeypatch.setitem(sys.modules, loaded, None)  # to import it is an ImportError
    line = left(monkeypatch, "train_digits.py", *arguments)
    assert line == f"{module}.{'figure' if arguments else 'datasets'} is missing: pip install scikit-learn matplotlib"
    assert capsys.readouterr() == ("", "")


def test_gradients_to_the_third_order_are_those_that_differences_confirm():
    assert re.findall(r"^derivative (\d)", printed("autodiff.py"), re.MULTILINE) == ["1", "2", "3"]


@tiers("seed", [0], long=[3])
def test_the_gradient_penalty_falls_by_derivatives_that_differences_confirm(seed):
    text = printed("gradient_penalty.py", "--seed", seed)
    first, *_, last = map(float, re.findall(r"penalty ([\d.]+)$", text, re.MULTILINE))
    assert last < first / 1000


def test_a_gradient_of_files_is_interrupted_and_resumed_to_the_same_bits():
    text = printed("larger_than_memory.py", "--images", 24)
    left, pieces = re.search(r"^resumed: (\d+) of (\d+) pieces were not done again$", text, re.MULTILINE).groups()
    assert int(left) == int(pieces) // 2 > 0


@pytest.mark.long
def test_samples_are_clipped():
    pytest.importorskip("torch")
    clipped, samples = map(
        int, re.fullmatch(r"(\d+) of (\d+) samples are clipped\n", printed("clipped_gradients.py")).groups()
    )
    assert 0 < clipped < samples


@pytest.mark.long
def test_processes_train_to_one_hash():
    assert len({line.rsplit(maxsplit=1)[-1] for line in printed("data_parallel.py").splitlines()}) == 1
