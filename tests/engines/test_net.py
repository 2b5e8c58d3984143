"""The net under a change of the engine: plans, tables and kernels are those that were written down."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from itertools import product
from typing import Any

import pytest

from convgrad.engines.llvm.driver import module_of
from convgrad.notation import problem, read, write
from convgrad.plan.machine import ISAS, Machine
from convgrad.plan.passes import dense_view, plans
from convgrad.spec.geometry import Axis, Conv
from tests.net import FILE, caught, differs, lines_of, numbered, problems_of, written
from tests.support.classes import line_of
from tests.support.forward_problems import along
from tests.support.tiers import tiers

FOURTHS = 4  # a problem takes 0.02 s to plan and to generate


def assert_same(there: list[str], made: list[str]) -> None:
    changed = [f"{was}\n{now}" for was, now in zip(there, made, strict=True) if was != now]
    assert not changed, f"{len(changed)} of {len(there)} lines changed:\n" + "\n".join(changed[:3])


@tiers("turn, first", range(len(ISAS)), range(FOURTHS), every=len(ISAS) * FOURTHS)
def test_each_problem_on_an_instruction_set_is_that_of_the_golden_file(turn: int, first: int) -> None:
    """Every fourth problem, each on an instruction set in turn."""
    there, made = [], []
    found = list(enumerate(re.split(r"\n(?=\S)", FILE.read_text().strip())))
    for at, words in found[first::FOURTHS]:
        line, *rows = words.splitlines()
        if line.startswith("#"):
            continue
        problems = problems_of(line)
        among = [isa for isa in ISAS.values() if differs(problems[0], isa)]
        isa = among[(at + turn) % len(among)]
        there += [row for row in rows if row.split()[0] == str(isa)]
        made += [f"  {isa} {caught(problem, isa)}" for problem in problems]
    assert_same(there, made)


@pytest.mark.long
def test_the_golden_file_is_what_the_program_writes() -> None:
    text = FILE.read_text()
    assert_same([line for line in text.splitlines() if line[0] != "#"], written(lines_of(text)).splitlines())


FUNCTION = """define void @f(i64 %a, i64 %b) {
entry:
  %v1 = sub i64 %a, %b
  br label %entry
}"""


@pytest.mark.parametrize(
    ("old", "new", "same"), [("a", "size", True), ("entry", "start", True), ("%a, %b", "%b, %a", False)]
)
def test_a_renaming_does_not_change_the_net(old: str, new: str, same: bool) -> None:
    """The names of a function's parameters, values and blocks are not in the net; their order is."""
    head, body = FUNCTION.split("{")
    other = f"{head}{{{body.replace(old, new)}" if not same else re.sub(rf"\b{old}\b", new, FUNCTION)
    assert other != FUNCTION
    assert (numbered(other) == numbered(FUNCTION)) == same


def axes_of(kernel: int, along_last: bool, way: str, far: int) -> tuple[Axis, ...]:
    """Return two axes of nine and 21 positions, one of which has a stride or a dilation."""
    scaled = {"strides": (far, 1, (0, 0)), "dilations": (1, far - 1, (far, far)), "both": (far, far - 1, (1, 0))}[way]
    plain = along(9, 3, pads=(1, 1)), along(21, kernel, pads=(kernel // 2, kernel // 2))
    return (plain[0], along(21, kernel, *scaled)) if along_last else (along(9, 3, *scaled), plain[1])


@cache  # most plans have the same kernel, whatever the stride is
def length_of(spec: Any) -> int:
    """Return the length of the code of a kernel."""
    return len(module_of(spec))


GROWING = [(64, 64, 64), (4, 32, 16), (1, 16, 40), (1, 8, 3)]  # groups, channels of src and of dst


@tiers("channels, data, way", GROWING, ("NXC", "NCX"), ("strides", "dilations", "both"), every=17)
def test_code_does_not_grow_with_strides_and_dilations(channels: tuple[int, int, int], data: str, way: str) -> None:
    """Code that grows with them takes minutes to compile, however few positions there are."""
    for role, kernel, along_last in product(("FWD_D", "BWD_D", "BWD_W"), (1, 3), (False, True)):
        sizes = dict[str, set[int]]()
        for far in (4, 1000):
            conv = Conv(1, *channels, axes_of(kernel, along_last, way, far))
            one = problem(write(replace(read(line_of(conv, "f32", data, False)), direction=role)))
            for plan in plans(one, dense_view(one), Machine(ISAS["avx512"]), 2, 1):
                sizes.setdefault(plan.spec.body, set()).add(length_of(plan.spec))
        for body, lengths in sizes.items():
            assert max(lengths) <= 4 * min(lengths), (role, body, kernel, along_last)


def test_the_net_is_wide() -> None:
    text = FILE.read_text()
    made = [one.solves_for for line in lines_of(text) for one in problems_of(line)]
    assert len(made) >= 240
    assert min(made.count(role) for role in ("weights", "dst", "src")) >= 18
    for word in ("output_block=", "rows=dst:place", "lanes=weights:input channels", "out=spatial"):
        assert text.count(word) >= 10, word
    for word in ("by=dense", "by=thin", "by=grouped", "by=depthwise", "rows=src:place"):
        assert text.count(word) >= 10, word
