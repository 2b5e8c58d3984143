"""Right results of many orders and kinds of data, judged: how many are not ok, and which.

``python -m campaigns verdict --problems 300 --seed 1`` judges, of each problem, two dozen orders of its sums in
two types of results, convgrad's own and, where it is installed, PyTorch's on 1 and 2 threads. Every alarm is printed;
the exit code is 1 if more than one in 10,000 is not ok. ``--names`` also looks for names in each right result, with the
elements that are not the rounded exact sum taken for wrong, and prints the names. Verdicts on ok results have no names.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from campaigns.command import parser_of
from convgrad.formats import BF16, F16, F32, Format
from convgrad.functional.call import Prepared, prepare
from convgrad.notation import calls, read
from convgrad.spec.geometry import Conv
from convgrad.spec.operators import Operator, find
from convgrad.verify.check import verdict_on
from convgrad.verify.declared import declared
from convgrad.verify.diagnose import diagnose
from convgrad.verify.reference import Reference, certify
from convgrad.verify.verdict import OK, Verdict
from tests.support.helpers import Case, random_case
from tests.verify.verdict_data import KINDS, MORE, made
from tests.verify.verdict_orders import columns_of, finished, orders

Array = NDArray[Any]
# Longer sums than random cases have, of every role; more where there is time.
LINES = (
    "BWD_W f32 NXC mb4ic6ih20oc8oh20kh3ph1",
    "BWD_W f32 NXC mb8ic12ih16oc12oh16kh1",
    "BWD_W f32 NXC g4mb8ic4ih28oc4oh28kh3ph1",
    "BWD_W f32 NXC mb2ic9iw1000oc8ow1000kw1",
    "BWD_W bf16 NXC mb4ic6ih20oc8oh10kh3ph1sh2",
    "BWD_D f32 NXC mb1ic8ih9oc128oh9kh3ph1",
    "BWD_D f32 NXC mb2ic4ih12oc64oh6kh3ph1sh2",
    "FWD_B f32 NXC mb1ic200ih7oc12oh7kh3ph1",
    "FWD_D f16 NXC mb1ic64ih8oc8oh8kh5ph2",
    "FWD_D f32 NXC mb2ic512ih5oc16oh5kh1",
    "deconv FWD_D f32 NXC mb1ic64ih5oc6oh11kh3sh2",
    "deconv BWD_W f32 NXC mb8ic6ih12oc6oh25kh3sh2",
    "BWD_WB f32 NXC mb8ic2ih20oc16oh20kh1",
    "FWD_D f32 NXC mb1ic32id4ih4iw4oc6kd3kh3kw3pd1ph1pw1",
)


@dataclass
class Tally:
    """What was judged, and what of it is not ok."""

    results: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    alarms: list[str] = field(default_factory=list)
    largest: dict[str, float] = field(default_factory=dict)
    names: bool = False  # whether names are looked for in right results
    tried: int = 0
    named: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        outcomes = ", ".join(f"{name} {number}" for name, number in self.outcomes.items())
        most = ", ".join(f"{name} {value:.3g}" for name, value in sorted(self.largest.items()))
        names = f"; names in {len(self.named)} of {self.tried}" if self.names else ""
        return f"{self.results} results: {outcomes}; largest: {most}{names}"

    def count(self, what: str, verdict: Verdict) -> None:
        self.results += 1
        self.outcomes[verdict.outcome] += 1
        for name in ("R", "max", "bias", "slope"):
            value = abs(verdict.statistics.get(name, 0.0))
            self.largest[name] = max(self.largest.get(name, 0.0), value)
        if verdict.outcome != OK:
            said = ", ".join(f"{e.statistic} {e.value:.3g} > {e.threshold:.3g} {e.where}" for e in verdict.evidence)
            self.alarms.append(f"{verdict.outcome}: {what}: {said or verdict.reason or verdict}")
            print(self.alarms[-1], flush=True)

    def look_for_names(self, what: str, got: Array, prepared: Prepared, reference: Reference, fmt: Format) -> None:
        """Diagnose a right canonical result, as if the elements that are not the rounded exact sum were wrong."""
        problem = replace(prepared.problem, output_format=fmt)
        unequal = got != reference.rounded(fmt)
        if self.names and unequal.any():
            self.tried += 1
            found = diagnose(got, unequal, reference, problem, prepared.operands).found
            if found:
                self.named.append(f"{what}: {found}")
                print(f"named: {self.named[-1]}", flush=True)


def problems(seed: int, number: int, only: str = "", kinds: Collection[str] = KINDS) -> Iterator[tuple[str, Prepared]]:
    """Yield problems with made-up data, in words and prepared."""
    rng = np.random.default_rng(seed)
    lines = [only] if only else LINES
    for at in range(number):
        kind = list(kinds)[(at + seed) % len(kinds)]
        if only or at % 2:
            line = lines[at // 2 % len(lines)]
            found = calls(read(line))
            call = found[at // 2 // len(lines) % len(found)]
            name, op, shapes, attributes = line, find(call.operator), call.shapes, dict(call.attributes)
            fmt = call.format
        else:
            case = random_case(rng)
            while case.format.name == "f64" or not _posed(case):
                case = random_case(rng)
            name, op, shapes, attributes = str(case), case.op, case.shapes, dict(case.attributes)
            fmt = case.format
        yield f"{name}, {kind}", filled(op, shapes, attributes, fmt, kind, int(rng.integers(2**31)))


def _posed(case: Case) -> bool:
    return all(0 not in shape for shape in case.shapes)


def filled(
    op: Operator, shapes: Sequence[tuple[int, ...]], attributes: dict[str, Any], fmt: Format, kind: str, seed: int
) -> Prepared:
    """Return a call of f32 results prepared on data of a kind."""
    ports = op.operands
    inputs = [s if p.is_shape else np.zeros(s, fmt.dtype) for p, s in zip(ports, shapes, strict=False)]
    problem = prepare(op.name, tuple(inputs), attributes, "f32").problem
    tensors = iter(zip(problem.operands, problem.operand_orders, strict=True))
    for at, port in enumerate(ports[: len(inputs)]):
        if not port.is_shape:
            tensor, order = next(tensors)
            canonical = tuple(np.shape(inputs[at])[axis] for axis in order)
            values = made(kind, seed, canonical, tensor).transpose(np.argsort(order))
            inputs[at] = np.ascontiguousarray(values).astype(fmt.dtype)
    return prepare(op.name, tuple(inputs), attributes, "f32")


def judge_all(what: str, prepared: Prepared, seed: int, tally: Tally) -> None:
    """Judge every order's result of a problem, in two types, and the implementations'."""
    problem = prepared.problem
    how = declared(problem.operator, problem.operand_format)
    reference = certify(problem, prepared.operands)
    columns = columns_of(problem, prepared.operands)
    narrow = F16 if seed % 3 == 0 else BF16
    table = orders(columns, np.random.default_rng(seed)) if columns.terms else {}
    for name, summed in table.items():
        sums = summed()
        for fmt in (F32, narrow):
            got = finished(columns, sums, fmt).reshape(reference.value.shape)
            in_layout = got.transpose(np.argsort(problem.output_order))
            tally.count(f"{what}, {name}, {fmt}", verdict_on(in_layout, prepared, how, None, reference))
            tally.look_for_names(f"{what}, {name}, {fmt}", got, prepared, reference, fmt)
    for name, result in implementations(prepared):
        tally.count(f"{what}, {name}", verdict_on(result, prepared, how, None, reference))


def implementations(prepared: Prepared) -> Iterator[tuple[str, Array]]:
    """Yield what convgrad and, where it is installed, PyTorch compute in f32."""
    yield "convgrad", prepared.execute()
    problem, conv = prepared.problem, prepared.problem.geometry
    if not isinstance(conv, Conv) or len(conv.axes) > 3 or "bias" in problem.operands or find_spec("torch") is None:
        return
    if any(a.dst != (a.src + 2 * a.pad_begin - a.effective_kernel) // a.stride + 1 for a in conv.axes):
        return  # PyTorch's pads are the same at either end
    import torch  # noqa: PLC0415

    sizes = [[getattr(a, name) for a in conv.axes] for name in ("stride", "pad_begin", "dilation")]
    given = dict(zip(problem.operands, prepared.operands, strict=True))
    held = {tensor: torch.from_numpy(np.ascontiguousarray(array, np.float32)) for tensor, array in given.items()}
    blank = {"src": conv.src_shape, "dst": conv.dst_shape, "weights": conv.weights_shape}
    src, dst, weights = (held.get(t, torch.zeros(blank[t])) for t in ("src", "dst", "weights"))
    before = torch.get_num_threads()
    for threads in (1, 2):
        torch.set_num_threads(threads)
        tail = (*sizes, False, [0] * len(conv.axes), conv.groups)
        if problem.solves_for == "dst":
            result = torch.ops.aten.convolution(src, weights, None, *tail)
        else:
            wanted = [problem.solves_for == "src", problem.solves_for == "weights", False]
            gradients = torch.ops.aten.convolution_backward(dst, src, weights, None, *tail, wanted)
            result = gradients[0 if wanted[0] else 1]
        yield f"PyTorch, {threads} threads", result.numpy().transpose(np.argsort(problem.output_order))
    torch.set_num_threads(before)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = parser_of("verdict", "Judge right results of many orders and kinds of data.", problems=100, seed=0)
    parser.add_argument("--line", default="", help="one problem of this notation instead, on every kind of data")
    parser.add_argument("--more", action="store_true", help="more kinds of data instead: sorted, cancelling, sparse")
    parser.add_argument("--names", action="store_true", help="also look for names of defects in right results")
    options = parser.parse_args(arguments)
    kinds = MORE if options.more else KINDS
    tally, started = Tally(names=options.names), time.monotonic()
    for number, (what, prepared) in enumerate(problems(options.seed, options.problems, options.line, kinds)):
        judge_all(what, prepared, 1000 * options.seed + number, tally)
        if number % 50 == 49:
            print(f"{number + 1} problems: {tally}", flush=True)
    print(f"seed {options.seed}, {time.monotonic() - started:.0f} s: {tally}")
    return 1 if sum(tally.outcomes.values()) - tally.outcomes[OK] > tally.results / 10_000 else 0
