"""``convgrad probe``: draw the order in which a function adds, and check whether it depends on the thread count."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from convgrad.cli.console import complain, say
from convgrad.cli.exits import DONE, WRONG, UsageError
from convgrad.errors import UnsupportedError
from convgrad.verify import cases
from convgrad.verify.c_function import is_library
from convgrad.verify.cases.case import Case
from convgrad.verify.foreign import load
from convgrad.verify.isolate import Isolated
from convgrad.verify.probe import Order, probe
from convgrad.verify.verdict import Verdict
from convgrad.words import described

# The default cases, by the result: sums of 576 or 1,568 terms, and operands of many channels.
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
        raise UsageError("--role selects a default case; it does not go with CASE")
    of_library = is_library(options.function)
    if of_library != (options.signature is not None):
        raise UsageError(f"LIBRARY:FUNCTION and --signature go together; got {options.function!s:.200}")
    if options.isolate is None:
        options.isolate = of_library and not options.set_threads
    if options.isolate and options.set_threads:
        raise UsageError("--isolate and --set-threads exclude each other: the number of threads is set in this process")
    asked = list(cases.read(options.case or CASES[options.role or "weights"]))
    with _function(options) as function:
        return _probe(options, function, asked)


@contextmanager
def _function(options: argparse.Namespace) -> Iterator[Callable[..., object]]:
    """Yield the function to probe; with --isolate, calls run in a process that ends at the end of the block."""
    if not options.isolate:
        yield load(options.function, options.signature)
        return
    with Isolated(options.function, signature=options.signature) as child:

        def isolated(operator: str, *inputs: object, **attributes: object) -> object:
            result = child.answer(operator, inputs, attributes)
            if isinstance(result, Verdict):
                raise UnsupportedError(f"{options.function} was called in a process of its own, and {result.reason}")
            return result

        yield isolated


def _probe(options: argparse.Namespace, function: Callable[..., object], asked: Sequence[Case]) -> int:
    """Print the order of the function's sums in each case, and return the exit code."""
    all_orders: list[Order] = []
    for case in asked:
        if case.unsupported:
            complain(f"convgrad: {case.name} is left out: {case.unsupported}")
            continue
        orders = dict(_orders(options, function, case))
        all_orders += orders.values()
        name = [case.name] * (len(asked) > 1)
        say("\n".join([*map(json.dumps, _rows(case, orders))] if options.json else [*name, _text(orders)]))
    return WRONG if any(order.impossible for order in all_orders) or not all_orders else DONE


def _orders(options: argparse.Namespace, function: Callable[..., object], case: Case) -> list[tuple[int | None, Order]]:
    """Return a pair for each requested number of threads: the number, and the order of the function's sums.

    Without --threads, the only number is None.
    """
    settings = options.threads or [None]
    setter = load(options.set_threads) if options.set_threads else None
    orders = []
    for threads in dict.fromkeys(settings):
        if setter is not None:
            try:
                setter(threads)
            except KeyboardInterrupt:
                raise
            except BaseException as error:  # foreign code may raise any error
                raise UnsupportedError(f"{options.set_threads}({threads}) raised {described(error)}") from error
        attributes: dict[str, object] = dict(case.attributes)
        dtype = options.dtype or case.output_format.name
        order = probe(
            function, case.operator, *case.shapes, operand_type=case.operand_format, dtype=dtype, **attributes
        )
        orders.append((threads, order))
    return orders


def _text(orders: Mapping[int | None, Order]) -> str:
    """Return the text of each distinct order, after the numbers of threads with which it was found."""
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


def _rows(case: Case, orders: Mapping[int | None, Order]) -> list[dict[str, object]]:
    """Return the values of each order, ready for JSON."""
    return [
        {
            "case": case.name,
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
