# SPDX-License-Identifier: Apache-2.0
"""``python -m pytorch_direct.cli``: the command where it is not installed."""

import sys

from pytorch_direct.cli.command import main

sys.exit(main())
