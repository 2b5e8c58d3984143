"""The hashes of a machine with AVX-512, held on every instruction set of this one; the program that compares them."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import pytest

from convgrad import engines
from convgrad.engines.llvm import execute, isas, jit
from convgrad.engines.llvm import tree as emitted
from convgrad.plan import tree as planned
from convgrad.plan.machine import ISAS, Machine
from convgrad.spec.geometry import Conv
from convgrad.spec.order import BLOCK, order_of
from convgrad.spec.ordered import evaluate_in_order
from tests.hashes import DIFFERS, DONE, FILE, hash_of, hash_of_all, hashes_in, main
from tests.support.classes import ALL_TYPES, TYPES
from tests.support.engine_helpers import HOST, digest
from tests.support.hash_problems import DATA, NORMALS, SAID, WAYS, drawn, operands_and_out, problems
from tests.support.hash_problems import FEW as FEW_CHANNELS
from tests.support.tiers import tiers

GOLDEN = hashes_in(FILE)
WORDS = list(GOLDEN)
QUICK = WORDS[7::31]  # some of them with more leaves than a tree has children
SMALL = 20_000  # multiply-adds: what the specified order is executed on


def written(path: Path, hashes: dict[str, str], end: str = "") -> list[str]:
    """Write a file of hashes; return the program's arguments that compare with it."""
    rows = [f"{found}  {words}" for words, found in hashes.items()]
    path.write_text("\n".join([*rows, end or f"{hash_of_all(hashes.values())}  all of {len(hashes)}", ""]))
    return ["--against", str(path)]


@tiers("isa", HOST, every=2)
def test_the_hashes_are_those_of_the_golden_file(isa: str) -> None:
    """Each by one instruction set in turn; all by each in the long tier."""
    mine = QUICK[HOST.index(isa) :: len(HOST)]
    assert {words: hash_of(words, ISAS[isa]) for words in mine} == {words: GOLDEN[words] for words in mine}


@pytest.mark.long
@pytest.mark.parametrize("isa", HOST)
def test_all_hashes_are_those_of_the_golden_file(isa: str) -> None:
    assert {words: hash_of(words, ISAS[isa]) for words in WORDS} == GOLDEN


def test_the_golden_hashes_are_those_of_the_specified_order() -> None:
    compared = 0
    for words in WORDS:
        one = problems(words)[0]
        if len(problems(words)) > 1 or not isinstance(one.geometry, Conv) or one.geometry.multiply_adds > SMALL:
            continue
        operands, out = operands_and_out(one, words)
        with np.errstate(all="ignore"):
            assert digest(evaluate_in_order(one, operands, out)) == GOLDEN[words], words
        compared += 1
    assert compared >= 10


def test_trees_of_other_arity_have_other_hashes(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (planned, emitted):
        monkeypatch.setattr(module, "FAN_IN", 8)
        monkeypatch.setattr(module, "DIGIT_BITS", 3)
    monkeypatch.setattr(execute, "_kept", {})  # prepared calls have tables of chains
    monkeypatch.setattr(jit._linker, "kernels", {})
    monkeypatch.setenv("CONVGRAD_CACHE_DIR", "off")
    assert sum(hash_of(words, ISAS[HOST[0]]) != GOLDEN[words] for words in WORDS[7:180:29]) >= 2


@pytest.mark.long  # 531 problems are planned
def test_the_file_is_wide() -> None:
    """All classes, roles, types, layouts and strategies; most problems of several blocks, some of several tasks."""
    assert len(WORDS) == 531
    made = [one for words in WORDS for one in problems(words)]
    plans = [engines.plan_of(one, Machine(ISAS["neon"]), 2) for one in made]
    ways = [(type(plan), plan.strategy) for plan in plans]
    assert min(map(ways.count, {*ways})) >= 4
    assert len({*ways}) == 11
    assert sum(plan.threads > 1 for plan in plans) >= 90
    for roles, operators, least in ((("weights", "bias"), 2 * 4 + 2, 90), (("dst", "src"), 4 * 4, 12)):
        some = [one for one in made if one.solves_for in roles]
        assert {(one.operand_format.name, one.output_format.name) for one in some} >= {*product(TYPES, TYPES)}
        assert {one.operand_format.name for one in some} == {*ALL_TYPES}
        assert len({(one.layouts, one.operator) for one in some}) >= operators
        assert sum(order_of(one).terms > BLOCK for one in some) > least
    assert {words.split()[-2] for words in WORDS} == set(WAYS)
    first = [operands_and_out(problems(words)[0], words)[0][0] for words in QUICK]
    with np.errstate(invalid="ignore"):
        assert {bool(np.isfinite(array.astype(np.float32)).all()) for array in first} == {True, False}


# -- the program -------------------------------------------------------------------------------------------------------

FEW = {words: GOLDEN[words] for words in QUICK[:2]}


def test_a_file_of_right_hashes_is_accepted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(written(tmp_path / "right.txt", FEW)) == DONE
    isa, *rows, total, verdict = capsys.readouterr().out.splitlines()
    assert isa == f"# computed with {isas.isa()}"
    assert rows == [f"{found}  {words}" for words, found in FEW.items()]
    assert total == f"{hash_of_all(FEW.values())}  all of 2"
    assert "2 of 2 problems" in verdict


def test_a_wrong_hash_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wrong = {**FEW, QUICK[1]: FEW[QUICK[0]]}
    assert main(written(tmp_path / "wrong.txt", wrong)) == DIFFERS
    out, err = capsys.readouterr()
    assert err == f"differs: {QUICK[1]}\n"
    assert "1 of 2 problems" in out


ENDS = {"cut": FEW[QUICK[0]] + "  " + QUICK[0], "of more": f"{'0' * 64}  all of 3"}


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
def test_a_file_that_was_cut_is_refused(end: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(written(tmp_path / "cut.txt", FEW, end))
    assert "must end with the hash of all" in capsys.readouterr().err


@pytest.mark.parametrize(("engine", "line"), [("numpy", QUICK[0]), ("", "FWD_D f64 NXC mb1ic1iw8oc1kw3 to f64")])
def test_a_problem_of_another_engine_is_refused(
    engine: str, line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONVGRAD_MAX_ISA", engine)
    with pytest.raises(SystemExit, match="2"):
        main(written(tmp_path / "one.txt", {line: "0" * 64}))
    assert "must be the choice; got numpy" in capsys.readouterr().err


def test_drawn_problems_are_printed(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.hashes.SAID", SAID[:2])  # all of them are in the golden file
    monkeypatch.setattr("tests.hashes.NORMALS", NORMALS[:1])
    assert main(["-n", "1", "-d", "1", "-f", "1"]) == DONE
    expected = [*drawn(1), *drawn(1, DATA), *SAID[:2], NORMALS[0], *drawn(1, FEW_CHANNELS)]
    assert {*SAID, *NORMALS} <= set(GOLDEN)
    assert [row.split("  ")[1] for row in capsys.readouterr().out.splitlines()[1:-1]] == expected
