"""oneDNN's problem files, where they are at hand: all roles, types and layouts, bit for bit on integers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

import convgrad
from convgrad.descriptor import Descriptor, read_descriptor
from convgrad.formats import FORMATS
from convgrad.functional.call import prepare, problem_from_shapes
from convgrad.notation import Line, calls
from convgrad.spec import exact_result
from convgrad.spec.layouts import axis_order
from convgrad.verify.fill import fill
from tests.support.helpers import assert_same_bits
from tests.support.places import SHARED_CASES
from tests.support.tiers import tiers

FILES = {"shapes_resnet_50": 2, "shapes_regression_small_spatial": None, "shapes_1d_wavenet": None}  # file: batch
LAYOUTS = {"NXC": "XIO", "NCX": "OIX"}
THREADS = {"FWD_D": (None,), "BWD_D": (None,), "BWD_W": (1, 2, 3, 5, 8)}  # by direction
TYPES = ("f32", "bf16", "f16")
RUNS = len(LAYOUTS) * sum(map(len, THREADS.values()))  # of one problem in a type

EXAMPLES = """
g1mb2ic3ih32oc8oh16kh7sh2ph3n"stem"  mb2ic8ih16oc16oh16kh1ph0n"1x1"  g4mb3ic8ih9oc16oh9kh3ph1n"grouped"
g8mb2ic8ih11oc8oh6kh3sh2ph1n"depthwise"
mb1ic4oc4_ih3oh3kh7ph4n"wide_pads"     # most taps see padding alone
mb2_ic4oc6_iw133ow130kw4pw0n"1-D"  mb1_ic2oc3_id5od5kd3pd1n"3-D"  mb2ic3ih33oc5oh17kh2sh2n"remainder"
"""


def read_descriptors(text: str) -> list[Descriptor]:
    """Read a file of descriptors: separated by white space, with comments from # to the end of the line."""
    words = [word for line in text.splitlines() for word in line.partition("#")[0].split()]
    return [read_descriptor(word) for word in words]


def run_all(d: Descriptor, types: Sequence[str] = TYPES) -> int:
    """Run one problem in all roles, layouts and threads, and some types; return how many results equal the oracle."""
    equal = 0
    for direction, counts in THREADS.items():
        for type_name in types:
            expected = None
            for data_format, weights_format in LAYOUTS.items():
                line = Line(False, direction, FORMATS[type_name], data_format, weights_format, d)
                (call,) = calls(line)
                made = _made(call.operator, call.shapes, dict(call.attributes), type_name)
                operands = (*made, *call.shapes[2:])
                prepared = prepare(call.operator, operands, call.attributes)
                if expected is None:
                    answer = exact_result.evaluate(prepared.problem, prepared.operands)
                    expected = answer.rounded(prepared.problem)
                for threads in counts:
                    got = convgrad.run(call.operator, *operands, threads=threads, **call.attributes)
                    words = (direction, type_name, data_format, threads, d)
                    assert_same_bits(prepared.canonical_output(got), expected, words)
                    equal += 1
    return equal


def _made(operator: str, shapes: tuple[tuple[int, ...], ...], attributes: dict, type_name: str) -> list[np.ndarray]:
    """Make the same canonical integers for either layout."""
    _, problem = problem_from_shapes(operator, shapes, attributes, FORMATS[type_name])
    orders = [axis_order(layout, len(shape)) for layout, shape in zip(problem.layouts, shapes[:2], strict=False)]
    plain = replace(problem, layouts=("NCX", "NCX", "NCX"))
    canonical = [tuple(shape[axis] for axis in order) for shape, order in zip(shapes, orders, strict=False)]
    made = fill(plain, canonical, "integers", 0)
    return [np.ascontiguousarray(a.transpose(np.argsort(o))) for a, o in zip(made, orders, strict=True)]


@tiers("d, type_name", read_descriptors(EXAMPLES), TYPES, every=23)
def test_examples(d: Descriptor, type_name: str) -> None:
    assert run_all(d, [type_name]) == RUNS


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", FILES)
def test_onednn_files(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    if not (SHARED_CASES / name).is_file():
        pytest.skip(f"{name} of oneDNN's benchdnn inputs is not at hand")
    problems = read_descriptors((SHARED_CASES / name).read_text())
    batch = FILES[name]
    run = len(TYPES) * RUNS * len(problems)
    equal = sum(run_all(replace(d, batch=batch) if batch else d) for d in problems)
    with capsys.disabled():
        print(f"\n{name}: {len(problems)} problems, {run} runs, {equal} equal bit for bit")
    assert equal == run > 0
