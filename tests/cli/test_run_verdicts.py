"""``convgrad run`` as a judge: a file's verdict is ``verify.check``'s, and nothing compared is no success."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from convgrad import FileError, files
from convgrad.cli.arguments import typed
from convgrad.cli.checks import theirs
from convgrad.cli.report import judged
from convgrad.formats import FORMATS
from convgrad.functional.call import Prepared, prepare
from convgrad.graph import Graph, LogicalTensor, Op, to_json
from convgrad.verify import check, exact
from convgrad.verify.verdict import Verdict
from tests.support.tiers import tiers

LEFT = {"strides": [1], "dilations": [1], "auto_pad": "same_upper"}
LAYER: dict[str, Any] = {"strides": [2], "dilations": [1], "pads_begin": [1], "pads_end": [0]}
CALLS: dict[str, tuple[tuple[tuple[int, ...], ...], dict[str, Any]]] = {
    "Convolution": (((2, 8, 4), (3, 4, 5), (5,)), LAYER),
    "ConvolutionBackwardWeights": (((2, 8, 4), (2, 4, 5)), LAYER | {"weights_shape": [3, 4, 5]}),
    "ConvTranspose": (((2, 4, 5), (3, 6, 5)), LAYER),
    "BiasAddBackward": (((2, 8, 4),), {}),
}


def written(operator: str, type_name: str) -> tuple[list[str], tuple[np.ndarray, ...], dict[str, Any]]:
    """Write operands of a call; return the command line that runs it, the operands, the attributes."""
    shapes, attributes = CALLS[operator]
    rng = np.random.default_rng(0)
    operands = tuple(rng.standard_normal(shape).astype(FORMATS[type_name].dtype) for shape in shapes)
    for number, operand in enumerate(operands):
        files.write(f"{number}.safetensors", operand)
    words = [word for name, value in attributes.items() for word in ("--attr", f"{name}={','.join(map(str, value))}")]
    return (
        ["run", operator, *(f"{number}.safetensors" for number in range(len(operands))), *words],
        operands,
        attributes,
    )


def _last_place(right: np.ndarray) -> np.ndarray:
    """The result with its first element a last place larger in size."""
    wrong = right.copy()
    wrong.reshape(-1).view(f"u{wrong.itemsize}")[0] += 1
    return wrong


def _with_first(right: np.ndarray, value: float) -> np.ndarray:
    wrong = right.copy()
    wrong.reshape(-1)[0] = value
    return wrong


RECORDED = {
    "right": lambda right: right,
    "a last place": _last_place,
    "two per cent": lambda right: (right.astype(np.float64) * 1.02).astype(right.dtype),
    "zeros": np.zeros_like,
    "NaN": lambda right: np.full_like(right, np.nan),
    "infinity": lambda right: np.full_like(right, np.inf),
    "one -infinity": lambda right: _with_first(right, -np.inf),
}


MIXED = [("f32", "f32"), ("f32", "f16"), ("bf16", "bf16"), ("f64", "f32")]


BLOCKS = {
    "Convolution": (7, 5),
    "ConvolutionBackwardWeights": (5, 3),
    "ConvTranspose": (6, 4),
    "BiasAddBackward": (16,),
}


@tiers("operator, types, order", list(CALLS), MIXED, ["any", "depth", "blocks"], every=23)
def test_the_verdict_on_a_file_is_checks(said, operator: str, types: tuple[str, str], order: str) -> None:
    type_name, result_type = types
    height = {"any": None, "depth": 6, "blocks": BLOCKS[operator]}[order]
    words, operands, attributes = written(operator, type_name)
    right = exact(operator, *operands, dtype=result_type, **attributes)
    declared = [] if height is None else ["--height", typed(height)]
    for what, make in RECORDED.items():
        recorded = make(right)
        files.write("r.safetensors", recorded, force=True)
        verdict = check(operator, recorded, *operands, height=height, **attributes)
        code, out, _ = said(*words, "--expect", "r.safetensors", "--json", *declared)
        assert json.loads(out)["checks"] == {"r.safetensors": judged(verdict)}, what
        assert code == (0 if verdict.ok else 1), what
        if what != "a last place":  # which orders of sums may reach, or not
            assert verdict.ok == (what == "right"), what


def test_the_text_names_the_file_and_both_values(said) -> None:
    words, operands, attributes = written("BiasAddBackward", "f32")
    right = exact("BiasAddBackward", *operands, **attributes)
    wrong = right.copy()
    wrong[2] = 1000
    np.save("wrong.npy", wrong)
    code, out, err = said(*words, "--expect", "wrong.npy", "--height", "12,4")
    assert code == 1
    assert "wrong.npy against oracle  WRONG: 1 of 4 elements beyond the bound" in out
    assert f"worst     element (2,): got 1000, expected {right[2]:.9g}" in out
    assert "--expect wrong.npy --height 12,4" in err
    code, again, _ = said(*shlex.split(err.strip().removeprefix("reproduce: "))[1:])
    assert (code, "WRONG: 1 of 4 elements" in again) == (1, True)


def broken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make our own results wrong."""
    right = Prepared.execute
    monkeypatch.setattr(Prepared, "execute", lambda *operands, **options: right(*operands, **options) + 100)


