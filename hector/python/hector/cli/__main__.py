# SPDX-License-Identifier: Apache-2.0
"""``python -m hector.cli``: the command where it is not installed."""

import sys

from hector.cli.command import main

sys.exit(main())
