"""The net under a change of the engine: what 269 problems become on each instruction set, in names of its own.

``python tests/net.py`` writes ``tests/golden/net.txt`` anew, for the problem lines that stand in it. A line of the file
is a problem; each line under it is one instruction set's plan as values, then hashes of its tables, its numbers and its
kernel's IR. A change that is to change nothing leaves the file as it is; another's commit says which lines changed, and
why. Wording is not in it, nor are the names of numbers and of values in the IR: a renaming changes nothing.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from convgrad import engines, notation
from convgrad.engines.llvm.driver import module_of
from convgrad.formats import BF16
from convgrad.plan.gemm.spec import GemmPlan, TransposedGemmPlan
from convgrad.plan.kn2row.spec import Kn2rowPlan
from convgrad.plan.machine import ISAS, Isa, Machine
from convgrad.plan.passes import arguments_of, dense_view, tables
from convgrad.plan.split_k.recipe import SplitKPlan
from convgrad.plan.stencils.grouped import GroupedStencilPlan
from convgrad.plan.stencils.spatial import SpatialStencilPlan
from convgrad.plan.tables import Schedule
from convgrad.spec.check import check_attributes
from convgrad.spec.operators import find
from convgrad.spec.problem import Problem, problem_of

FILE = Path(__file__).parent / "golden" / "net.txt"
THREADS = 2


def problems_of(line: str) -> list[Problem]:
    """The problem of a line, and the bias gradient where it has one."""
    made = []
    for call in notation.calls(notation.read(line)):
        op = find(call.operator)
        attributes = check_attributes(op, call.attributes, len(call.shapes[0]) - 2)
        made.append(problem_of(op, call.shapes, attributes, call.format, call.format))
    return made


def lines_of(text: str) -> list[str]:
    """The problem lines of a file."""
    return [line for line in text.splitlines() if line and line[0] not in " #"]


def written(lines: Iterable[str]) -> str:
    """The file of some problem lines."""
    rows = []
    for line in lines:
        rows.append(line)
        for isa in ISAS.values():
            rows += [f"  {isa} {caught(problem, isa)}" for problem in problems_of(line) if differs(problem, isa)]
    return "\n".join([*rows, ""])


def differs(problem: Problem, isa: Isa) -> bool:
    """Whether an instruction set may make anything else of a problem than the one without its word for pairs does."""
    return not isa.pairs or problem.operand_format is BF16


def caught(problem: Problem, isa: Isa) -> str:
    """What a problem becomes on an instruction set."""
    plan = engines.plan_of(problem, Machine(isa), THREADS)
    made = tables(problem, dense_view(problem), plan)
    values = VALUES[type(plan)](plan, made)
    return f"{values} tables {_tables(made)} numbers {_numbers(plan, made)} ir {_ir(plan.spec)}"


def _values(plan: SplitKPlan, made: Schedule) -> str:
    spec, tile, (a, b) = plan.spec, plan.spec.micro_tile, plan.operands
    operands = (("rows", a, spec.a), ("lanes", b, spec.b))
    words = {
        "by": plan.strategy,
        "tile": f"{tile.mr}x{tile.nr}x{tile.outer_taps}x{tile.inner_taps}",
        **{name: f"{tensor}:{'place' if one.in_place else one.contiguous}" for name, tensor, one in operands},
        "lanes_hold": "groups" if spec.groups_in_lanes else "channels",
        "held": spec.slide,
        "parts": ",".join(map(str, plan.parts)),
        "chunk": f"{plan.chains_a_cache_block}b{plan.images_a_cache_block}n",
        "threads": plan.threads,
        "height": plan.rounding_depth,
        "scratch": made.scratch_bytes,
        "kept": made.partial_bytes,
    }
    return " ".join(f"{name}={value}" for name, value in words.items())


def _data_values(plan: GemmPlan, made: Schedule) -> str:
    spec, (rows, lanes) = plan.spec, plan.operands
    words = {
        "by": plan.strategy.replace(" ", "_"),
        "tile": f"{spec.mr}x{spec.nr}{'+1' * spec.single_vector}",
        "rows": f"{rows}:{'place' if spec.a.in_place else spec.a.contiguous}",
        "lanes": f"{lanes}:{'place' if spec.b.in_place else spec.b.contiguous}",
        "out": spec.out,
        "parts": ",".join(map(str, plan.parts)),
        "output_block": "x".join(map(str, plan.output_block)),
        "panels": plan.panels,
        "threads": plan.threads,
        "height": plan.rounding_depth,
        "scratch": made.scratch_bytes,
    }
    return " ".join(f"{name}={value}" for name, value in words.items())


def _products_values(plan: Kn2rowPlan, made: Schedule) -> str:
    spec, tile, (data, weights) = plan.spec, plan.spec.product, plan.operands
    words = {
        "by": plan.strategy.replace(" ", "_"),
        "tile": f"{tile.mr}x{tile.nr}{'+1' * tile.single_vector}",
        "rows": f"{weights}:{tile.a.contiguous}",
        "lanes": f"{data}:{tile.b.contiguous}",
        "out": spec.out,
        "parts": plan.tasks,
        "slab": "x".join(map(str, plan.output_block)),
        "chunk": f"{plan.cache_block}x{plan.block}",
        "threads": plan.threads,
        "height": plan.rounding_depth,
        "scratch": made.scratch_bytes,
    }
    return " ".join(f"{name}={value}" for name, value in words.items())


def _planes_values(plan: SpatialStencilPlan, made: Schedule) -> str:
    spec = plan.spec
    words = {
        "by": plan.strategy.replace(" ", "_"),
        "tile": f"{spec.results}x{spec.lines}x{spec.vectors}",
        "parts": plan.tasks,
        "threads": plan.threads,
        "height": plan.rounding_depth,
        "scratch": made.scratch_bytes,
    }
    return " ".join(f"{name}={value}" for name, value in words.items())


VALUES: dict[type, Callable[[Any, Schedule], str]] = {
    SplitKPlan: _values, GemmPlan: _data_values, TransposedGemmPlan: _data_values, GroupedStencilPlan: _data_values,
    Kn2rowPlan: _products_values, SpatialStencilPlan: _planes_values,
}  # fmt: skip


def _tables(made: Schedule) -> str:
    named = sorted((name, np.ascontiguousarray(table)) for name, table in made.tables.items())
    return _hash(f"{name} {table.dtype} {table.shape}".encode() + table.tobytes() for name, table in named)


def _numbers(plan: Any, made: Schedule) -> str:
    """The numbers in the order in which the kernel has them."""
    columns = arguments_of(plan.spec).columns
    assert made.numbers.keys() <= {*columns}, "each number is an argument"
    return _hash([str([made.offsets, *(made.numbers.get(name) for name in columns)]).encode()])


@cache
def _ir(spec: Any) -> str:
    return _hash([numbered(module_of(spec)).encode()])


def numbered(ir: str) -> str:
    """IR whose local names, of values and of blocks, are numbers in order of appearance."""
    return "define ".join(_numbered(function) for function in ir.split("define "))


def _numbered(function: str) -> str:
    names: dict[str, int] = {}
    local = re.sub(r"^([A-Za-z_][\w.]*):", r"%\1:", function, flags=re.MULTILINE)
    return re.sub(r"%([A-Za-z_][\w.]*)", lambda name: f"%{names.setdefault(name[1], len(names))}", local)


def _hash(parts: Iterable[bytes]) -> str:
    return hashlib.sha256(b"\n".join(parts)).hexdigest()[:12]


if __name__ == "__main__":
    HEAD = "# Written by tests/net.py, which says what this is.\n"
    FILE.write_text(HEAD + written(lines_of(FILE.read_text())))
