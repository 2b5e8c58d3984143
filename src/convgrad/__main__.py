"""``python -m convgrad``: the command line."""

import sys

from convgrad.cli import main

if __name__ == "__main__":
    sys.exit(main())
