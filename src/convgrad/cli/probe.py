"""``convgrad probe``: the order of a foreign function's sums, drawn, and whether it changes with threads."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping
from typing import Any

from convgrad import notation
from convgrad.cli.console import say
from convgrad.cli.exits import DONE, WRONG, UsageError
from convgrad.errors import UnsupportedError
from convgrad.notation import OperatorCall
from convgrad.verify.foreign import load
from convgrad.verify.probe import Order, probe

# Where no case is given: some hundred terms in many channels.
CASES: Mapping[str, str] = {
    "weights": "BWD_W f32 NXC mb8ic16ih14oc128oh14kh1ph0",
    "dst": "FWD_D f32 NXC mb1ic64ih14oc128oh14kh3ph1",
    "src": "BWD_D f32 NXC mb1ic128ih14oc64oh14kh3ph1",
}


def main(options: argparse.Namespace) -> int:
    """Run the command and return its exit code."""
    if bool(options.threads) != bool(options.set_threads):
        raise UsageError("--threads and --set-threads go together, such as 1,2,3 and torch:set_num_threads")
    if options.case and options.role:
        raise UsageError("--role goes without a case, whose operator is what is probed")
    if options.case and len(options.case.split()) == 1:
        raise UsageError(f"the case is a problem line in quotes; got {options.case!r}")
    function = load(options.function)
    line = options.case or CASES[options.role or "weights"]
    found: list[Order] = []
    for call in notation.calls(notation.read(line)):
        orders = dict(_orders(options, function, call))
        found += orders.values()
        say("\n".join(map(json.dumps, _rows(orders))) if options.json else _text(orders))
    return WRONG if any(order.impossible for order in found) else DONE


def _orders(
    options: argparse.Namespace, function: Callable[..., object], call: OperatorCall
) -> list[tuple[int | None, Order]]:
    """Return the orders of a call by the number of threads, None where nobody set any."""
    settings = options.threads or [None]
    setter = load(options.set_threads) if options.set_threads else None
    found = []
    for threads in dict.fromkeys(settings):
        if setter is not None:
            try:
                setter(threads)
            except Exception as error:  # whatever foreign code raises
                raised = f"{type(error).__name__}: {error}"
                raise UnsupportedError(f"{options.set_threads}({threads}) raised {raised}") from error
        attributes: dict[str, Any] = dict(call.attributes)
        order = probe(
            function, call.operator, *call.shapes, operand_type=call.format, dtype=options.dtype, **attributes
        )
        found.append((threads, order))
    return found


def _text(orders: Mapping[int | None, Order]) -> str:
    """Return the orders, each once, with the threads that have it."""
    if None in orders:
        return str(orders[None])
    alike: list[tuple[Order, list[str]]] = []
    for threads, order in orders.items():
        same = next((t for o, t in alike if (o.tree, o.impossible) == (order.tree, order.impossible)), None)
        if same is None:
            alike.append((order, [str(threads)]))
        else:
            same.append(str(threads))
    blocks = [f"{', '.join(threads)} thread{'s' * (threads != ['1'])}: {order}" for order, threads in alike]
    last = "the order does not change with threads" if len(blocks) == 1 else "the order CHANGES with threads"
    return "\n".join([*blocks, last])


def _rows(orders: Mapping[int | None, Order]) -> list[dict[str, object]]:
    """Return the orders as they are printed in JSON."""
    return [
        {
            "operator": order.operator,
            "format": order.format.name,
            "threads": threads,
            "terms": order.terms,
            "seen": order.seen,
            "name": order.name,
            "height": order.height,
            "accumulation": None if order.accumulation is None else order.accumulation.name,
            "declared": order.declared,
            "blocks": order.blocks,
            "calls": order.calls,
            "channels": order.channels,
            "other_channels": order.others,
            "resolution": order.resolution,
            "impossible": order.impossible,
        }
        for threads, order in orders.items()
    ]
