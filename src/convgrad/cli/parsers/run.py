"""The arguments of ``convgrad run``."""

from __future__ import annotations

import argparse

from convgrad.cli.exits import EXIT_CODES
from convgrad.cli.parsers.parser import Parser, add_limit
from convgrad.cli.parsers.texts import MAX_ERROR, height_or_blocks, seed, threads, times
from convgrad.formats import FORMATS


def parser() -> argparse.ArgumentParser:
    """Return the parser of ``convgrad run``."""
    run = Parser(
        prog="convgrad run",
        description="Run one operator, or a graph of them, and print shapes, resolved attributes, time and results.",
        epilog=EXIT_CODES,
    )
    run.add_argument(
        "operator",
        metavar="OPERATOR",
        help="a versioned name, such as ConvolutionBackwardWeights, or a quoted problem line:"
        " [deconv] DIRECTION TYPE DATA_FORMAT[:WEIGHTS_FORMAT] and benchdnn's descriptor, or GRAPH.json",
    )
    place = "FILE.npy, FILE.npz:KEY or FILE.safetensors:KEY"
    run.add_argument("inputs", metavar="INPUT", nargs="*", help=f"{place}, in the operator's order")
    run.add_argument("--attr", metavar="NAME=VALUE", action="append", default=[], help="an attribute; lists as 1,1")
    shapes = "make operands of these shapes up: 8x56x56x64; for a shape operand its values"
    run.add_argument("--shapes", metavar="SHAPE", nargs="+", help=shapes)
    tensors = "of a graph: arrays by tensor id in a .npz or .safetensors file; those of results are judged, as --expect"
    run.add_argument("--tensors", metavar="FILE", help=tensors)
    add_limit(run)
    run.add_argument(
        "--fill",
        choices=("integers", "normal"),
        help="what to make operands of (default integers); of a graph, what --tensors lacks",
    )
    run.add_argument("--type", choices=tuple(FORMATS), help="the type of made-up operands (default f32)")
    run.add_argument("--seed", type=seed, help="the seed of made-up operands (default 0)")
    run.add_argument("--dtype", metavar="TYPE", help="the type of the result (default: the operands')")
    most_threads = "the most threads of generated kernels; the NumPy engine leaves threads to its BLAS"
    run.add_argument("--threads", type=threads, help=most_threads)
    run.add_argument("--max-error", type=times, metavar="TIMES", help=MAX_ERROR)
    memory = (
        "read files, and write the result of a forward or data gradient, in pieces, so that the call's arrays take at"
        " most so much: 1GB, 512MiB, or bytes; without it files are read whole"
    )
    run.add_argument("--memory", metavar="BYTES", help=memory)
    checkpoint = "with --memory: keep what is finished in this file if interrupted, and go on from there"
    run.add_argument("--checkpoint", metavar="FILE", help=checkpoint)
    output = f"write the result to {place}; of a graph, its outputs by id to a .npz or .safetensors file"
    run.add_argument("-o", "--output", metavar="FILE", help=output)
    run.add_argument("--force", action="store_true", help="replace the output file, all of it, if it exists")
    check = "judge our result by the oracle's exact one; exit 1 beyond the proved bound"
    run.add_argument("--check", choices=("oracle",), help=check)
    expect = f"judge a result that somebody computed, {place}, in the same way, by its own type"
    run.add_argument("--expect", metavar="FILE", help=expect)
    most = (
        "the most roundings a term of the file's sums went through, or the blocks of an order, B1,B2,... (default: the"
        " number of terms, for any order)"
    )
    run.add_argument("--height", metavar="N", type=height_or_blocks, help=most)
    run.add_argument("--json", action="store_true", help="print JSON instead of text, one object per operator")
    return run
