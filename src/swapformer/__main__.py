"""`python -m swapformer`: the command line, where the folder of its script is not on the path."""

import sys

from swapformer.cli import main

sys.exit(main())
