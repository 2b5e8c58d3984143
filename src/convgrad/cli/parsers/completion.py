"""The arguments of ``convgrad completion``."""

from __future__ import annotations

import argparse

from convgrad.cli.exits import EXIT_CODES
from convgrad.cli.parsers.parser import Parser

SHELLS = ("bash", "zsh", "fish", "tcsh")


def parser() -> argparse.ArgumentParser:
    """Return the parser of ``convgrad completion``."""
    completion = Parser(
        prog="convgrad completion",
        description="Print the script by which a shell completes convgrad's commands, options and names (needs extra"
        ' completion): in bash, eval "$(convgrad completion bash)"; in zsh a file _convgrad in a folder of $fpath.',
        epilog=EXIT_CODES,
    )
    completion.add_argument("shell", metavar="SHELL", choices=SHELLS, help=", ".join(SHELLS))
    return completion
