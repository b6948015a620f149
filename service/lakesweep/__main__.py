"""`python -m lakesweep` is the `lakesweep` command."""

from __future__ import annotations

import sys

from lakesweep.cli.main import main

sys.exit(main())