def test_our_own_result_is_judged_by_check_alone(said, monkeypatch: pytest.MonkeyPatch) -> None:
    words, operands, attributes = written("ConvolutionBackwardWeights", "f32")
    np.save("right.npy", exact("ConvolutionBackwardWeights", *operands, **attributes))
    broken(monkeypatch)
    assert said(*words)[0] == 0
    assert said(*words, "--expect", "right.npy")[0] == 0
    code, out, _ = said(*words, "--expect", "right.npy", "--check", "oracle", "--json")
    assert code == 1
    checks = json.loads(out)["checks"]
    assert {source: (v["ok"], v["equal"]) for source, v in checks.items()} == {
        "oracle": (False, 0),
        "right.npy": (True, 60),
    }


def test_our_own_height_is_the_engines(said) -> None:
    """Of 600 terms in blocks of 256; --height tells of the file's sums alone."""
    rng = np.random.default_rng(0)
    arrays = {name: rng.standard_normal((1, 600, 2), np.float32) for name in ("src", "diff_dst")}
    np.savez("layer.npz", **arrays)
    call = {"strides": [1], "dilations": [1], "weights_shape": [1, 2, 2]}
    words = ["run", "ConvolutionBackwardWeights", "layer.npz:src", "layer.npz:diff_dst", "--check", "oracle", "--json"]
    words += ["--attr", "strides=1", "--attr", "dilations=1", "--attr", "weights_shape=1,2,2"]
    report = json.loads(said(*words, "-o", "ours.npy")[1])
    ours = np.load("ours.npy")
    verdict = check("ConvolutionBackwardWeights", ours, *arrays.values(), height=report["height"], **call)
    assert report["height"] < 300
    assert report["checks"] == {"oracle": judged(verdict)}
    both = json.loads(said(*words, "--expect", "ours.npy", "--height", 600)[1])["checks"]
    assert both["oracle"] == judged(verdict)
    assert both["ours.npy"] != both["oracle"]


def test_a_wrong_first_result_hides_no_second(said, monkeypatch: pytest.MonkeyPatch) -> None:
    broken(monkeypatch)
    code, out, _ = said("run", "BWD_WB f32 NXC ic2ih4oc2oh4kh3ph1", "--check", "oracle")
    assert code == 1
    assert out.count("against oracle  WRONG") == 2


LINE = ["run", "BWD_W f32 NXC ic2ih4oc2oh4kh3ph1"]
NO_FILE, NO_RESULT = "goes with --expect FILE", "no array of --tensors is a result"
USAGE = {
    "no file": ([*LINE, "--height", "3"], NO_FILE),
    "our own": ([*LINE, "--check", "oracle", "--height", "3"], NO_FILE),
    "a graph without tensors": (["run", "chain.json", "--height", "3"], NO_RESULT),
    "a graph without results": (["run", "chain.json", "--tensors", "given.npz", "--height", "3"], NO_RESULT),
    **{
        f"no number: {one}": ([*LINE, "--expect", "r.npy", f"--height={one}"], "--height")
        for one in ("-1", "2.5", "any", "")
    },
}


