# SPDX-License-Identifier: Apache-2.0
"""What stands for ids and row counts during a trace; neither can be computed with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

from hector.frontend.record import Recorder
from hector.ir.types import compose

__all__ = ["GraphIndex", "RowCount"]


class RowCount:
    """The number of rows of a traced tensor; differs between graphs, so it is no number here."""

    def __init__(self, recorder: Recorder, value: int) -> None:
        self._recorder = recorder
        self.value = value

    def _refuse(self, *args: object) -> NoReturn:
        raise self._recorder.refuse(
            "computing with a number of rows (.shape[0], g.num_nodes, ..)",
            "it changes from graph to graph: use hector.aggregate(reduce='mean'), a weight's "
            "last extents, or pass the number as an argument",
        )

    def __repr__(self) -> str:
        return "the number of rows"


for _name in (
    "int index float bool add radd sub rsub mul rmul truediv rtruediv floordiv rfloordiv mod rmod "
    "pow rpow divmod neg abs round lt gt le ge eq ne"
).split():
    setattr(RowCount, f"__{_name}__", RowCount._refuse)
RowCount.__hash__ = object.__hash__  # type: ignore[method-assign]


@dataclass(frozen=True, eq=False)
class GraphIndex:
    """``g.src`` and its like: good for indexing and for nothing else."""

    map: str
    text: str
    recorder: Recorder

    @classmethod
    def __torch_function__(cls, *args: Any, **kwargs: Any) -> Any:
        from hector.frontend.symbol import Symbol

        return Symbol.__torch_function__(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise self.recorder.refuse(f"{self.text}.{name}", f"use x[{self.text}] only")

    def __getitem__(self, key: object) -> GraphIndex:
        """``g.node_type[g.src]`` and its like."""
        whole = compose(key.map, self.map) if isinstance(key, GraphIndex) else None
        if whole is None:
            raise self.recorder.refuse(f"{self.text} indexed", f"use x[{self.text}] only")
        return GraphIndex(whole, f"g.{whole.partition('.')[2]}", self.recorder)


def _refused(name: str) -> Callable[..., Any]:
    def method(self: GraphIndex, *others: object) -> NoReturn:
        what = f"computing with the ids {self.text} ({name})"
        raise self.recorder.refuse(what, "ids only index: pass computed values as edge tensors")

    return method


for _name in (
    "add radd sub rsub mul rmul truediv rtruediv floordiv mod eq ne lt le gt ge neg and or xor "
    "invert iter len bool"
).split():
    setattr(GraphIndex, f"__{_name}__", _refused(f"__{_name}__"))
