# SPDX-License-Identifier: Apache-2.0
"""The inter-operator IR: typed SSA over the spaces of a relational graph; knows no kernel."""

from hector.ir.function import Builder, Function, Value
from hector.ir.parser import parse
from hector.ir.printer import print_function
from hector.ir.types import MAPS, Map, Space, Type
from hector.ir.verifier import verify

__all__ = [
    "MAPS",
    "Builder",
    "Function",
    "Map",
    "Space",
    "Type",
    "Value",
    "parse",
    "print_function",
    "verify",
]
