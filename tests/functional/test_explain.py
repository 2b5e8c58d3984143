"""How a call would be computed, without computing it; threads by context; NumPy where code may not be made."""

from __future__ import annotations

import threading
from itertools import product
from typing import Any

import numpy as np
import pytest

import convgrad
from convgrad import engines
from convgrad.cli import main
from convgrad.cli.bench import suites
from convgrad.engines.llvm import isas
from convgrad.engines.settings import count
from convgrad.formats import FORMATS
from convgrad.functional.explain import Explanation
from convgrad.notation import DIRECTIONS, problem
from convgrad.spec.geometry import Axis, Conv
from convgrad.spec.layouts import DATA
from convgrad.spec.work import needed_flops
from tests.net import problems_of
from tests.support.tiers import tiers

LAYER = {"strides": [1, 1], "dilations": [1, 1], "auto_pad": "same_upper", "weights_shape": [3, 3, 64, 64]}
SHAPES = ((8, 56, 56, 64), (8, 56, 56, 64))


def explained(**options: object) -> Explanation:
    return convgrad.explain("ConvolutionBackwardWeights", *SHAPES, **options, **LAYER)  # type: ignore[arg-type]


def test_a_weight_gradient_has_a_plan() -> None:
    one = explained(threads=2)
    assert one.plan is not None
    assert one.height == one.plan.rounding_depth == 244
    assert 0 < one.scratch_bytes <= 64 << 20
    text = str(one)
    for words in (
        "1.85 GFLOP, 1.806 without padding",
        "12.99 MB",
        "generated",
        "h = 244",
        "tile",
        "scratch",
        "slower dense",
    ):
        assert words in text


def test_the_scratch_announced_is_the_scratch_used() -> None:
    one = explained(threads=1)
    src, diff_dst = (np.ones(shape, np.float32) for shape in SHAPES)
    convgrad.convolution_backward_weights(src, diff_dst, (3, 3, 64, 64), auto_pad="same_upper", threads=1)
    from convgrad.engines.llvm.execute import _kept  # noqa: PLC0415

    call = list(_kept.values())[-1]
    assert one.plan is not None
    assert call.plan.spec == one.plan.spec
    assert call.schedule.scratch_bytes == one.scratch_bytes


def test_a_piece_of_a_long_row_is_packed_alone() -> None:
    """Blocks at the end of one row and the beginning of the next span both rows: they are never packed together."""
    layer = {"strides": [1, 1], "dilations": [1, 1], "weights_shape": [1, 3, 4, 4]}
    shapes = ((1, 2, 400_000, 4), (1, 2, 399_998, 4))
    one = convgrad.explain("ConvolutionBackwardWeights", *shapes, operand_type="f16", threads=1, **layer)
    assert one.scratch_bytes < 2 << 20


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("BWD_W bf16 NXC mb8ic64ih56oc64oh56kh3ph1", ["ConvolutionBackwardWeights bf16", "generated", "tasks on"]),
        (
            "FWD_D f32 NXC mb8ic64ih56oc64oh56kh3ph1",
            ["Convolution f32", "generated", "A from src (in place), B from weights", "tasks on"],
        ),
        ("BWD_W f64 NXC mb1ic1iw5oc1ow3kw3", ["i = p + k with p below 3", "time        not predicted"]),
        ("BWD_W f32 NXC mb1ic1iw5oc1ow3kw3", ["1 task on 1 thread: ", "us on 1 thread, predicted", "GFLOP/s"]),
        (
            "BWD_WB f16 NCX mb2ic4ih9oc8oh9kh3ph1",
            [
                "ConvolutionBackwardWeights f16",
                "BiasAddBackward f16",
                "generated",
                "a leaf is 3 images: cut at multiples",
            ],
        ),
    ],
)
def test_command(line: str, words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", line, "--threads", "2"]) == 0
    out = capsys.readouterr().out
    assert all(word in out for word in words)


@tiers("suite", suites.names(), every=9)
def test_of_the_suites_numpy_computes_f64_alone(suite: str) -> None:
    """Every line in every direction, type and layout, by what explain says of the engine."""
    by_numpy = set()
    for line, *words in product(suites.suite(suite), DIRECTIONS, FORMATS, DATA):
        *start, _, _, _, descriptor = line.split()
        choices = [engines.choose(one) for one in problems_of(" ".join([*start, *words, descriptor]))]
        by_numpy |= {(words[1], choice.reason) for choice in choices if choice.engine == "numpy"}
    assert by_numpy == {("f64", "kernels keep their sums in f32; got f64")}


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("BWD_W f32 NXC mb64ic64ih56oc64oh56kh3ph1", ["pieces of 4 images", "src 64x56x56x64", "of 20 MB", "sums"]),
        ("FWD_B f16 NXC mb64ic64ih56oc64oh56kh3ph1", ["weights 3x3x64x64, 73.7 kB: read once", "what is written"]),
        (
            "BWD_WB f32 NXC mb64ic64ih56oc64oh56kh3ph1",
            ["ConvolutionBackwardWeights f32, in", "BiasAddBackward f32, in"],
        ),
    ],
)
def test_command_tells_pieces(line: str, words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", line, "--threads", "1", "--memory", "20MB"]) == 0
    told = [text for text in capsys.readouterr().out.split("in pieces, on files: ")[1:]]
    assert len(told) == line.startswith("BWD_WB") + 1
    assert all(word in "".join(told) for word in words), told


def test_command_line_errors(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "BWD_W"]) == 2
    assert "problem line in quotes" in capsys.readouterr().err
    assert main(["explain", "BWD_W f32 NXC mb8", "--dot"]) == 2
    assert main(["explain", "BWD_W f32 NXC mb8"]) == 2
    assert main(["explain", "BWD_W f32 NXC mb2ic4ih9oc8oh9kh3ph1", "--memory", "9"]) == 2
    assert "which takes" in capsys.readouterr().err
    assert main(["explain", "graph.json", "--memory", "1GB"]) == 2
    assert main(["explain", "graph.json", "--json", "--dot"]) == 2


