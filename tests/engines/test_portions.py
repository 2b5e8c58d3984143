"""Weight gradients of bf16 in two chains: every kernel has the specified bits, for any data, among guard pages."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from convgrad.engines.llvm import isas
from convgrad.formats import F32
from convgrad.notation import problem as problem_from
from convgrad.plan.machine import ISAS, Isa
from convgrad.plan.passes import dense_view
from convgrad.plan.split_k.portions import not_dense, unsupported
from convgrad.plan.split_k.recipe import PORTIONS, SplitKPlan
from convgrad.spec.ordered import evaluate_in_order
from convgrad.spec.problem import Problem
from tests.engines.guarded import Placed, run_guarded
from tests.engines.test_tiles import needs_amx
from tests.support.engine_helpers import HOST, KINDS, Array, empty, made, modelled, plans_for, tiled
from tests.support.helpers import assert_same_bits
from tests.support.tiers import tiers

pytestmark = pytest.mark.skipif(not HOST, reason="no generated kernels run here")

LINES = [  # portions cross rows and images
    "BWD_W bf16 NXC mb12ic17ih7oc33oh7kh3ph1",
    "BWD_W bf16 NCX mb7ic33ih9oc16oh5kh3sh2ph1",
    "BWD_W bf16 NXC mb2ic16ih21oc24oh21kh3ph1",
    "BWD_W bf16 NCX mb2ic40iw299oc18ow301kw5pw3",  # odd begins after padding; rows cut every 256
    "BWD_W bf16 NXC g2mb3ic36ih9iw5oc40oh9ow5kh3kw2ph1pw1dw1",
    "BWD_W bf16 NXC mb300ic16iw1oc31ow1kw1pw0",  # images of one position
    "BWD_W bf16 NXC mb3ic64ih15oc48oh15kh1ph0",
    "BWD_W bf16 NXC mb2ic16id3ih4iw5oc16od3oh4ow5kd3kh3kw3pd1ph1pw1",
    "deconv BWD_W bf16 NXC mb3ic32ih6oc17oh12kh4sh2ph1",
    "BWD_W bf16 NXC mb3ic19ih5oc16oh3kh3ph4dh4",  # taps that see padding only
    "BWD_W bf16 NXC mb12ic65ih7oc80oh7kh3ph1",  # several panels
    "BWD_W bf16 NXC g2mb5ic80ih10oc34oh10kh3ph1",
    "BWD_W bf16 NXC mb700ic48iw1oc50ow1kw1pw0",
    "BWD_W bf16 NXC mb2ic20ih40iw61oc47oh20ow31kh3kw5sh2sw2ph1pw2",
]
DATA = ("normal", "small", "special")
ISA_NAMES = (*HOST, "fused", "flushed", *(isa.name for isa in isas.host_isas() if isa.pairs and not isa.tiles), *KINDS)


def isa_of(name: str) -> Isa:
    """An instruction set of this machine, one with modelled pairs, or one with tiles."""
    if name in KINDS:
        return tiled(name)
    return ISAS[name] if name in ISAS else modelled(ISAS[HOST[-1]], name)


def posed(line: str, data: str) -> tuple[Problem, list[Array]]:
    """A problem with operands: normal numbers, or some whose products are denormal, or NaN and infinity.

    Sums are not rounded to bf16, because this would hide most differences.
    """
    one, operands = made(line)
    rng = np.random.default_rng(len(line))
    for array in operands:
        if data == "small":
            array[...] = (array.astype(np.float32) * 2.0 ** rng.integers(-90, -40, array.shape)).astype(array.dtype)
        if data == "special":
            array[rng.random(array.shape) < 0.01] = rng.choice([np.nan, np.inf, -np.inf])
    return replace(one, output_format=F32), operands


def some_of(plans: list[SplitKPlan]) -> Iterator[SplitKPlan]:
    """Yield the cheapest plan of each strategy and operands, and others; also with other parts of the batch."""
    for plan in (
        {(plan.strategy, plan.operands): plan for plan in reversed(plans)} | dict(enumerate(plans[::60]))
    ).values():
        yield plan
        yield replace(plan, parts=(1, 1, 1, 1, 2), threads=2)


@tiers("line, data, layout, name", LINES, DATA, ("NXC", "NCX"), ISA_NAMES, every=89)
def test_every_kernel_has_the_specified_bits(line: str, data: str, layout: str, name: str) -> None:
    one, operands = posed(line.replace("NXC", layout).replace("NCX", layout), data)
    expected = evaluate_in_order(one, operands)
    cache, threads = 1 << (12, 20)[len(line + data) % 2], 1 + len(line) % 3
    for number, plan in enumerate(some_of(plans_for(one, operands, empty(one), isa_of(name), threads, cache))):
        out = Placed(empty(one), empty(one).strides, number % 2 == 0)
        run_guarded(plan, one, operands, out.array, number % 2 == 0)
        assert_same_bits(np.ascontiguousarray(out.array), expected, (line, str(plan)))
        assert out.intact()


def test_which_layers_use_portions() -> None:
    """Portions need 16 channels of both operands, and contiguous channels, or at least every second position."""
    expected = {
        "BWD_W bf16 NXC mb2ic16ih9oc16oh9kh3ph1": "",
        "BWD_W bf16 NXC mb2ic15ih9oc16oh9kh3ph1": "sums have one chain",
        "BWD_W f16 NXC mb2ic16ih9oc16oh9kh3ph1": "sums have one chain",
        "BWD_W bf16 NCX mb2ic16ih9oc16oh9kh3ph1": "",
        "BWD_W bf16 NCX mb2ic16ih9oc16oh5kh3ph1sh2": "",
        "BWD_W bf16 NCX mb2ic16ih9oc16oh3kh3ph1sh3": "fewer than every second position of src is read",
    }
    for line, reason in expected.items():
        one = problem_from(line)
        assert unsupported(one, dense_view(one), ISAS["amx"]) == reason, line
        assert bool(not_dense(one, dense_view(one), ISAS["amx"])) == (not reason)
    one = problem_from("BWD_W bf16 NCX mb2ic16ih9oc16oh9kh3ph1")
    wanted = "vectors are too short to load positions of src under masks"
    assert unsupported(one, dense_view(one), ISAS["avx2"]) == wanted


@needs_amx
def test_tiles_are_faster_in_the_plan_of_a_dense_layer() -> None:
    one, operands = made("BWD_W bf16 NXC mb4ic64ih28oc64oh28kh3ph1")
    assert plans_for(one, operands, empty(one), ISAS["amx"])[0].spec.body == PORTIONS
