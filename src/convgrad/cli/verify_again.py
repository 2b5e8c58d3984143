"""The command line that repeats one case of ``convgrad verify`` without the other cases."""

from __future__ import annotations

import shlex
from contextlib import suppress

from convgrad import notation
from convgrad.cli.arguments import typed
from convgrad.cli.verify_options import VerifyOptions
from convgrad.descriptor import AxisSize, Descriptor
from convgrad.errors import ConvgradError
from convgrad.functional.call import problem_from_shapes
from convgrad.notation import Line
from convgrad.spec.geometry import Conv
from convgrad.spec.problem import Problem
from convgrad.verify.cases.case import Case

# Options with a value that can change the verdict of a case, except those that select the case or generate operands.
KEPT = (
    "call",
    "signature",
    "got",
    "operands",
    "accumulation",
    "height",
    "algorithm",
    "max_error",
    "sample",
    "repeat",
    "timeout",
)


def reproducer(case: Case, options: VerifyOptions, read: bool = False) -> str:
    """Return the command line that judges only this case; ``read`` is whether its operands were read from files."""
    words = ["convgrad", "verify", *_case(case, options, read or options.operands is not None)]
    for name in KEPT:
        value = getattr(options, name)
        words += [f"--{name.replace('_', '-')}", typed(value)] * (value is not None)
    if options.isolate is not None and options.isolate != (options.signature is not None):  # not the default
        words += ["--isolate" if options.isolate else "--no-isolate"]
    for text in options.limit:
        words += ["--limit", text]
    return shlex.join(map(str, words))


def _case(case: Case, options: VerifyOptions, read: bool) -> list[str]:
    """Return the arguments that select only this case, and the fill and seed of generated operands.

    If neither operands nor the result are read from files, the arguments describe the problem itself.
    """
    made_up = ["--fill", options.fill, "--seed", str(options.seed)]
    if case.arrays is None and options.got is None and options.operands is None:
        with suppress(ConvgradError):  # --dtype may make the problem invalid
            return [*_problem(case), *made_up]
    words = list(options.cases)
    for name in options.collection:
        words += ["--collection", name]
    if options.shapes is not None:
        words += ["--shapes", *options.shapes, *(word for text in options.attr for word in ("--attr", text))]
        words += ["--type", options.type] if options.type is not None else []
    words += ["--dtype", options.dtype] if options.dtype is not None else []
    words += ["--only", case.name] * (options.shapes is None)
    return [*words, *made_up[2:] * (options.seed > 0)] if case.arrays or read else [*words, *made_up]


def _problem(case: Case) -> list[str]:
    """Return a problem line if the notation can express the problem, else the operator with shapes and attributes."""
    fmt, to = case.operand_format, case.output_format
    line = problem_line(case.posed()[1])
    dtype = ["--dtype", to.name] * (to is not fmt)
    if line is not None:
        return [line, *dtype]
    words = [case.operator, "--shapes", *(("x".join(map(str, shape)) or "0") for shape in case.shapes)]
    for name, value in case.attributes.items():
        if value is not None and not (isinstance(value, list | tuple) and not value):
            words += ["--attr", f"{name}={typed(value)}"]
    return [*words, "--type", fmt.name, *dtype]


# Keys: whether the convolution is transposed, and the tensor that it solves for.
DIRECTIONS = {
    (False, "dst"): "FWD_D",
    (False, "src"): "BWD_D",
    (False, "weights"): "BWD_W",
    (True, "src"): "FWD_D",
    (True, "dst"): "BWD_D",
    (True, "weights"): "BWD_W",
}


def problem_line(problem: Problem) -> str | None:
    """Return the problem line of this problem, without the type of its output; None if no problem line expresses it.

    >>> problem_line(notation.problem("deconv BWD_D bf16 NCX mb1_ic2_iw4_oc4_ow9_kw3_sw2"))
    'deconv BWD_D bf16 NCX mb1ic2iw4oc4ow9kw3sw2pw0'
    """
    conv, transposed = problem.geometry, problem.operator.startswith("ConvTranspose")
    direction = DIRECTIONS.get((transposed, problem.solves_for))
    if not isinstance(conv, Conv) or direction is None:
        return None
    ends = ("dst", "src") if transposed else ("src", "dst")  # the operator's input and output
    inner, outer = (getattr(conv, f"{end}_channels") for end in ends)
    axes = tuple(
        AxisSize(getattr(a, ends[0]), getattr(a, ends[1]), a.kernel, a.stride, a.pad_begin, a.pad_end, a.dilation)
        for a in conv.axes
    )
    layouts = dict(zip((*problem.operands, problem.output), problem.layouts, strict=True))
    data = layouts.get("src") or layouts["dst"]
    descriptor = Descriptor(conv.batch, conv.groups, inner, outer, axes)
    line = Line(
        transposed,
        "FWD_B" if "bias" in problem.operands else direction,
        problem.operand_format,
        data,
        layouts["weights"],
        descriptor,
    )
    try:
        text = notation.write(line)
        call = notation.calls(notation.read(text, strict=True))[0]
        again = problem_from_shapes(call.operator, call.shapes, call.attributes, call.format, problem.output_format)[1]
    except ConvgradError:  # the notation cannot express the problem
        return None
    return text if again == problem else None
