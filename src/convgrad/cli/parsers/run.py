"""The arguments of ``convgrad run``."""

from __future__ import annotations

import argparse

from convgrad.cli.parsers.parser import Parser, add_limit
from convgrad.cli.parsers.texts import MAX_ERROR, TUNE, height_or_blocks, seed, threads, times
from convgrad.formats import FORMATS


def parser() -> argparse.ArgumentParser:
    """Return the parser of ``convgrad run``."""
    run = Parser(
        "convgrad run",
        "Compute one operator, or a graph of them. Print the shapes, the resolved attributes, the time "
        "and the results. Operands are read from files, or generated from a problem line or shapes.",
        (
            'convgrad run "BWD_W f32 NXC mb8ic64ih56oc64oh56kh3ph1" --check oracle',
            "convgrad run ConvolutionBackwardWeights src.npy diff_dst.npy -o diff_weights.npy \\",
            "    --attr weights_shape=3,3,64,64 --attr strides=1,1 --attr dilations=1,1",
        ),
    )
    run.add_argument(
        "operator",
        metavar="OPERATOR",
        help="a versioned name, such as ConvolutionBackwardWeights, or a quoted problem line:"
        " [deconv] DIRECTION TYPE DATA_FORMAT[:WEIGHTS_FORMAT] and benchdnn's descriptor, or GRAPH.json",
    )
    place = "FILE.npy, FILE.npz:KEY or FILE.safetensors:KEY"
    run.add_argument("inputs", metavar="INPUT", nargs="*", help=f"{place}, in the operator's order")
    run.add_argument(
        "--attr",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="an attribute; values of a list are separated by commas: strides=1,1",
    )
    shapes = "generate operands of these shapes, such as 8x56x56x64; for a shape operand, give its values"
    run.add_argument("--shapes", metavar="SHAPE", nargs="+", help=shapes)
    tensors = "arrays of a graph by tensor id, in a .npz or .safetensors file; results among them are judged"
    run.add_argument("--tensors", metavar="FILE", help=tensors)
    add_limit(run)
    run.add_argument(
        "--fill",
        choices=("integers", "normal"),
        help="the values of generated operands (default integers); in a graph, of tensors that --tensors does not have",
    )
    run.add_argument("--type", choices=tuple(FORMATS), help="the type of generated operands (default f32)")
    run.add_argument("--seed", type=seed, help="the seed of generated operands (default 0)")
    run.add_argument("--dtype", metavar="TYPE", help="the type of the result (default: the operands')")
    max_threads = "the largest number of threads of generated kernels; the NumPy engine leaves threads to its BLAS"
    run.add_argument("--threads", type=threads, help=max_threads)
    run.add_argument("--max-error", type=times, metavar="TIMES", help=MAX_ERROR)
    run.add_argument("--tune", action="store_true", help=TUNE)
    activation = "apply ReLU to the results of a forward or of BiasAdd, before they are rounded"
    run.add_argument("--activation", choices=("relu",), help=activation)
    memory = (
        "the largest memory for the arrays of the call, such as 1GB, 512MiB or bytes; files are read and written in"
        " parts (default: files are read whole)"
    )
    run.add_argument("--memory", metavar="BYTES", help=memory)
    checkpoint = "with --memory: a file that stores finished parts, from which an interrupted call continues"
    run.add_argument("--checkpoint", metavar="FILE", help=checkpoint)
    output = f"write the result to {place}; the outputs of a graph by id to a .npz or .safetensors file"
    run.add_argument("-o", "--output", metavar="FILE", help=output)
    run.add_argument("--force", action="store_true", help="replace the output file if it exists")
    check = "compare the result with the exact one; exit with 1 if it is outside the proved bound"
    run.add_argument("--check", choices=("oracle",), help=check)
    expect = f"compare a result of another implementation, {place}, with the exact one in the same way, by its own type"
    run.add_argument("--expect", metavar="FILE", help=expect)
    depth = (
        "the rounding depth of the sums in the file of --expect, or the blocks of their order, B1,B2,... (default: any"
        " order, by the number of terms)"
    )
    run.add_argument("--height", metavar="N", type=height_or_blocks, help=depth)
    run.add_argument("--json", action="store_true", help="print JSON instead of text, one object per operator")
    return run
