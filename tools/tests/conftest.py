# SPDX-License-Identifier: Apache-2.0
"""Makes the scripts of ``tools/`` importable for their tests."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