@pytest.mark.parametrize("case", USAGE)
def test_a_height_is_a_number_and_needs_a_file_to_judge(said, case: str) -> None:
    chain()
    words, message = USAGE[case]
    code, out, err = said(*words)
    assert (code, out) == (2, "")
    assert message in err


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros((3, 4), np.float32), r"^r\.npy: .*result must be f32 4; got f32 3x4 \[D2\]"),
        (np.zeros(4, np.int32), r"^r\.npy: .*f32, bf16, f16, f64, f8_e4m3 or f8_e5m2; got int32"),
        (np.zeros(4), r"^r\.npy: .*sums of f32 operands are kept in f32 and rounded to f32 or to fewer bits; got f64"),
    ],
)
def test_a_file_of_no_result_is_refused(array: np.ndarray, message: str) -> None:
    call = prepare("BiasAddBackward", (np.ones((2, 4), np.float32),), {})
    with pytest.raises(FileError, match=message):
        theirs("r.npy", call, array, None)


def test_an_empty_result_is_right_and_says_so(said) -> None:
    """Its shape is all there is to compare: problems without images are no failure."""
    np.save("empty.npy", np.zeros((0, 4, 2), np.float32))
    line = "BWD_D f32 NXC mb0ic2iw4oc2ow4kw3pw1"
    code, out, _ = said("run", line, "--check", "oracle", "--expect", "empty.npy")
    assert code == 0
    assert out.count("ok: the result is empty, with nothing to compare but its shape") == 2
    np.save("empty.npy", np.zeros((0, 5, 2), np.float32))
    code, _, err = said("run", line, "--expect", "empty.npy")
    assert (code, "empty.npy: ConvolutionBackwardData: result must be f32 0x4x2; got f32 0x5x2 [D2]" in err) == (
        3,
        True,
    )


# -- graphs --------------------------------------------------------------------------------------------------------


def save(name: str, *ops: Op) -> None:
    """Write a graph of some ops."""
    graph = Graph(ops)
    graph.finalize()
    Path(name).write_text(to_json(graph))


def chain() -> dict[str, np.ndarray]:
    """A graph in which one op reads what another makes, in chain.json, and its inputs, in given.npz."""
    tensors = {0: ("src", (2, 8, 4)), 1: ("weights", (3, 4, 5)), 2: ("dst", (2, 8, 5)), 3: ("bias", (5,))}
    src, weights, dst, bias = (LogicalTensor(n, "f16", shape, name=name) for n, (name, shape) in tensors.items())
    ops = (Op(0, "Convolution", (src, weights), (dst,), LEFT), Op(1, "BiasAddBackward", (dst,), (bias,)))
    save("chain.json", *ops)
    rng = np.random.default_rng(0)
    given = {str(n): rng.standard_normal(tensors[n][1]).astype(np.float16) for n in (0, 1)}
    np.savez("given.npz", **given)
    return given


def verdicts(
    given: Mapping[str, np.ndarray], dst: np.ndarray, bias: np.ndarray, height: int | None
) -> dict[str, Verdict]:
    return {
        "all.npz:2": check("Convolution", dst, given["0"], given["1"], height=height, **LEFT),
        "all.npz:3": check("BiasAddBackward", bias, dst, height=height),
    }


