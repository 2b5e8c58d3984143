"""The parsers of the commands, one module per command, which is imported when the command runs."""

from collections.abc import Mapping

COMMANDS: Mapping[str, str] = {
    "run": "run one operator or a graph, on files or generated operands",
    "verify": "judge the results of any implementation, with a proved bound",
    "conformance": "count by feature what an implementation does right",
    "explain": "print a graph, or how convgrad would compute a problem",
    "probe": "find the order in which a function adds",
    "bench": "time problems, and compare with PyTorch or JAX",
    "calibrate": "measure this machine, so that faster plans are chosen",
    "info": "print versions, processor and settings for a bug report",
}
