"""What single pages say of the code, beyond what their blocks print, is so."""

from __future__ import annotations

import csv
import hashlib
import random
import re
import runpy
from collections.abc import Callable
from itertools import starmap
from typing import Any

import numpy as np
import pytest

import convgrad
from convgrad import cases
from convgrad.errors import UnsupportedError
from convgrad.graph import to_json
from convgrad.scale.checkpoint import EVERY_S
from convgrad.scale.cut import MAX_BYTES
from convgrad.spec.elementwise.table import MAPS
from convgrad.spec.geometry import Channels
from convgrad.spec.pieces import chunk_images, leaf_images, nodes_of
from tests.docs import figures
from tests.docs.page_blocks import PYTHON, blocks, run_page
from tests.support.engine_helpers import HOST
from tests.support.helpers import assert_same_bits
from tests.support.places import BENCHMARKS, DOCS, EXAMPLES, ROOT


def text_of(page: str) -> str:
    return (DOCS / page).read_text(encoding="utf-8")


def tables(page: str) -> list[list[str]]:
    """Return the cells of each row of a page's tables."""
    return [line.strip("| ").split(" | ") for line in text_of(page).splitlines() if line.strip().startswith("|")]


# -- batch.md, scale.md, design/notes.md -------------------------------------------------------------------------------


def test_images_of_a_leaf_are_those_of_the_order() -> None:
    page = " ".join(text_of("batch.md").split())
    small, large = ([Channels(batch, 1, (extent, extent)) for batch in (32, 256)] for extent in (7, 14))
    few, many = map(chunk_images, small)
    sizes = f"A chunk then has {few} images if the batch has 32, and {many} images if the batch has 256."
    assert f"7x7 positions, m is {leaf_images(small[0])}. {sizes}" in page
    (chunk,) = {chunk_images(geometry) for geometry in large}
    assert f"14x14 positions have m = {leaf_images(large[0])}, and a chunk has {chunk} images." in page


class HereAtOnce:
    """A pool whose workers are this process."""

    def starmap(self, work: Any, given: Any) -> list[Any]:
        return list(starmap(work, given))


def test_any_number_of_workers_trains_to_one_hash() -> None:
    example = runpy.run_path(str(EXAMPLES / "data_parallel.py"))
    assert len({example["train"](HereAtOnce(), workers) for workers in ([1], [3], [11])}) == 1


def known(first: int, end: int) -> int:
    """Return how many sums are known of some leaves."""
    return len(nodes_of(first, end))


def test_sizes_and_times_are_those_of_the_code() -> None:
    page = " ".join(text_of("scale.md").split())
    assert f"has at most {MAX_BYTES >> 20} MiB of operands" in page
    assert f"every {EVERY_S:.0f} seconds" in page


def test_arrays_of_a_piece_are_those_of_the_tree() -> None:
    head, _, *rows = tables("design/notes.md")[:7]
    assert head[0] == "piece"
    for piece, arrays in rows:
        if "anywhere" in piece:
            leaves = int(piece.split()[0])
            mean, most = map(int, re.findall(r"\d+", arrays))
            found = [known(first, first + leaves) for first in random.Random(0).sample(range(65536), 1000)]
            assert round(sum(found) / len(found)) == mean
            assert max(known(first, first + leaves) for first in range(4096)) == most, piece
        else:
            for q in (1, 3, 8) if "q" in piece else (1,):
                assert max(known(n * q * 256, (n + 1) * q * 256) for n in range(100)) <= q
    y = np.ones((90, 300, 3), np.float32)
    for first, end in ((0, 90), (3, 40), (16, 32), (15, 49)):
        part = convgrad.partials("BiasAddBackward", y[first:end], first=first)
        assert part.nbytes == known(first, end) * y[0, 0].nbytes


# -- cases.md, graphs.md -----------------------------------------------------------------------------------------------


