"""Where executable memory is refused, gradients of every class are NumPy's, right, after one warning."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from tests.support.children import HANG_S, run_program
from tests.support.classes import NAMES
from tests.support.engine_helpers import HOST
from tests.support.places import ROOT

QUICK, LONG = 5 * len(NAMES), 200 * len(NAMES)  # each class in every type, and in every pair of types
LATE = len(NAMES) // 3  # problems after a refusal, of a class each

pytestmark = [
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="asks Linux to refuse executable memory"),
    pytest.mark.skipif(not HOST, reason="no generated kernels run here"),
]


def child(*arguments: str) -> dict[str, Any]:
    *_, last = run_program("tests.engines.refused", *arguments)
    told: dict[str, Any] = json.loads(last)
    if not told["refused"]:
        pytest.skip("this kernel cannot refuse executable memory")
    return told


@pytest.mark.parametrize("count", [QUICK, pytest.param(LONG, marks=pytest.mark.long)])
def test_every_class_by_numpy_with_one_warning(count: int) -> None:
    told = child(str(count))
    assert told["wrong"] == told["refusals"] == []
    assert told["problems"] == count
    assert told["engines"] == {name: ["numpy"] for name in NAMES}
    (warning,) = told["warnings"]
    assert "convgrad computes with NumPy only" in warning
    assert "executable memory is refused" in warning


def test_refused_once_kernels_have_run() -> None:
    """Results do not change within a process without a word: new kernels are refused, those that are there run."""
    told = child(str(LATE), "LATE")
    assert told["wrong"] == []
    assert told["refusals"]
    assert told["problems"] + len(told["refusals"]) == LATE + 1
    assert all("executable memory is refused by now" in message for message in told["refusals"])


# What NumPy does to a large temporary: it walks the stack, as an exception in C++ does
WALK = "import numpy; one = numpy.ones(100_000); assert (one + numpy.abs(one)).sum() == 200_000; print('walked')"
CALL = "convgrad.convolution_backward_weights(x, x, (3, 3, 64, 64), pads_begin=1, pads_end=1, threads={})"


@pytest.mark.every(2)
@pytest.mark.parametrize("kernels_before", [True, False])
def test_the_stack_can_be_walked_after_a_refusal(kernels_before: bool) -> None:
    """Nothing stays registered of what was refused: of the probe, or of what threads look for work with."""
    lines = [
        "import warnings; warnings.simplefilter('ignore')",
        "import numpy, convgrad",
        "from tests.engines import refused",
        "x = numpy.ones((16, 28, 28, 64), numpy.float32)",
        CALL.format(1) if kernels_before else "",
        "print(refused.refuse())",
        CALL.format(2),
        WALK,
    ]
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)],
        cwd=ROOT, env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True, text=True, timeout=HANG_S, check=False,
    )  # fmt: skip
    if done.stdout.startswith("False"):
        pytest.skip("this kernel cannot refuse executable memory")
    assert (done.returncode, done.stdout.split()) == (0, ["True", "walked"]), done.stderr
