# SPDX-License-Identifier: Apache-2.0
"""How passes are tested: on IR text, before and after."""

import textwrap

from hector import passes
from hector.ir import parse, print_function, verify

__all__ = ["check", "same"]


def same(made, text):
    """Check that a function is this text, but for operators that nothing reads."""
    assert (
        print_function(verify(passes.eliminate_dead(made))).strip() == textwrap.dedent(text).strip()
    )


def check(run, before, after):
    same(run(verify(parse(textwrap.dedent(before)))), after)