def test_lines_of_other_drivers_are_cases() -> None:
    _, _, lines_on = text_of("cases.md").partition("## MIOpenDriver")
    blocks = re.findall(r"^```\n(.*?)^```", lines_on.partition("## Names of array files")[0], re.MULTILINE | re.DOTALL)
    lines = [line.removesuffix(" ...") for block in blocks for line in block.replace("\\\n", "").splitlines()]
    found = [(case.operator, case.operand_format.name) for line in lines for case in cases.read(line)]
    every = ("Convolution", "ConvolutionBackwardData", "ConvolutionBackwardWeights")
    assert found == [
        *((every[2], name) for name in ("f32", "bf16")),
        *((operator, "f16") for operator in every),
        *((every[1], "f32"),) * 2,
    ]


def test_the_graph_of_the_page_is_the_one_in_examples() -> None:
    names: dict[str, Any] = {}
    next(block for block in blocks(DOCS / "graphs.md") if block.language in PYTHON).run(names)
    assert to_json(names["graph"]) + "\n" == (EXAMPLES / "layer_step.json").read_text(encoding="utf-8")


# -- per_sample.md -----------------------------------------------------------------------------------------------------


def test_clipped_sums_are_those_of_explicit_gradients() -> None:
    """A sample is clipped by the norm of its weights and bias together."""
    pytest.importorskip("torch")
    names = run_page(DOCS / "per_sample.md", ("direction =",))[1]
    conv, layer, (x, dy, norm2) = names["conv"], names["layer"], (names[name].numpy() for name in ("x", "dy", "norm2"))
    shape = tuple(conv.weight.shape)
    each = [convgrad.convolution_backward_weights(x[n : n + 1], dy[n : n + 1], shape, **layer) for n in range(len(x))]
    squares = np.sum(np.square(each, dtype=float), axis=(1, 2, 3, 4)) + np.sum(dy.sum((2, 3), float) ** 2, axis=1)
    np.testing.assert_allclose(norm2, squares, rtol=1e-5)
    scale = convgrad.clip_scales(norm2, 1.0)
    assert (scale < 1).any()
    scaled = scale[:, None, None, None]
    expected = convgrad.convolution_backward_weights(x * scaled, dy, shape, **layer)
    assert_same_bits(conv.weight.grad.numpy(), expected, "weights")
    assert_same_bits(conv.bias.grad.numpy(), convgrad.bias_add_backward(dy * scaled, data_format="NCX"), "bias")


def test_inner_products_with_a_direction_are_those_of_explicit_gradients() -> None:
    pytest.importorskip("torch")
    names = run_page(DOCS / "per_sample.md")[1]
    x, dy, direction, layer = (names[name] for name in ("x", "dy", "direction", "layer"))
    each = [
        convgrad.convolution_backward_weights(x[n : n + 1], dy[n : n + 1], direction.shape, **layer) for n in (0, 7)
    ]
    expected = [float((one.double() * direction.double()).sum()) for one in each]
    np.testing.assert_allclose(names["products"].numpy()[[0, 7]], expected, rtol=1e-3, atol=1e-2)


@pytest.fixture(scope="module")
def clipped_backward() -> Any:
    """The function of the example for PyTorch."""
    pytest.importorskip("torch")
    return runpy.run_path(str(EXAMPLES / "clipped_gradients.py"))["clipped_backward"]


def layers_of(nn: Any, kind: str) -> tuple[list[Any], tuple[int, ...]]:
    """Return layers and the shape of a sample."""
    if kind == "Linear":  # of three positions each
        return [nn.Linear(4, 3, bias=False), nn.ReLU(), nn.Linear(3, 2)], (3, 4)
    axes, conv = int(kind[-2]), getattr(nn, kind)
    between = [nn.ReLU(), conv(4, 3, 3, 2, padding="valid"), nn.Flatten(), nn.Linear(3 * 2**axes, 2)]
    first = conv(2, 4, 2, padding="same", bias=False) if axes != 2 else conv(2, 4, 3, padding=1, groups=2)
    return [first, *between], (2, *(6,) * axes)


