"""The arguments of ``convgrad verify``."""

from __future__ import annotations

import argparse

from convgrad.cli.exits import EXIT_CODES
from convgrad.cli.parsers.parser import Parser, add_limit
from convgrad.cli.parsers.texts import height_or_blocks, index, positive, seconds, seed, times
from convgrad.formats import FORMATS

FILLS = ("normal", "integers", "truncation", "adversarial")


def parser() -> argparse.ArgumentParser:
    """Return the parser of ``convgrad verify``."""
    verify = Parser(
        prog="convgrad verify",
        description="Judge anybody's results: wrong is a proof, degraded a statistical statement. Without --got or"
        " --call a case's own result is judged, or, where it has none, convgrad's own engine.",
        epilog=EXIT_CODES,
    )
    what = (
        "files or folders of cases in any notation that is known; OPERATOR with --shapes; quoted problem lines, of"
        ' benchdnn\'s with its knobs: "--dir=BWD_W mb2ic8ih9oc8oh9kh3ph1"'
    )
    verify.add_argument("cases", metavar="CASE", nargs="*", help=what)
    names = "cases that ship with convgrad; an unknown name lists them"
    verify.add_argument("--collection", metavar="NAME", action="append", default=[], help=names)
    verify.add_argument("--only", metavar="NAME", action="append", default=[], help="the cases of this name, as dw-*")
    verify.add_argument("--shapes", metavar="SHAPE", nargs="+", help="of one OPERATOR's operands: 8x56x56x64")
    verify.add_argument("--attr", metavar="NAME=VALUE", action="append", default=[], help="its attributes")
    verify.add_argument("--type", choices=tuple(FORMATS), help="the type of its operands (default f32)")
    verify.add_argument("--dtype", choices=tuple(FORMATS), help="the type of results (default: what each case says)")

    theirs = verify.add_argument_group("whose results")
    function = "a function, called as convgrad.run is: function(operator, *arrays, **attributes); it returns the array"
    theirs.add_argument("--call", metavar="MODULE:FUNCTION", help=function)
    theirs.add_argument("--isolate", action="store_true", help="call it in a child process: a crash is a verdict")
    theirs.add_argument("--timeout", metavar="SECONDS", type=seconds, help="with --isolate: how long a call may take")
    theirs.add_argument(
        "--got", metavar="DIR", help="a folder with CASE.OUTPUT.npy, .pt, .bin, or CASE.npz, ...; of one case a file"
    )

    made = verify.add_argument_group("operands, where a case brings none")
    fill = (
        "normal numbers (default: errors show in their statistics); integers, whose sums are exact; truncation, where"
        " it differs from rounding at many elements; adversarial, ill-conditioned sums"
    )
    made.add_argument("--fill", choices=FILLS, default="normal", help=fill)
    made.add_argument("--seed", type=seed, default=0, help="their seed (default 0): same case, fill, seed: same bits")
    made.add_argument(
        "--operands", metavar="DIR", help="read them here, as --export wrote them (default: also in --got)"
    )

    how = verify.add_argument_group("the arithmetic that is declared")
    how.add_argument(
        "--accumulation",
        metavar="TYPE",
        help="the type sums are kept in, as f32 (default; f64 of f64), bf16, f16, tf32",
    )
    heights = "the most roundings a term goes through, or the blocks of an order, B1,B2,... (default: any order)"
    how.add_argument("--height", metavar="N", type=height_or_blocks, help=heights)
    how.add_argument(
        "--algorithm", metavar="NAME", help="sum (default), or what is no sum of products: winograd:M,R, fft"
    )
    accuracy = "judge by the bound of convgrad's sums of this max_error, and compute convgrad's own results with it"
    how.add_argument("--max-error", type=times, metavar="TIMES", help=accuracy)

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
    certificate = "print one element's certificate as JSON: its exact value, its bound, and the error of what was got"
    instead.add_argument("--element", metavar="INDEX", type=index, help=certificate)

    verify.add_argument("--threads", type=positive, help="the most threads of convgrad's own kernels")
    add_limit(verify)
    verify.add_argument("--force", action="store_true", help="replace files that exist")
    return verify
