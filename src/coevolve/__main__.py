"""`python -m coevolve`: see `coevolve.cli`."""

import sys

from coevolve.cli import main

if __name__ == "__main__":
    sys.exit(main())
