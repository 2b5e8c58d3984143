"""The command line: its commands and their arguments."""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Sequence
from typing import NoReturn

from convgrad.cli.console import say
from convgrad.cli.exits import COMMAND_LINE, DONE, EXIT_CODES, UsageError, code_of

FILLS = ("normal", "integers", "truncation", "adversarial")
LONGEST_S = 1e6


class _Parser(argparse.ArgumentParser):
    """A parser that prints and refuses as the commands do."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(message)

    def print_help(self, file: object = None) -> None:
        say(self.format_help().rstrip())


def _seed(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"a seed is a non-negative integer; got {text!r}")
    return int(text)


def _height(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"a height is a non-negative integer, a number of roundings; got {text!r}")
    return int(text)


def _height_or_blocks(text: str) -> int | list[int]:
    if "," not in text:
        return _height(text)
    return [_positive(block) for block in text.split(",")]


def _index(text: str) -> tuple[int, ...]:
    words = text.strip("()[] ").rstrip(",").split(",")
    if not all(word.strip().isdecimal() for word in words):
        raise argparse.ArgumentTypeError(f"an index is non-negative integers, as 0,2,1; got {text!r}")
    return tuple(map(int, words))


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < LONGEST_S:
        raise argparse.ArgumentTypeError(f"a positive number of seconds is wanted; got {text!r}")
    return seconds


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"a positive integer is wanted; got {text!r}")
    return int(text)


def _numbers(text: str) -> list[int]:
    return [_positive(word) for word in _words(text)]


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def parser() -> argparse.ArgumentParser:
    """Return the parser of the first words; each command parses the rest itself."""
    root = _Parser(
        prog="convgrad",
        description="Convolution gradients on arrays, exactly, with a proved error bound.",
        epilog=f"convgrad COMMAND --help tells more; {EXIT_CODES}",
    )
    root.add_argument("--version", action="store_true", help="print the version and stop")
    root.add_argument("command", nargs="?", metavar="COMMAND", choices=tuple(COMMANDS), help=", ".join(COMMANDS))
    root.add_argument("rest", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    return root


def run_parser() -> argparse.ArgumentParser:
    """Return the parser of ``convgrad run``."""
    run = _Parser(
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
    _add_limit(run)
    run.add_argument(
        "--fill",
        choices=("integers", "normal"),
        help="what to make operands of (default integers); of a graph, what --tensors lacks",
    )
    types = ("f32", "bf16", "f16", "f64")
    run.add_argument("--type", choices=types, help="the type of made-up operands (default f32)")
    run.add_argument("--seed", type=_seed, help="the seed of made-up operands (default 0)")
    run.add_argument("--dtype", metavar="TYPE", help="the type of the result (default: the operands')")
    threads = "the most threads of generated kernels; the NumPy engine leaves threads to its BLAS"
    run.add_argument("--threads", type=int, help=threads)
    output = f"write the result to {place}; of a graph, its outputs by id to a .npz or .safetensors file"
    run.add_argument("-o", "--output", metavar="FILE", help=output)
    run.add_argument("--force", action="store_true", help="replace the output file, all of it, if it exists")
    check = "judge our result by the oracle's exact one; exit 1 beyond the proved bound"
    run.add_argument("--check", choices=("oracle",), help=check)
    expect = f"judge a result that somebody computed, {place}, in the same way, by its own type"
    run.add_argument("--expect", metavar="FILE", help=expect)
    height = "the most roundings a term of the file's sums went through (default: the number of terms, for any order)"
    run.add_argument("--height", metavar="N", type=_height, help=height)
    run.add_argument("--json", action="store_true", help="print JSON instead of text, one object per operator")
    return run


def explain_parser() -> argparse.ArgumentParser:
    """Return the parser of ``convgrad explain``."""
    explain = _Parser(
        prog="convgrad explain",
        description="Print a graph as a table and a drawing, or how a problem would be computed: work, plan, bound.",
        epilog=EXIT_CODES,
    )
    what = "GRAPH.json, a graph as oneDNN dumps it and benchdnn reads it, or a quoted problem line, as of convgrad run"
    explain.add_argument("what", metavar="WHAT", help=what)
    explain.add_argument("--threads", type=int, help="of a problem line: the threads to plan for")
    explain.add_argument("--tensors", metavar="FILE", help="arrays by tensor id, from which unknown extents follow")
    explain.add_argument("--plot", metavar="FILE", help="draw a picture, too: .png, .svg, .pdf (needs extra plot)")
    explain.add_argument("--force", action="store_true", help="replace the picture if it exists")
    _add_limit(explain)
    return explain


def _add_limit(parser: argparse.ArgumentParser) -> None:
    limit = (
        "a limit: file_bytes, nesting, ops, op_bytes of graph files; memory_bytes of tensors and what files expand to"
    )
    parser.add_argument("--limit", metavar="NAME=NUMBER", action="append", default=[], help=limit)


def bench_parser() -> argparse.ArgumentParser:
    """Return the parser of ``convgrad bench``."""
    bench = _Parser(
        prog="convgrad bench",
        description="Time problems side by side with other libraries, checked first, against the machine's own peak.",
        epilog=EXIT_CODES,
    )
    lines = "a quoted problem line: [deconv] DIRECTION TYPE DATA_FORMAT[:WEIGHTS_FORMAT] and benchdnn's descriptor"
    bench.add_argument("problems", metavar="PROBLEM", nargs="*", help=lines)
    suites = "suites that ship with convgrad, or all; an unknown name lists them"
    bench.add_argument("--suite", metavar="NAME,...", type=_words, default=[], help=suites)
    bench.add_argument("--shapes", metavar="FILE", help="a file of problem lines, with comments from #")
    for name, example in (("direction", "FWD_D,BWD_D,BWD_W"), ("type", "f32,bf16,f16"), ("layout", "NXC,NCX")):
        instead = f"instead of each line's own {name}: one or more, such as {example}"
        bench.add_argument(f"--{name}", metavar=f"{name.upper()},...", type=_words, default=[], help=instead)
    against = "libraries to compare with: torch, jax"
    bench.add_argument("--against", metavar="PEER,...", type=_words, default=[], help=against)
    bench.add_argument("--threads", type=_positive, help="threads of everybody (default: all usable cores)")
    bench.add_argument("--repeat", type=_positive, default=7, help="rounds of measurement (default 7)")
    bench.add_argument(
        "-o", "--output", metavar="FILE.csv", help="write a row of all figures for each problem as it goes"
    )
    bench.add_argument("--plot", metavar="FILE.png", help="draw speed over intensity under the measured roofs")
    bench.add_argument("--force", action="store_true", help="replace output files that exist")
    return bench


def verify_parser() -> argparse.ArgumentParser:
    """Return the parser of ``convgrad verify``."""
    verify = _Parser(
        prog="convgrad verify",
        description="Judge anybody's results: wrong is a proof, degraded a statistical statement. Without --got or"
        " --call a case's own result is judged, or, where it has none, convgrad's own engine.",
        epilog=EXIT_CODES,
    )
    what = "files or folders of cases in any notation that is known, quoted problem lines, or OPERATOR with --shapes"
    verify.add_argument("cases", metavar="CASE", nargs="*", help=what)
    names = "cases that ship with convgrad; an unknown name lists them"
    verify.add_argument("--collection", metavar="NAME", action="append", default=[], help=names)
    verify.add_argument("--only", metavar="NAME", action="append", default=[], help="the cases of this name, as dw-*")
    verify.add_argument("--shapes", metavar="SHAPE", nargs="+", help="of one OPERATOR's operands: 8x56x56x64")
    verify.add_argument("--attr", metavar="NAME=VALUE", action="append", default=[], help="its attributes")
    types = ("f32", "bf16", "f16", "f64")
    verify.add_argument("--type", choices=types, help="the type of its operands (default f32)")
    verify.add_argument("--dtype", choices=types, help="the type of results (default: what each case says)")

    theirs = verify.add_argument_group("whose results")
    function = "a function, called as convgrad.run is: function(operator, *arrays, **attributes); it returns the array"
    theirs.add_argument("--call", metavar="MODULE:FUNCTION", help=function)
    theirs.add_argument("--isolate", action="store_true", help="call it in a child process: a crash is a verdict")
    theirs.add_argument("--timeout", metavar="SECONDS", type=_seconds, help="with --isolate: how long a call may take")
    theirs.add_argument("--got", metavar="DIR", help="a folder with CASE.OUTPUT.npy, .pt, .bin, or CASE.npz, ...")

    made = verify.add_argument_group("operands, where a case brings none")
    fill = (
        "normal numbers (default: errors show in their statistics); integers, whose sums are exact; truncation, where"
        " it differs from rounding at many elements; adversarial, ill-conditioned sums"
    )
    made.add_argument("--fill", choices=FILLS, default="normal", help=fill)
    made.add_argument("--seed", type=_seed, default=0, help="their seed (default 0): same case, fill, seed: same bits")
    made.add_argument(
        "--operands", metavar="DIR", help="read them here, as --export wrote them (default: also in --got)"
    )

    how = verify.add_argument_group("the arithmetic that is declared")
    how.add_argument("--accumulation", metavar="TYPE", help="the type sums are kept in (default f32; f64 of f64)")
    heights = "the most roundings a term goes through, or the blocks of an order, B1,B2,... (default: any order)"
    how.add_argument("--height", metavar="N", type=_height_or_blocks, help=heights)
    how.add_argument("--algorithm", metavar="NAME", help="sum (default), or what is no sum of products: winograd, fft")

    told = verify.add_argument_group("what is told")
    told.add_argument("--verbose", action="store_true", help="a line for every case, not only those that are not ok")
    told.add_argument("--json", action="store_true", help="one JSON object a case, and one for the counts")
    told.add_argument("--junit", metavar="FILE", help="write JUnit's XML for CI")

    instead = verify.add_argument_group("instead of verdicts")
    instead.add_argument("--export", metavar="DIR", help="write each case's operands, for any program to read")
    instead.add_argument("--with-references", action="store_true", help="and the exact results, correctly rounded")
    kinds = "the kind of files: .npy (default), .npz, .safetensors, .pt, .bin"
    instead.add_argument("--kind", metavar="ENDING", default=".npy", help=kinds)
    deserved = "the least atol and rtol, as of numpy.allclose, that no right result exceeds; and what passes them"
    instead.add_argument("--print-tolerance", action="store_const", const=True, help=deserved)
    certificate = "one element's certificate: its exact value, its bound, and the error of what was got"
    instead.add_argument("--element", metavar="INDEX", type=_index, help=certificate)
    instead.add_argument("-o", "--output", metavar="FILE", help="write the certificate to this file")

    verify.add_argument("--threads", type=_positive, help="the most threads of convgrad's own kernels")
    _add_limit(verify)
    verify.add_argument("--force", action="store_true", help="replace files that exist")
    return verify


def probe_parser() -> argparse.ArgumentParser:
    """Return the parser of ``convgrad probe``."""
    probe = _Parser(
        prog="convgrad probe",
        description="Reveal the order of a function's sums by calling it: a tree, its blocks, height and bound.",
        epilog=EXIT_CODES,
    )
    called = "a function of yours, called as function(operator, *arrays, **attributes) in the words of convgrad.run"
    probe.add_argument("function", metavar="MODULE:FUNCTION", help=called)
    probe.add_argument("case", metavar="CASE", nargs="?", help="a quoted problem line, as of convgrad run")
    probe.add_argument("--role", choices=("weights", "dst", "src"), help="without a case: what one is to solve for")
    probe.add_argument("--dtype", metavar="TYPE", help="the type of the result (default: the operands')")
    threads = "reveal the order with each of these numbers of threads, and whether it changes"
    probe.add_argument("--threads", metavar="N,...", type=_numbers, default=[], help=threads)
    setter = "what sets the number of threads, such as torch:set_num_threads"
    probe.add_argument("--set-threads", metavar="MODULE:FUNCTION", help=setter)
    probe.add_argument("--json", action="store_true", help="print JSON instead of text, one object per order")
    return probe


def info_parser() -> argparse.ArgumentParser:
    """Return the parser of ``convgrad info``."""
    info = _Parser(prog="convgrad info", description="Print what a bug report needs.", epilog=EXIT_CODES)
    info.add_argument("--json", action="store_true", help="print one JSON object instead of text")
    return info


COMMANDS = {
    "run": run_parser,
    "verify": verify_parser,
    "explain": explain_parser,
    "probe": probe_parser,
    "bench": bench_parser,
    "info": info_parser,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    name = "convgrad"
    try:
        first = parser().parse_args(arguments)
        if first.version:
            from convgrad import __version__  # noqa: PLC0415 - --help must not wait for NumPy

            say(f"convgrad {__version__}")
            return DONE
        if first.command is None:
            parser().print_help()
            return COMMAND_LINE
        name = f"convgrad {first.command}"
        options = COMMANDS[first.command]().parse_intermixed_args(first.rest)
        code: int = importlib.import_module(f"convgrad.cli.{first.command}").main(options)
        return code
    except BaseException as error:
        if isinstance(error, UsageError):
            error.add_note(f"try {name} --help")
        ended = code_of(error)
        if ended is None:
            raise
        return ended
