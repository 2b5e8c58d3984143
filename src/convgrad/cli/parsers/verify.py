"""The arguments of ``convgrad verify``."""

from __future__ import annotations

import argparse

from convgrad.cli.parsers.parser import Parser, add_limit
from convgrad.cli.parsers.texts import height_or_blocks, index, positive, sample, seconds, seed, times
from convgrad.formats import FORMATS

FILLS = ("normal", "integers", "truncation", "adversarial")


def parser() -> argparse.ArgumentParser:
    """Return the parser of ``convgrad verify``."""
    verify = Parser(
        "convgrad verify",
        "Judge the results of any implementation. A result is wrong if an element is outside its proved "
        "bound, and degraded if the errors contradict the declared arithmetic. Without --call or --got, "
        "the result that is stored with a case is judged, or convgrad's own result if there is none.",
        (
            "convgrad verify --collection edges --call mymodule:backward",
            'convgrad verify "BWD_W bf16 NXC mb8ic64ih56oc64oh56kh3ph1" --got result.npy',
        ),
    )
    what = (
        "files or folders of cases in any known notation, OPERATOR with --shapes, or problem lines in quotes, also"
        ' those of benchdnn: "--dir=BWD_W mb2ic8ih9oc8oh9kh3ph1"'
    )
    verify.add_argument("cases", metavar="CASE", nargs="*", help=what)
    names = "a collection of cases that ships with convgrad; an unknown name lists the collections"
    verify.add_argument("--collection", metavar="NAME", action="append", default=[], help=names)
    verify.add_argument(
        "--only", metavar="NAME", action="append", default=[], help="use only cases with this name or pattern: dw-*"
    )
    verify.add_argument(
        "--shapes", metavar="SHAPE", nargs="+", help="the shapes of the operands of one OPERATOR, such as 8x56x56x64"
    )
    verify.add_argument("--attr", metavar="NAME=VALUE", action="append", default=[], help="an attribute of OPERATOR")
    verify.add_argument("--type", choices=tuple(FORMATS), help="the type of OPERATOR's operands (default f32)")
    verify.add_argument("--dtype", choices=tuple(FORMATS), help="the type of results (default: from each case)")

    theirs = verify.add_argument_group("results to judge")
    function = (
        "a function that is called like convgrad.run, function(operator, *arrays, **attributes), and returns an array"
    )
    theirs.add_argument(
        "--call", metavar="MODULE:FUNCTION", help=f"{function}; for a function of a C library, pass LIBRARY:FUNCTION"
    )
    declared = (
        "the arguments of a function of a C library, in order: src, weights, diff_dst, bias, out, and sizes such as N,"
        " C, O, H, OH, KH, SH, DH, PH; start with a type and a layout if the function supports only one"
    )
    theirs.add_argument("--signature", metavar="WORDS", help=declared)
    isolated = "call the function in a child process, so that a crash becomes a verdict (default for C libraries)"
    theirs.add_argument("--isolate", action=argparse.BooleanOptionalAction, help=isolated)
    theirs.add_argument(
        "--timeout", metavar="SECONDS", type=seconds, help="with --isolate: the longest time for one call"
    )
    theirs.add_argument(
        "--got",
        metavar="DIR",
        help="a folder of results with names CASE.OUTPUT.npy, .pt or .bin, or CASE.npz; for a single case, a file",
    )

    generated = verify.add_argument_group("operands of cases without arrays")
    fill = (
        "normal: numbers whose errors have known statistics (default). integers: exact sums. truncation: numbers with"
        " which truncated results differ. adversarial: ill-conditioned sums"
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
    heights = "the rounding depth of sums, or the blocks of their order as B1,B2,... (default: any order)"
    how.add_argument("--height", metavar="N", type=height_or_blocks, help=heights)
    how.add_argument("--algorithm", metavar="NAME", help="the algorithm: sum (default), winograd:M,R or fft")
    accuracy = "judge by convgrad's bound for this max_error, and compute convgrad's own results with this max_error"
    how.add_argument("--max-error", type=times, metavar="TIMES", help=accuracy)

    output = verify.add_argument_group("output")
    output.add_argument(
        "--verbose", action="store_true", help="print a line for every case, also for cases that are ok"
    )
    strict = (
        "also exit with 1 if the function raises NotImplementedError for a case, or convgrad does not support the case,"
        " and with 3 if a file of a folder has no case"
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
        "print the smallest tolerance with which every right result passes numpy.allclose, and which wrong results pass"
    )
    instead.add_argument("--print-tolerance", action="store_const", const=True, help=deserved)
    certificate = "print the certificate of one element as JSON: its exact value, its bound and the error of the result"
    instead.add_argument("--element", metavar="INDEX", type=index, help=certificate)

    _add_others(verify, theirs)
    return verify


def _add_others(verify: argparse.ArgumentParser, theirs: argparse._ArgumentGroup) -> None:
    """Add the options about time, memory and files, those of samples, and that of repeated calls."""
    again = (
        "call the function N times per case, and judge every distinct result; different results are the outcome 'not"
        " repeatable' (default 1)"
    )
    theirs.add_argument("--repeat", metavar="N", type=positive, help=again)
    some = (
        "check about this number of elements per case, drawn by --seed, or all (default: all, or a sample if a verdict"
        " would take long)"
    )
    verify.add_argument("--sample", type=sample, metavar="ELEMENTS", help=some)
    verify.add_argument("--threads", type=positive, help="the largest number of threads of convgrad's kernels")
    add_limit(verify)
    verify.add_argument("--force", action="store_true", help="replace files that exist")
