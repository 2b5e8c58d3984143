"""The arguments of ``convgrad run``."""

from __future__ import annotations

import argparse

from convgrad.cli.parsers.parser import Parser, add_limit
from convgrad.cli.parsers.texts import HEIGHT, MAX_ERROR, PROBLEM_LINE, TUNE, height_or_blocks, seed, threads, times
from convgrad.formats import FORMATS


def parser() -> argparse.ArgumentParser:
    """Return the parser of ``convgrad run``."""
    run = Parser(
        "convgrad run",
        "Compute one operator, a graph or cases, and print the shapes, the resolved attributes, the time and the "
        "results. Operands are read from files, or generated for a problem line or shapes.",
        (
            'convgrad run "BWD_W f32 NXC mb8ic64ih56oc64oh56kh3ph1" --check oracle',
            "convgrad run ConvolutionBackwardWeights src.npy diff_dst.npy -o diff_weights.npy \\",
            "    --attr weights_shape=3,3,64,64 --attr strides=1,1 --attr dilations=1,1",
        ),
    )
    run.add_argument(
        "operator",
        metavar="OPERATOR",
        help=f"an operator, such as ConvolutionBackwardWeights; GRAPH.json; {PROBLEM_LINE}; or cases as for convgrad"
        " verify",
    )
    place = "FILE.npy, FILE.npz:KEY or FILE.safetensors:KEY"
    read = "FILE.npy, FILE.npz:KEY, FILE.safetensors:KEY or a Zarr folder"
    run.add_argument("inputs", metavar="INPUT", nargs="*", help=f"the operands in the order of the operator: {read}")
    run.add_argument(
        "--attr",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="an attribute; values of a list are separated by commas, as in strides=1,1",
    )
    shapes = "generate operands of these shapes, such as 8x56x56x64; for a shape operand, pass its values"
    run.add_argument("--shapes", metavar="SHAPE", nargs="+", help=shapes)
    tensors = "a .npz or .safetensors file with a graph's arrays by tensor id; results in this file are judged"
    run.add_argument("--tensors", metavar="FILE", help=tensors)
    add_limit(run)
    run.add_argument(
        "--fill",
        choices=("integers", "normal"),
        help="the values of operands, or of tensors that are not in --tensors (default integers)",
    )
    the_type = "the type of generated operands (default f32), or of operands in files that store only bits"
    run.add_argument("--type", choices=tuple(FORMATS), help=the_type)
    run.add_argument("--seed", type=seed, help="the seed of generated operands (default 0)")
    of_result = "the result's type (default: the operands'); without --type, also that of files that store only bits"
    run.add_argument("--dtype", metavar="TYPE", help=of_result)
    max_threads = "the largest number of threads of generated kernels"
    run.add_argument("--threads", type=threads, help=max_threads)
    run.add_argument("--max-error", type=times, metavar="TIMES", help=MAX_ERROR)
    run.add_argument("--tune", action="store_true", help=TUNE)
    activation = "apply ReLU to a forward pass or BiasAdd, before rounding"
    run.add_argument("--activation", choices=("relu",), help=activation)
    memory = "the largest memory for the call's arrays, such as 1GB or 512MiB; files are read and written in parts"
    run.add_argument("--memory", metavar="BYTES", help=memory)
    checkpoint = "with --memory: a file of finished parts, so that you can resume the call"
    run.add_argument("--checkpoint", metavar="FILE", help=checkpoint)
    output = f"write the result to {place}; a graph's outputs go to a .npz or .safetensors file"
    run.add_argument("-o", "--output", metavar="FILE", help=output)
    run.add_argument("--force", action="store_true", help="replace the output file if it exists")
    check = "compare the result with the exact result; exit with 1 if an error is beyond its bound"
    run.add_argument("--check", choices=("oracle",), help=check)
    expect = f"compare another implementation's result, {place}, with the exact result"
    run.add_argument("--expect", metavar="FILE", help=expect)
    depth = f"with --expect: {HEIGHT}"
    run.add_argument("--height", metavar="N", type=height_or_blocks, help=depth)
    run.add_argument("--json", action="store_true", help="print JSON instead of text, one object per operator")
    return run
