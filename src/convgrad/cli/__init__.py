"""The command line: ``convgrad run`` and ``convgrad info``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

EXIT_CODES = (
    "exit codes: 0 done and right, 1 wrong or failed, 2 the command line could not be understood, 130 interrupted"
)


def parser() -> argparse.ArgumentParser:
    """Return the parser of the whole command line."""
    root = argparse.ArgumentParser(
        prog="convgrad",
        description="Convolution gradients on arrays, exactly, with a proved error bound.",
        epilog=EXIT_CODES,
    )
    root.add_argument("--version", action="store_true", help="print the version and stop")
    commands = root.add_subparsers(dest="command", metavar="COMMAND")
    run = commands.add_parser(
        "run",
        help="run one operator on arrays from files, or on made-up ones",
        description="Run one operator and print shapes, resolved attributes, time and the size of the result.",
        epilog=EXIT_CODES,
    )
    run.add_argument(
        "operator", metavar="OPERATOR", help="a versioned name, such as ConvolutionBackwardWeights, or a problem line"
    )
    run.add_argument(
        "inputs", metavar="INPUT", nargs="*", help="FILE.npy, FILE.npz:KEY or FILE.safetensors:KEY, in order"
    )
    run.add_argument("--attr", metavar="NAME=VALUE", action="append", default=[], help="an attribute; lists as 1,1")
    run.add_argument(
        "--shapes", metavar="SHAPE", nargs="+", help="make operands up instead: 8x56x56x64; a shape operand: its values"
    )
    run.add_argument("--fill", choices=("integers", "normal"), help="what to make operands of (default integers)")
    run.add_argument("--type", choices=("f32", "bf16", "f16", "f64"), help="the type of made-up operands (default f32)")
    run.add_argument("--seed", type=int, help="the seed of made-up operands (default 0)")
    run.add_argument("--dtype", metavar="TYPE", help="the type of the result (default: the operands')")
    run.add_argument("--threads", type=int, help="the most threads to use")
    run.add_argument(
        "-o", "--output", metavar="FILE", help="write the result to FILE.npy, FILE.npz[:KEY] or FILE.safetensors[:KEY]"
    )
    run.add_argument("--force", action="store_true", help="replace the output file if it exists")
    run.add_argument(
        "--check", choices=("oracle",), help="compare with the exact result; exit 1 beyond the proved bound"
    )
    run.add_argument("--expect", metavar="FILE", help="compare with a recorded result; exit 1 beyond the proved bound")
    run.add_argument("--json", action="store_true", help="print one JSON object instead of text")
    info = commands.add_parser("info", help="print what a bug report needs", epilog=EXIT_CODES)
    info.add_argument("--json", action="store_true", help="print one JSON object instead of text")
    return root


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    top = parser()
    options = top.parse_args(arguments)
    if options.version:
        from convgrad import __version__  # noqa: PLC0415 - --help must not wait for NumPy

        print(f"convgrad {__version__}")
        return 0
    if options.command is None:
        top.print_help()
        return 2
    try:
        if options.command == "info":
            from convgrad.cli import info  # noqa: PLC0415

            return info.main(options)
        from convgrad.cli import run  # noqa: PLC0415

        return run.main(options)
    except KeyboardInterrupt:
        print("convgrad: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader of our output went away, as head does
        sys.stderr.close()
        return 1
