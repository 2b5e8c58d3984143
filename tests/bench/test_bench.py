"""The benchmark: its problems, its arithmetic, its checks and its command; never how fast anything is."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from convgrad.cli import bench
from convgrad.cli.bench import suites
from convgrad.cli.bench.agreement import agree, judge, middle
from convgrad.cli.bench.figures import Series, fastest, geometric_mean, ratio
from convgrad.cli.bench.harness import BUDGET_S, TimedOutcome, measure
from convgrad.cli.bench.measure import FmaPeak, fma_ir, read_bandwidth, read_ir, vector_bytes
from convgrad.cli.bench.peers import PEERS, Peer, contenders, find_peers
from convgrad.cli.bench.report import COLUMNS, conditions, heading, line, row, summary
from convgrad.cli.bench.roofs import cache_bytes
from convgrad.cli.bench.work import Contender, Work, magnitudes, make_work
from convgrad.errors import ConvgradError, FileError, NotationError, UnsupportedError
from convgrad.notation import DIRECTIONS, problem
from convgrad.spec.work import moved_bytes, needed_flops, nominal_flops
from tests.bench.problems import ROOFS, TINY
from tests.support.tiers import tiers
from tests.support.torch_sums import adds_in_bf16


def work_of(text: str, **options: Any) -> Work:
    (case,) = suites.cases("tiny", [text], **options)
    return make_work(case)


# -- problems --------------------------------------------------------------------------------------------------------


def test_suites_hold_a_hundred_problems_and_more() -> None:
    lines = [text for name in suites.names() for text in suites.suite(name)]
    assert len(lines) >= 100
    assert len(set(lines)) == len(lines)
    assert len(suites.suite("resnet50")) == 23


@pytest.mark.every(4)
@pytest.mark.parametrize("name", suites.names())
def test_every_line_of_a_suite_is_a_legal_problem_in_every_role(name: str) -> None:
    roles = [d for d in DIRECTIONS if d != "BWD_WB"]
    cases = suites.cases(name, suites.suite(name), roles, ["f32", "bf16", "f16"], ["NXC", "NCX"])
    assert len(cases) == 6 * len(roles) * len(suites.suite(name))
    for case in cases[::30]:
        assert case.problem.operand_format is case.line.format
    assert len({case.name for case in cases}) == len(suites.suite(name))
    assert all(case.line.descriptor.name == f"{name}:{case.name}" for case in cases)


BAD_LINES = {
    "BWD_WB f32 NXC ic4ih5oc4oh5kh3ph1": "must run one operator",
    "BWD_W f32 ic4ih5": "a problem line is",
    "BWD_W f33 NXC ic4ih5oc4oh5kh3ph1": "expected one of f32",
}


def test_a_file_of_problems(tmp_path: Path) -> None:
    path = tmp_path / "layers.txt"
    path.write_text(f"# two layers\n{TINY}  # the first\n\nBWD_D f32 NCX mb1ic3ih8oc4kh3\n")
    assert suites.shapes_file(path) == [TINY, "BWD_D f32 NCX mb1ic3ih8oc4kh3"]
    with pytest.raises(NotationError, match="expected one of f32"):
        suites.cases_of_file(path, types=["f8"])
    path.write_text("# nothing\n")
    with pytest.raises(FileError, match="has no problem line"):
        suites.shapes_file(path)
    with pytest.raises(FileError, match="cannot be read"):
        suites.shapes_file(tmp_path / "nowhere.txt")


@pytest.mark.parametrize("text", BAD_LINES)
def test_lines_that_cannot_be_timed(text: str, tmp_path: Path) -> None:
    """Typed, or in a file, which is named."""
    with pytest.raises(ConvgradError, match=BAD_LINES[text]):
        suites.cases("", [text])
    (tmp_path / "layers.txt").write_text(f"{TINY}\n{text}\n")
    with pytest.raises(FileError, match=rf"layers.txt: .*{BAD_LINES[text]}"):
        suites.cases_of_file(tmp_path / "layers.txt")


def test_an_unknown_suite_lists_those_there_are() -> None:
    with pytest.raises(UnsupportedError, match="dense, depthwise, dilated"):
        suites.suite("vgg")


def test_costs() -> None:
    work = work_of("BWD_W bf16 NXC g2mb3ic4iw5oc6ow5kw3pw1")
    assert nominal_flops(work.conv) == 2 * 3 * 5 * 3 * 6 * 2
    assert needed_flops(work.conv) == 2 * 3 * (4 + 5 + 4) * 6 * 2
    assert moved_bytes(work.problem) == 2 * (3 * 5 * 4 + 3 * 5 * 6 + 3 * 2 * 6)


# -- the machine -----------------------------------------------------------------------------------------------------


def test_loops_use_the_widest_vectors() -> None:
    lanes = vector_bytes() // 4
    assert fma_ir("f32").count(f"call <{lanes} x float> @llvm.fma") == 12
    assert f"<{lanes // 2} x double>" in fma_ir("f64")
    assert f"load <{lanes // 2} x i64>" in read_ir()


def test_the_machine_can_be_measured() -> None:
    assert FmaPeak(1, "f32")() > 0
    assert read_bandwidth(2, 1 << 14) > 0
    sizes = list(cache_bytes().values())
    assert sizes == sorted(sizes)


def test_the_floor_is_the_larger_of_two_times() -> None:
    assert ROOFS.level(1 << 14).name == "L1"
    assert ROOFS.level((1 << 14) + 1).name == "L2"
    assert ROOFS.level(1 << 30).name == "memory"
    assert ROOFS.floor_ms(10**9, 1000) == pytest.approx(10)
    assert ROOFS.floor_ms(10**9, 1000, fma_gflops=50.0) == pytest.approx(20)
    assert ROOFS.floor_ms(1, 2 * 10**9) == pytest.approx(100)


# -- agreement -------------------------------------------------------------------------------------------------------

ROLES = [
    "FWD_B f32 NCX mb2ic4ih9oc6oh9kh3ph1",
    "BWD_D f16 NXC g2mb2ic4ih9oc6oh5kh3sh2ph1",
    "BWD_W bf16 NXC g2mb2ic4ih9oc6oh9kh3ph1",
    "deconv FWD_B f32 NXC g2mb2ic4iw5oc6ow11kw4sw2pw1",
    "deconv BWD_D f32 NXC g2mb2ic4iw5oc6ow11kw4sw2pw1",
    "deconv BWD_W f32 NCX g2mb2ic4iw5oc6ow11kw4sw2pw1",
]


@pytest.mark.parametrize("text", ROLES)
def test_a_wrong_element_is_found_and_the_oracle_says_whose(text: str) -> None:
    work = work_of(text)
    right, magnitude = work.canonical(work.run()), magnitudes(work)
    assert agree(right, right, magnitude, work.problem).share == 0
    assert judge(work, right, middle(work)).ok
    place = tuple(extent - 1 for extent in right.shape)
    for change in (0.1 * magnitude[place], np.nan):
        wrong = right.copy()
        wrong[place] += change
        found = agree(right, wrong, magnitude, work.problem)
        assert not found.ok
        assert found.worst == place
        assert judge(work, right, place).ok
        assert not judge(work, wrong, place).ok


def test_another_order_of_summation_agrees() -> None:
    work = work_of("BWD_W f32 NXC mb8ic16ih28oc16oh28kh3ph1")
    flipped = tuple(v[::-1] if isinstance(v, np.ndarray) else v for v in work.inputs)
    mine, theirs = work.canonical(work.run()), work.canonical(work.run(inputs=flipped))
    assert not np.array_equal(mine, theirs)
    assert 0 < agree(mine, theirs, magnitudes(work), work.problem).share < 1


# -- peers that are made up ------------------------------------------------------------------------------------------


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[Work], Any]], Peer]:
    """Enter a peer in the table whose one contender calls a function of the work."""

    def enter(call: Callable[[Work], Any]) -> Peer:
        module = ModuleType("fake_peer")
        module.contenders = lambda work, threads: [  # type: ignore[attr-defined]
            Contender("fake nxc", lambda: call(work), work.canonical)
        ]
        monkeypatch.setitem(sys.modules, "fake_peer", module)
        monkeypatch.setitem(PEERS, "fake", Peer("fake", ("nxc",), ("numpy",), "fake_peer"))
        return PEERS["fake"]

    return enter


def outcome_of(text: str, *peers: Peer, repeat: int = 2) -> TimedOutcome:
    (case,) = suites.cases("tiny", [text])
    return measure(case, peers, 1, repeat)


def test_a_peer_that_agrees(fake: Any) -> None:
    outcome = outcome_of(TINY, fake(lambda work: work.run()))
    (series,) = outcome.peers["fake"]
    assert outcome.right
    assert (len(series.rounds_ms), len(outcome.ours.rounds_ms), len(outcome.peaks)) == (2, 2, 2)
    assert row(outcome, ROOFS)["note"] == ""
    assert row(outcome, ROOFS)["fake_layout"] == "nxc"


def test_a_wrong_peer_is_named_and_keeps_its_time(fake: Any) -> None:
    figures = row(outcome_of(TINY, fake(lambda work: 1.01 * work.run())), ROOFS)
    assert figures["right"] == "yes"
    assert "fake nxc errs by" in figures["note"]
    assert figures["fake_ratio"] > 0


def test_a_wrong_convgrad_fails_and_has_no_ratio(fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Work.run

    def off_in_a_corner(work: Work, *arguments: Any, **options: Any) -> Any:
        result = run(work, *arguments, **options)
        result.flat[-1] += 1
        return result

    peer = fake(run)
    monkeypatch.setattr(Work, "run", off_in_a_corner)
    figures = row(outcome_of(TINY, peer), ROOFS)
    assert figures["right"] == "no"
    assert "convgrad is wrong by the oracle: WRONG" in figures["note"]
    assert "fake_ratio" not in figures
    assert " - " in line(figures, [peer])


def test_a_refusal_is_quoted(fake: Any) -> None:
    def refuse(work: Work) -> Any:
        raise RuntimeError("not implemented for 'Half'\nstack")

    peer = fake(refuse)
    figures = row(outcome_of(TINY, peer), ROOFS)
    assert figures["note"] == "fake nxc refuses: not implemented for 'Half'"
    assert "fake_ratio" not in figures
    assert not any("to fake" in text for text in summary([figures], [peer]))


def test_a_slow_peer_sits_out(fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("convgrad.cli.bench.harness.BUDGET_S", BUDGET_S * 1e-7)
    outcome = outcome_of(TINY, fake(lambda work: work.run()), repeat=3)
    assert len(outcome.peers["fake"][0].rounds_ms) == 1


# -- arithmetic and report -------------------------------------------------------------------------------------------


def test_ratios_are_medians_of_rounds_not_ratios_of_medians() -> None:
    ours = Series("convgrad", 9.0, (1.0, 2.0, 4.0))
    peer = Series("torch nhwc", 9.0, (3.0, 2.0, 20.0))
    assert (ours.median_ms, peer.median_ms) == (2.0, 3.0)
    assert ratio(ours, peer) == 3.0
    assert ratio(ours, replace(peer, rounds_ms=(3.0,))) == 3.0


def test_a_peer_counts_by_its_better_layout() -> None:
    slow, fast, refused = Series("a", 1.0, (5.0, 5.0)), Series("b", 1.0, (9.0, 1.0, 1.0)), Series("c", 0.0, ())
    assert fastest([slow, fast, refused]) is fast
    assert fastest([refused]) is None


def test_geometric_means() -> None:
    assert geometric_mean([0.25, 4.0]) == pytest.approx(1.0)
    assert geometric_mean([]) is None


def made_up(name: str, ours_ms: float, torch_ms: tuple[float, float]) -> dict[str, Any]:
    (case,) = suites.cases("tiny", [TINY])
    peers = {"torch": tuple(Series(f"torch {i}", 9.0, (ms, ms)) for i, ms in enumerate(torch_ms))}
    ours = Series("convgrad", 7.0, (ours_ms, ours_ms))
    outcome = TimedOutcome(case, problem(TINY), "numpy", 10**8, 9 * 10**7, 10**6, ours, peers, (100.0, 200.0), True)
    return {**row(outcome, ROOFS), "name": name}


def test_a_row_of_made_up_samples() -> None:
    figures = made_up("a", 2.0, (6.0, 4.0))
    assert figures["gflops"] == pytest.approx(50)
    assert figures["peak_gflops"] == 150
    assert figures["share_of_peak"] == pytest.approx(0.375)  # median of 50/100 and 50/200
    assert figures["needed_gflop"] == pytest.approx(0.09)  # where taps exist
    assert figures["share_of_floor"] == pytest.approx(0.09 / 0.15 / 2)
    assert (figures["torch_ratio"], figures["torch_layout"]) == (2.0, "nhwc")
    assert (figures["torch_ms"], figures["torch_nchw_ms"]) == (4.0, 6.0)
    assert figures["level"] == "L2"
    assert 0 < figures["predicted_ms"] < 1


def test_the_summary_groups_and_finds_the_worst() -> None:
    rows = [made_up("a", 1.0, (8.0, 9.0)), made_up("b", 1.0, (2.0, 9.0)), made_up("c", 1.0, (2.0, 2.0))]
    text = list(summary([*rows, {**rows[0], "type": "bf16"}], [PEERS["torch"]]))
    assert text[0].startswith("tiny BWD_W f32 NXC: 3 problems, geometric means")
    mean = "3.17 times as fast as torch in the geometric mean of 3 problems"
    assert text[1] == f"    {mean}; slowest 2.00, b"
    assert text[2].startswith("tiny BWD_W bf16 NXC: 1 problem,")


def test_every_figure_has_its_column() -> None:
    figures = {**made_up("a", 2.0, (6.0, 4.0)), **conditions(ROOFS, 3, [])}
    assert figures.keys() <= set(COLUMNS)
    assert len(set(COLUMNS)) == len(COLUMNS)
    assert "L2 200" in heading(ROOFS)


def test_a_row_as_json_has_what_is_known() -> None:
    figures = {**made_up("a", 2.0, (6.0, 4.0)), **conditions(ROOFS, 3, [])}
    told = json.loads(bench._json(figures | {"predicted_ms": None}))
    assert told == {name: value for name, value in figures.items() if name != "predicted_ms"} | {"right": True}


# -- real peers --------------------------------------------------------------------------------------------

GEOMETRIES = [
    "mb2ic4ih9oc6oh9kh3ph1",
    "mb2ic4ih10oc6oh5kh3sh2ph1",
    "mb2ic4ih10oc6oh5kh3sh2ph0",
    "g2mb2ic4ih8iw9oc6oh8ow9kh3kw3ph2pw2dh0dw1",
    "mb2ic4iw20oc6ow20kw3dw3pw6",
    "mb2ic4id5oc6od5kd3pd1",
    "mb2ic4ih11oc6oh2kh2sh5ph0",
    "deconv mb2ic4ih5oc6oh10kh3sh2ph1",
    "deconv g2mb2ic4ih5oc6oh11kh4sh2ph1",
    "deconv mb2ic4iw5oc6ow14kw3sw2dw3pw1",
]


@tiers("descriptor, name", GEOMETRIES, ["torch", "jax"], every=17)
def test_peers_compute_the_same(descriptor: str, name: str) -> None:
    """In f32 and bf16; some peers sum f16 in f16, and JAX adds a bias after rounding, which are theirs to do.

    So is it that PyTorch adds in bf16, where the processor has no AVX-512.
    """
    pytest.importorskip(name)
    formats = ["f32"] if name == "torch" and adds_in_bf16() else ["f32", "bf16"]
    start, _, end = descriptor.rpartition(" ")
    for case in suites.cases("", [f"{start} BWD_W f32 NXC {end}"], ["FWD_D", "BWD_D", "BWD_W"], formats):
        work = make_work(case)
        mine, magnitude = work.canonical(work.run()), magnitudes(work)
        made = contenders(PEERS[name], work, 1)
        assert len(made) == len(PEERS[name].layouts)
        for contender in made:
            theirs = contender.canonical(contender.call())
            assert agree(mine, theirs, magnitude, work.problem).ok, (case.text, contender.name)


@pytest.mark.parametrize("name", ["torch", "jax"])
def test_a_process_that_was_timed_is_as_it_was(name: str) -> None:
    """PyTorch records gradients, JAX keeps its types."""
    library = pytest.importorskip(name)
    (case,) = suites.cases("", ["BWD_W f32 NXC mb1ic4ih5oc4oh5kh3ph1"], [], [])
    for contender in contenders(PEERS[name], make_work(case), 1):
        contender.call()
    assert library.is_grad_enabled() if name == "torch" else library.numpy.ones(3).dtype == np.float32


def test_missing_and_unknown_peers(monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_peers(["torch", "torch"] if importlib.util.find_spec("torch") else []) in ((PEERS["torch"],), ())
    with pytest.raises(UnsupportedError, match="peers must be among torch, jax; got mkl"):
        find_peers(["mkl"])
    monkeypatch.setattr("convgrad.cli.bench.peers.importlib.util", SimpleNamespace(find_spec=lambda name: None))
    with pytest.raises(UnsupportedError, match="jax is not installed: pip install jax jaxlib"):
        find_peers(["jax"])
