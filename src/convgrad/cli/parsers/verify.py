"""The arguments of ``convgrad verify``."""

from __future__ import annotations

import argparse

from convgrad.cli.parsers.parser import Parser, add_limit
from convgrad.cli.parsers.texts import (
    FUNCTION,
    HEIGHT,
    ISOLATE,
    TIMEOUT,
    height_or_blocks,
    index,
    positive,
    sample,
    seconds,
    seed,
    times,
)
from convgrad.formats import FORMATS

FILLS = ("normal", "integers", "truncation", "adversarial")


def parser() -> argparse.ArgumentParser:
    """Return the parser of ``convgrad verify``."""
    verify = Parser(
        "convgrad verify",
        "Judge the results of any implementation. A result is wrong if an element is outside its proved bound, and "
        "degraded if the errors contradict the declared arithmetic. Without --call or --got, judge the results that "
        "are stored with cases, or convgrad's own.",
        (
            "convgrad verify --collection edges --call mymodule:backward",
            'convgrad verify "BWD_W bf16 NXC mb8ic64ih56oc64oh56kh3ph1" --operands given --got result.npy',
        ),
    )
    what = (
        "files or folders of cases, OPERATOR with --shapes, or problem lines in quotes, also lines of benchdnn: "
        '"--dir=BWD_W mb2ic8ih9oc8oh9kh3ph1"'
    )
    verify.add_argument("cases", metavar="CASE", nargs="*", help=what)
    names = "a collection of cases that ships with convgrad; an unknown name lists the collections"
    verify.add_argument("--collection", metavar="NAME", action="append", default=[], help=names)
    verify.add_argument(
        "--only",
        metavar="NAME",
        action="append",
        default=[],
        help="use only cases with this name or pattern: stride*; repeat it for several",
    )
    verify.add_argument(
        "--shapes", metavar="SHAPE", nargs="+", help="the shapes of the operands of one OPERATOR, such as 8x56x56x64"
    )
    verify.add_argument("--attr", metavar="NAME=VALUE", action="append", default=[], help="an attribute of OPERATOR")
    verify.add_argument("--type", choices=tuple(FORMATS), help="the type of OPERATOR's operands (default f32)")
    of_results = "the type of results and of files that store only bits (default: from each case)"
    verify.add_argument("--dtype", choices=tuple(FORMATS), help=of_results)

    theirs = verify.add_argument_group("results to judge")
    theirs.add_argument("--call", metavar="MODULE:FUNCTION", help=f"{FUNCTION}, or LIBRARY:FUNCTION of a C library")
    declared = (
        "the arguments of a C function, in order: src, weights, diff_dst, bias, out, and sizes such as N, C, O, H, OH,"
        " KH, SH, DH, PH; start with a type and a layout if the function supports only these"
    )
    theirs.add_argument("--signature", metavar="WORDS", help=declared)
    theirs.add_argument("--isolate", action=argparse.BooleanOptionalAction, help=ISOLATE)
    theirs.add_argument("--timeout", metavar="SECONDS", type=seconds, help=TIMEOUT)
    theirs.add_argument(
        "--got",
        metavar="DIR",
        help="a folder of results CASE.OUTPUT.npy, .pt or .bin, or CASE.npz; a file for a single case",
    )

    generated = verify.add_argument_group("operands of cases without arrays")
    fill = (
        "normal: numbers whose errors have known statistics (default). integers: exact sums. truncation: numbers"
        " whose truncated sums differ from rounded ones. adversarial: ill-conditioned sums"
    )
    generated.add_argument("--fill", choices=FILLS, default="normal", help=fill)
    generated.add_argument(
        "--seed", type=seed, default=0, help="the seed (default 0); equal cases, fills and seeds give the same bits"
    )
    generated.add_argument(
        "--operands", metavar="DIR", help="a folder of operands that --export wrote (default: the folder of --got)"
    )

    how = verify.add_argument_group("declared arithmetic")
    how.add_argument(
        "--accumulation",
        metavar="TYPE",
        help="the type of sums: f32 (default; for f64 operands, f64), bf16, f16 or tf32",
    )
    how.add_argument("--height", metavar="N", type=height_or_blocks, help=HEIGHT)
    how.add_argument("--algorithm", metavar="NAME", help="the algorithm: sum (default), winograd:M,R or fft")
    accuracy = "judge by convgrad's bound for this max_error, and compute its own results with it"
    how.add_argument("--max-error", type=times, metavar="TIMES", help=accuracy)

    output = verify.add_argument_group("output")
    output.add_argument("--verbose", action="store_true", help="print a line for every case")
    strict = (
        "also exit with 1 if the function raises NotImplementedError or convgrad does not support a case, and with 3 if"
        " a file in a folder contains no case"
    )
    output.add_argument("--strict", action="store_true", help=strict)
    output.add_argument("--json", action="store_true", help="print one JSON object per case, and one with the counts")
    output.add_argument("--junit", metavar="FILE", help="write a JUnit XML file for CI")
    resumed = "with --junit: judge only cases without a verdict in FILE, which an interrupted run wrote"
    output.add_argument("--resume", action="store_true", help=resumed)

    instead = verify.add_argument_group("instead of verdicts")
    instead.add_argument("--export", metavar="DIR", help="write the operands of each case to files")
    instead.add_argument(
        "--with-references", action="store_true", help="also write the exact results, correctly rounded"
    )
    kinds = "the format of files: .npy (default), .npz, .safetensors, .pt, .bin"
    instead.add_argument("--kind", metavar="ENDING", default=".npy", help=kinds)
    deserved = (
        "print the smallest tolerance of numpy.allclose that accepts all right results, and the wrong ones it accepts"
    )
    instead.add_argument("--print-tolerance", action="store_const", const=True, help=deserved)
    certificate = "print the certificate of one element as JSON: exact value, bound and error"
    instead.add_argument("--element", metavar="INDEX", type=index, help=certificate)

    _add_others(verify, theirs)
    return verify


def _add_others(verify: argparse.ArgumentParser, theirs: argparse._ArgumentGroup) -> None:
    """Add the options about time, memory and files, those of samples, and that of repeated calls."""
    again = (
        "call the function N times per case (default 1), and judge every distinct result; different results are 'not"
        " repeatable'"
    )
    theirs.add_argument("--repeat", metavar="N", type=positive, help=again)
    some = "check about this number of elements per case, or all (default: all, or a sample if this would take long)"
    verify.add_argument("--sample", type=sample, metavar="ELEMENTS", help=some)
    verify.add_argument("--threads", type=positive, help="the largest number of threads of convgrad's kernels")
    add_limit(verify)
    verify.add_argument("--force", action="store_true", help="replace files that exist")
