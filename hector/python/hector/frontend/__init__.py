# SPDX-License-Identifier: Apache-2.0
"""Records a user's function on symbols and turns the record into IR."""

from hector.frontend.trace import Input, Trace, trace

__all__ = ["Input", "Trace", "trace"]
