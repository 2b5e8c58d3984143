"""The command line, run as ``python -m convgrad``."""

import sys

from convgrad.cli import main

if __name__ == "__main__":
    sys.exit(main())