@pytest.mark.filterwarnings("ignore:Using padding='same' with even")
@pytest.mark.parametrize("kind", ["Conv1d", pytest.param("Conv2d", marks=pytest.mark.long), "Conv3d", "Linear"])
def test_the_program_for_pytorch_has_autograd_s_gradients(kind: str, clipped_backward: Any) -> None:
    """On integers, which nothing rounds: each sample's norm, and where none is clipped the gradients themselves."""
    torch = pytest.importorskip("torch")
    layers, shape = layers_of(torch.nn, kind)
    model = torch.nn.Sequential(*layers)
    rng = np.random.default_rng(0)
    images = torch.tensor(rng.integers(-2, 3, (3, *shape)).astype(np.float32))
    with torch.no_grad():
        for one in model.parameters():
            one.copy_(torch.tensor(rng.integers(-2, 3, one.shape)))

    def gradients(images: Any) -> list[Any]:
        return torch.autograd.grad(model(images).sum(), [*model.parameters()])  # type: ignore[no-any-return]

    each = [sum(int((one.double() ** 2).sum()) for one in gradients(image[None])) for image in images]
    assert clipped_backward(model, torch.sum, images, 2.0**40).tolist() == each
    assert all(torch.equal(a.grad, b) for a, b in zip(model.parameters(), gradients(images), strict=True))


def test_the_program_for_pytorch_refuses_what_it_would_not_clip(clipped_backward: Any) -> None:
    torch = pytest.importorskip("torch")
    normed = torch.nn.Sequential(torch.nn.Conv1d(1, 1, 1), torch.nn.GroupNorm(1, 1))
    padded = torch.nn.Sequential(torch.nn.Conv1d(1, 1, 3, padding=1, padding_mode="circular"))
    for model, words in ((normed, "2 parameters belong to no layer of"), (padded, "pad the input by a layer before")):
        with pytest.raises(ValueError, match=words):
            clipped_backward(model, torch.sum, torch.ones(2, 1, 3), 1.0)


def test_the_page_names_every_function_of_samples() -> None:
    _, _, section = text_of("per_sample.md").partition("## Functions\n")
    named = set(re.findall(r"`(\w+_\w+)`", section.partition("\n## ")[0]))
    assert named == {name for name in convgrad.__all__ if name.startswith(("per_sample", "weighted", "clip"))}


# -- same_bits.md, numerics.md -----------------------------------------------------------------------------------------


