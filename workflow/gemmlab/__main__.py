"""`python -m gemmlab` is the command `gemmlab`."""

import sys

from gemmlab.cli import main

sys.exit(main())