@tiers("what, wrong, height", list(RECORDED), [None, "2", "3"], [None, 6], every=5)
def test_recorded_results_of_a_graph_are_judged_as_check_does(
    said, what: str, wrong: str | None, height: int | None
) -> None:
    """Each on what the file says that its op read, so that one wrong result accuses one op."""
    given = chain()
    recorded = {"2": exact("Convolution", given["0"], given["1"], **LEFT)}
    recorded["2"] = RECORDED[what](recorded["2"]) if wrong == "2" else recorded["2"]
    recorded["3"] = exact("BiasAddBackward", recorded["2"])
    recorded["3"] = RECORDED[what](recorded["3"]) if wrong == "3" else recorded["3"]
    np.savez("all.npz", **given, **recorded)
    expected = verdicts(given, recorded["2"], recorded["3"], height)
    code, out, _ = said(
        "run", "chain.json", "--tensors", "all.npz", "--json", *([] if height is None else ["--height", height])
    )
    *ops, summary = (json.loads(line) for line in out.splitlines())
    checks = {source: checked for op in ops for source, checked in op["checks"].items()}
    assert checks == {source: judged(verdict) for source, verdict in expected.items()}
    right = all(verdict.ok for verdict in expected.values())
    assert summary == {"ops": 2, "ran": 2, "compared": 2, "ok": right}
    assert code == (0 if right else 1)
    assert right == (wrong is None or what == "right")
    if wrong is not None and what != "right":
        assert [source for source, verdict in expected.items() if not verdict.ok] == [f"all.npz:{wrong}"]


def test_our_own_results_of_a_graph_follow_from_our_own(said) -> None:
    given = chain()
    shifted = exact("Convolution", given["0"], given["1"], **LEFT) + np.float16(1)
    np.savez("all.npz", **given, **{"2": shifted, "3": exact("BiasAddBackward", shifted)})
    code, out, _ = said("run", "chain.json", "--tensors", "all.npz", "--check", "oracle", "--json")
    *ops, summary = (json.loads(line) for line in out.splitlines())
    ok = {source: checked["ok"] for op in ops for source, checked in op["checks"].items() if source != "oracle"}
    assert all(op["checks"]["oracle"]["ok"] for op in ops)
    assert ok == {"all.npz:2": False, "all.npz:3": True}
    assert (code, summary["compared"], summary["ok"]) == (1, 4, False)


def test_a_recorded_result_is_read_in_its_ops_own_type(said) -> None:
    given = chain()
    dst = exact("Convolution", given["0"], given["1"], dtype="f32", **LEFT)
    np.savez("all.npz", **given, **{"2": dst})
    assert said("run", "chain.json", "--tensors", "all.npz")[0] == 0
    np.savez("all.npz", **given, **{"2": dst, "3": exact("BiasAddBackward", dst)})
    code, _, err = said("run", "chain.json", "--tensors", "all.npz")
    assert code != 0
    assert "all.npz:2: BiasAddBackward 1 reads it, as diff_dst, in f16; got float32" in err


def foreign() -> None:
    """A graph of no op of the family, in foreign.json, and its tensors, in foreign.npz."""
    src, dst = (LogicalTensor(n, "f32", (2, 2)) for n in range(2))
    save("foreign.json", Op(0, "ReLU", (src,), (dst,)))
    np.savez("foreign.npz", **{"0": np.ones((2, 2), np.float32), "1": np.ones((2, 2), np.float32)})


@pytest.mark.parametrize("tensors", [[], ["--tensors", "foreign.npz"]])
def test_a_graph_of_which_nothing_ran_is_no_success(said, tensors: list[str]) -> None:
    foreign()
    left = "" if tensors else "; not run: ReLU 0"  # the result that is given stands for the op
    code, out, err = said("run", "foreign.json", "--check", "oracle", *tensors)
    assert code == 1
    assert out.splitlines()[-1] == f"0 of 1 ops ran; nothing was compared, which is no success{left}"
    assert "reproduce: convgrad run foreign.json" in err
    code, out, _ = said("run", "foreign.json", "--check", "oracle", "--json", *tensors)
    skipped = {} if tensors else {"not_run": ["ReLU 0"]}
    assert (code, json.loads(out.splitlines()[-1])) == (1, {"ops": 1, "ran": 0, "compared": 0, "ok": False} | skipped)
    code, out, _ = said("run", "foreign.json", *tensors)
    assert (code, out.splitlines()[-1]) == (int(not tensors), f"0 of 1 ops ran{left}")