@pytest.fixture
def same_bits(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return __import__("same_bits")


def test_hashes_are_those_that_were_measured(same_bits: Any) -> None:
    rows = same_bits.read(same_bits.RESULTS)
    text = " ".join(text_of("same_bits.md").split())
    (ours,) = same_bits.distinct(rows, "convgrad")
    theirs = same_bits.distinct(rows, "torch")
    assert ours not in theirs
    assert {row["outcome"] for row in rows} == {"ok"}  # "No result is wrong"
    counts = {library: sum(row["library"] == library for row in rows) for library in same_bits.LIBRARIES}
    assert counts == dict.fromkeys(same_bits.LIBRARIES, 40)
    assert (
        f"All 40 cells of convgrad have the hash {ours[:4]}; PyTorch's 40 cells have {len(theirs)} different hashes."
        in text
    )
    version = rows[-1]["version"].split("+")[0]
    assert f"40 results are identical, and PyTorch {version} returned {len(theirs)} different results." in text


def test_hashes_of_the_whole_batch_are_those_that_were_measured(same_bits: Any) -> None:
    """PyTorch adds two gradients if the batch is split, so the page counts the other calls by themselves."""
    rows = [row for row in same_bits.read(same_bits.RESULTS) if row["batch"] == "whole"]
    assert len(rows) == 40
    count = len(same_bits.distinct(rows, "torch"))
    words = f"In the 20 computations without a split, PyTorch returned {count} different results."
    assert words in " ".join(text_of("same_bits.md").split())


@pytest.mark.skipif(not HOST, reason="no generated kernels run here")
def test_this_machine_has_the_hash_that_was_measured(same_bits: Any) -> None:
    (committed,) = same_bits.distinct(same_bits.read(same_bits.RESULTS), "convgrad")
    src, diff_dst = same_bits.operands()
    for layout, cut in (("NXC", (0, 3, 8)), ("NCX", (0, 8))):
        gradient = same_bits.ours(src, diff_dst, layout, cut)
        assert hashlib.sha256(np.ascontiguousarray(gradient).tobytes()).hexdigest() == committed, (layout, cut)


def test_the_number_of_hashes_is_that_of_the_file() -> None:
    *_, last = (ROOT / "tests/golden/hashes.txt").read_text(encoding="utf-8").splitlines()
    words = f"contains the SHA-256 hashes of {last.rpartition(' all of ')[2]} results"
    assert words in " ".join(text_of("numerics.md").split())


# -- torch.md, same_hash.md, training_step.md, why_different.md --------------------------------------------------------


def test_counts_and_times_are_those_of_the_committed_runs() -> None:
    rows = [row for row in figures.rows_of("one_hash.csv") if row["aten"] == "avx512" and row["threads"] in "12"]
    count = figures.WORDS[len({row["plain"] for row in rows})]
    assert f"{count} different fingerprints for these {figures.WORDS[len(rows)]} runs" in text_of("same_hash.md")


def test_refused_operators_have_the_cures_of_the_page() -> None:
    """What the page says to do about an operator that same_bits refuses."""
    torch = pytest.importorskip("torch")
    same_bits = pytest.importorskip("convgrad.torch").same_bits
    text = text_of("training_step.md")
    image, functional = torch.rand(1, 2, 5, 5), torch.nn.functional
    refused: dict[str, Callable[[], object]] = {
        "f64": lambda: image.double().sum(),
        "FFT": lambda: torch.fft.rfft(torch.rand(4)),
    }
    with same_bits():
        for words, call in refused.items():
            assert words in text
            with pytest.raises(UnsupportedError, match="B2"):
                call()
        functional.interpolate(image, size=7, mode="bilinear")


def test_compiled_code_of_another_setting_is_wrong() -> None:
    rows = {(row["compiled"], row["run"]): row for row in figures.rows_of("inductor_cache.csv")}
    assert rows["avx2", "avx2"]["losses"] == rows["avx512", "avx512"]["losses"]
    assert "2.02e+15" in rows["avx512", "avx2"]["losses"]
    assert int(rows["avx2", "avx512"]["exit"]) < 0
    assert "losses such as 2e15. In the opposite case" in " ".join(text_of("why_different.md").split())


def test_errors_of_functions_are_below_the_limits() -> None:
    rows = [(row["function"], float(row["ulp"]), float(row["limit"])) for row in figures.rows_of("every_f32.csv")]
    assert len(rows) > 10
    assert all(ulp <= limit == MAPS[name].ulps for name, ulp, limit in rows)


# -- error_bounds.md ---------------------------------------------------------------------------------------------------


def test_rounding_depth_of_a_weight_gradient() -> None:
    data = (32, 56, 56, 64)
    plan = convgrad.explain("ConvolutionBackwardWeights", data, data, (3, 3, 64, 64), auto_pad="same_upper")
    height, terms = int(re.findall(r"height h = (\d+)", str(plan))[0]), 32 * 56 * 56
    words = f"for example {height} for a 3x3 weight gradient of 32 images with 56x56 positions, where n is {terms:,}."
    assert words in " ".join(text_of("error_bounds.md").split())


# -- findings.md -------------------------------------------------------------------------------------------------------


def test_verdicts_on_torch_are_counted() -> None:
    with (BENCHMARKS / "results" / "torch_verdicts.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    counts = {name: sum(int(row[name]) for row in rows) for name in ("ok", "wrong", "degraded", "undecided")}
    assert f"counts all {sum(counts.values()):,} verdicts" in text_of("findings.md")
    assert counts["undecided"] == 0
    shown = [row for row in tables("findings.md") if row[0] in ("f32", "bf16", "f16") and len(row) == 4]
    first = [row for row in rows if (row["cases"], row["fill"]) == ("hard", "normal")]
    assert shown == [[row["type"], row["ok"], row["wrong"], row["degraded"]] for row in first]