def test_plans_of_every_layout_and_type_are_of_dense_arrays() -> None:
    for layout in ("NXC", "NCX", "NXC:OIX", "NCX:XIO"):
        for kind in ("f32", "bf16", "f16"):
            one = problem(f"BWD_W {kind} {layout} mb2ic40ih9oc24oh9kh3ph1")
            machine = engines.machine_of(one)
            assert machine is not None
            assert engines.plan_of(one, machine, 1).rounding_depth == engines.height(one)


@pytest.mark.parametrize(
    ("operand_type", "dtype", "rounded"),
    [
        ("bf16", None, " before the result is rounded to bf16"),
        ("f32", "f16", " before the result is rounded to f16"),
        ("bf16", "f32", ""),
        ("f32", None, ""),
    ],
)
def test_the_bound_is_that_of_the_sum(operand_type: str, dtype: str | None, rounded: str) -> None:
    shapes = (1, 8, 8, 16), (3, 3, 16, 16)
    ones: dict[str, Any] = {"strides": [1, 1], "dilations": [1, 1]}
    text = str(convgrad.explain("Convolution", *shapes, operand_type=operand_type, dtype=dtype, **ones))
    assert f"error at most 8.58e-06 sum |x||y|{rounded}\n" in text


@pytest.mark.parametrize(
    ("layer", "max_error", "reason"),
    [
        ("mb8ic64ih28oc64oh14kh3sh2ph1", 64, "tiles need stride 1 and dilation 1"),
        ("mb8ic64ih28oc64oh28kh3ph1", 2, "the smallest max_error that admits tiles is 3.3"),
        ("mb1ic64ih2oc64oh2kh3ph1", 64, "by the costs of the specification, the direct sum is cheaper"),
        ("mb8ic64ih28oc64oh28kh3ph1", 64, ""),
        ("mb8ic64ih28oc64oh14kh3sh2ph1", None, ""),
    ],
)
def test_the_reason_for_a_direct_sum(
    layer: str, max_error: float | None, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    options = [] if max_error is None else ["--max-error", str(max_error)]
    assert main(["explain", f"BWD_W f32 NXC {layer}", *options]) == 0
    printed = [line.split("not used: ")[1] for line in capsys.readouterr().out.splitlines() if "not used" in line]
    assert printed == [reason] * bool(reason)


def test_threads_by_context() -> None:
    everywhere = count(None)
    seen: list[int] = []
    with convgrad.threads(3):
        assert (count(None), count(2)) == (3, 2)
        with convgrad.threads(1):
            assert count(None) == 1
        other = threading.Thread(target=lambda: seen.append(count(None)))
        other.start()
        other.join()
        assert count(None) == 3
    assert seen == [everywhere]
    assert count(None) == everywhere


def test_no_instruction_set_is_numpy_with_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    isas._host_isas.cache_clear()
    monkeypatch.setattr(isas, "supported", lambda: ())
    try:
        with pytest.warns(
            UserWarning, match="NumPy only, slower and not to the same bits: this machine has none of amx"
        ):
            assert isas.isa() is None
    finally:
        isas._host_isas.cache_clear()


def test_work_without_padding_counts_the_pairs_that_meet() -> None:
    """Also if the kernel has more taps than dst has positions: then positions are counted, in no time."""
    for src, dst, kernel, stride, dilation, pad in product(range(5), range(4), range(1, 5), (1, 2), (1, 3), range(4)):
        axis = Axis(src, dst, kernel, stride, dilation, pad, 2)
        pairs = [p * stride + k * dilation - pad for p in range(dst) for k in range(kernel)]
        assert needed_flops(Conv(1, 1, 1, 1, (axis,))) == 2 * sum(0 <= i < src for i in pairs), axis
    assert needed_flops(Conv(1, 1, 1, 1, (Axis(2**40, 1, 2**40),))) == 2**41