def test_a_recorded_result_that_nothing_computes_is_no_success(said) -> None:
    """Without weights only the bias gradient can run: the other result stays unjudged, whatever it is."""
    src, weights, dst, diff_dst, bias = (
        LogicalTensor(n, "f32", shape) for n, shape in enumerate([(1, 4, 2), (3, 2, 2), (1, 4, 2), (1, 4, 2), (2,)])
    )
    ops = Op(0, "Convolution", (src, weights), (dst,), LEFT), Op(1, "BiasAddBackward", (diff_dst,), (bias,))
    save("two.json", *ops)
    arrays = {"2": np.zeros((1, 4, 2), np.float32), "3": np.ones((1, 4, 2), np.float32)}
    np.savez("some.npz", **arrays)
    code, out, _ = said("run", "two.json", "--tensors", "some.npz")
    assert code == 1
    assert "Convolution 0 did not run: waits for tensor 0; some.npz:2 was not compared" in out
    assert out.splitlines()[-1] == "1 of 2 ops ran; nothing was compared, which is no success; not run: Convolution 0"
    np.savez("some.npz", **arrays, **{"4": np.full(2, 4, np.float32)})
    code, out, _ = said("run", "two.json", "--tensors", "some.npz")
    assert code == 1
    assert (
        out.splitlines()[-1]
        == "1 of 2 ops ran; comparisons failed or could not be made, see above; not run: Convolution 0"
    )
    code, out, _ = said("run", "two.json", "--tensors", "some.npz", "--json")
    skipped, judgement = (json.loads(line) for line in (out.splitlines()[0], out.splitlines()[-1]))
    assert (code, skipped["not_compared"]) == (1, ["some.npz:2"])
    assert judgement == {"ops": 2, "ran": 1, "compared": 1, "ok": False, "not_run": ["Convolution 0"]}


def test_what_follows_a_wrong_result_does_not_make_it_right(said) -> None:
    """Neither an op that does not run nor a right result."""
    diff_dst, active = LogicalTensor(0, "f32", (2, 3)), LogicalTensor(1, "f32", (2, 3))
    first, second = LogicalTensor(2, "f32", (3,)), LogicalTensor(3, "f32", (3,))
    for last in (Op(1, "ReLU", (diff_dst,), (active,)), Op(1, "BiasAddBackward", (diff_dst,), (second,))):
        save("two.json", Op(0, "BiasAddBackward", (diff_dst,), (first,)), last)
        right = {"3": np.full(3, 2, np.float32)} if last.kind == "BiasAddBackward" else {}
        np.savez("some.npz", **{"0": np.ones((2, 3), np.float32), "2": np.full(3, 3, np.float32)}, **right)
        code, out, _ = said("run", "two.json", "--tensors", "some.npz")
        assert (code, out.count("WRONG"), out.count("ok: 3 of 3")) == (1, 1, len(right))


def test_a_graph_whose_ops_all_wait_is_no_success(said) -> None:
    chain()
    np.savez("no_weights.npz", **{"0": np.zeros((2, 8, 4), np.float16)})
    code, _, err = said("run", "chain.json", "--tensors", "no_weights.npz", "--check", "oracle")
    assert (code, "no op can run; this one waits for tensor 1" in err) == (1, True)


def test_a_narrow_result_in_a_wide_file(said: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An f32 file whose values all fit bf16 is judged as bf16 if the result is bf16, as ``verify --got`` does."""
    monkeypatch.chdir(tmp_path)
    diff_dst = np.random.default_rng(0).standard_normal((3, 50, 4)).astype(np.float32)
    wide = np.float32(diff_dst.sum((0, 1), np.float64).astype(FORMATS["bf16"].dtype))
    np.save("diff_dst.npy", diff_dst)
    np.save("wide.npy", wide)
    code, out, _ = said("run", "BiasAddBackward", "diff_dst.npy", "--dtype", "bf16", "--expect", "wide.npy")
    assert (code, "ok: 4 of 4 equal" in out) == (0, True)
