"""The code of kernels for GPUs: each multiply-add is rounded once, no denormal is flushed, no variable is in memory."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from convgrad.engines.cuda.kernels import CAPABILITY, ptx
from convgrad.engines.llvm import isas
from convgrad.notation import problem as problem_of
from convgrad.plan.cuda.plan import plan
from convgrad.plan.cuda.recipe import PER_THREAD, PackSpec, SingleSpec, Spec, TileSpec
from convgrad.plan.cuda.tables import DEPTH
from convgrad.plan.passes import dense_strides
from convgrad.spec.activation import activated
from tests.engines.test_cuda_bits import CHAINS, FORMATS, GROUPS, IMAGES, PHASES, RANKS
from tests.support.pairs import few_of
from tests.support.tiers import tiers

pytestmark = pytest.mark.skipif(not isas.host_isas(), reason="no generated kernels run here")

PROCESSORS = 132
REGISTERS = 1 << 16  # of a multiprocessor
SHARED_LIMIT = 99 << 10  # bytes of shared memory of a block that all GPUs of the oldest capability or newer have
LARGE = [
    f"{direction} f32 {lies} mb32ic256ih14oc256oh14kh3ph1"
    for direction, lies in (("FWD_D", "NXC"), ("BWD_D", "NCX"), ("BWD_W", "NXC"))
]  # fmt: skip
SPLIT = [
    LARGE[0].replace("f32", "bf16"), "FWD_D bf16 NCX mb1ic33ih56oc64oh56kh3ph1", "FWD_D bf16 NXC mb1ic64ih8oc64oh8kh1",
    "FWD_D bf16 NXC mb1ic64ih8oc8oh8kh1", LARGE[2].replace("f32", "bf16"), "BWD_W bf16 NCX mb8ic64ih56oc64oh56kh3ph1",
    "BWD_W bf16 NXC mb256ic512ih7oc512oh7kh3ph1",
]  # fmt: skip
LINES = [*LARGE, *SPLIT, CHAINS[2], IMAGES[0], PHASES[0], RANKS[-1], *GROUPS[2:4], *FORMATS[::8]]


@cache
def specs(few: bool = False) -> list[Spec]:
    """Return the different kernels of some problems, or few of them that have all values of each field."""
    if few:
        return few_of(specs(), values_of)
    problems = [problem_of(line) for line in (*LINES, "FWD_B f16 NXC mb1ic16ih8oc16oh8kh1")]
    problems.append(activated(problems[-1], "relu"))
    plans = [plan(one, dense_strides(one), PROCESSORS) for one in problems]
    return list(dict.fromkeys(launch.spec for one in plans for launch in one.launches))


def values_of(spec: Spec) -> set[tuple[Any, ...]]:
    """Return the values of the fields of a kernel, and how the leaves of its sums are divided."""
    leaves = (spec.split, spec.portions, spec.nodes) if isinstance(spec, TileSpec | SingleSpec) else ()
    return {(spec.name, *leaves), *((spec.name, one.name, getattr(spec, one.name)) for one in fields(spec))}


SOME = tiers("few", [True], long=[False])


@SOME
def test_kernels_of_all_kinds_are_seen(few: bool) -> None:
    assert {spec.name for spec in specs(few)} == {"tile", "single", "level", "pack"}
    products = [spec for spec in specs(few) if isinstance(spec, TileSpec | SingleSpec)]
    split = {(spec.name, spec.portions, spec.nodes) for spec in products if spec.split}
    tiles = {("tile", portions, nodes) for portions in (False, True) for nodes in (False, True)}
    assert split >= {*tiles, ("single", False, False)}


@SOME
def test_each_multiply_add_is_rounded_once_and_no_denormal_is_flushed(few: bool) -> None:
    for spec in specs(few):
        text = ptx(spec)
        operations = set(re.findall(r"\t((?:fma|mul|mad|add|sub)\S*f32)\b", text))
        # without a multiplication, the assembler has nothing to fuse an addition with
        assert operations <= {"fma.rn.f32", "add.f32", "add.rn.f32"}, (spec, operations)
        assert ".ftz" not in text, spec
        assert ".approx" not in text, spec
        if spec.name == "tile":
            assert text.count("fma.rn.f32") >= DEPTH * PER_THREAD**2, spec


@SOME
def test_nan_is_canonical(few: bool) -> None:
    """A GPU narrows NaN to f16 with all bits set, so kernels select the canonical NaN afterwards."""
    stored = [spec for spec in specs(few) if not isinstance(spec, PackSpec)]
    narrow = [spec for spec in stored if spec.store.output == "f16" and not spec.store.partial]
    assert narrow
    for spec in narrow:
        assert re.search(r"(32256|0x7E00)\b", ptx(spec)), spec


@SOME
def test_variables_are_in_registers(few: bool) -> None:
    for spec in specs(few):
        assert ".local" not in ptx(spec), spec


def test_shared_memory_fits() -> None:
    assert max(spec.shared_bytes for spec in specs()) <= SHARED_LIMIT


def assembler() -> str | None:
    """Return the path of NVIDIA's assembler, from the PATH or from its wheel."""
    if found := shutil.which("ptxas"):
        return found
    wheel = importlib.util.find_spec("nvidia")
    places = wheel.submodule_search_locations if wheel else None
    return next((str(file) for place in places or () for file in Path(place).rglob("bin/ptxas")), None)


@pytest.mark.skipif(not assembler(), reason="NVIDIA's assembler is not installed")
@tiers("capability, few", [(CAPABILITY, True)], long=[(CAPABILITY, False), ("sm_90", False)])
def test_the_assembler_takes_all_kernels(capability: str, few: bool, tmp_path: Path) -> None:
    command = assembler()
    assert command
    for number, spec in enumerate(specs(few)):
        file = tmp_path / f"{number}.ptx"
        file.write_text(ptx(spec))
        asked = [command, "-v", f"-arch={capability}", str(file), "-o", str(tmp_path / "code")]
        done = subprocess.run(asked, capture_output=True, text=True, check=False)
        assert done.returncode == 0, (spec, done.stderr)
        (registers,) = re.findall(r"Used (\d+) registers", done.stderr)
        resident = spec.resident if isinstance(spec, TileSpec) else 2
        assert int(registers) * spec.threads * resident <= REGISTERS, spec
