# SPDX-License-Identifier: Apache-2.0
"""What stands for a tensor while a function is traced; the operators are in operators."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, NoReturn

import torch
from torch import Tensor

from hector.dtypes import TORCH
from hector.frontend import operators
from hector.frontend.index import RowCount
from hector.frontend.location import located
from hector.frontend.numbers import TracedInt
from hector.frontend.record import Call, Recorder
from hector.ir.types import Space

__all__ = ["Symbol"]


class Symbol:
    """A tensor under trace: records what is done to it.

    Parameters
    ----------
    recorder : Recorder
    call : Call
    """

    def __init__(self, recorder: Recorder, call: Call) -> None:
        self._recorder = recorder
        self._call = call

    @property
    def shape(self) -> tuple[Any, ...]:
        """Extents; the first is a ``RowCount``, unless the tensor is known to have no rows."""
        shape = self._call.shape
        if not shape or self._call.var.space is Space.WEIGHT:
            return shape
        return (RowCount(self._recorder, shape[0]), *shape[1:])

    def size(self, dim: int | None = None) -> Any:
        """As ``Tensor.size``."""
        return self.shape if dim is None else self.shape[dim]

    def dim(self) -> int:
        """Number of dimensions, rows included."""
        return len(self._call.shape)

    @property
    def ndim(self) -> int:
        """Number of dimensions, rows included."""
        return self.dim()

    @property
    def dtype(self) -> torch.dtype:
        """As ``Tensor.dtype``."""
        return TORCH.get(self._call.dtype, torch.int64)  # the last of a seed

    @property
    def T(self) -> Any:  # noqa: N802
        """Transpose of a matrix."""
        return self._apply("t")

    @property
    def mT(self) -> Any:  # noqa: N802
        """Last two dimensions exchanged."""
        return self._apply("transpose", -2, -1)

    def _apply(self, name: str, *args: Any, **kwargs: Any) -> Any:
        return run(self._recorder, name, (self, *args), kwargs)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("_"):
            raise AttributeError(name)
        if name not in operators.HANDLERS:
            raise self._recorder.refuse(f"Tensor.{name}", operators.remedy(name))

        def method(*args: Any, **kwargs: Any) -> Any:
            return self._apply(name, *args, **kwargs)

        return method

    @classmethod
    def __torch_function__(
        cls,
        func: Callable[..., Any],
        types: object,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        recorder = _find(args, kwargs or {})
        name = operators.FUNCTIONS.get(func)
        if name is None:
            shown = str(getattr(func, "__qualname__", None) or getattr(func, "__name__", func))
            shown = shown.replace("_VariableFunctionsClass", "torch")
            raise recorder.refuse(shown, operators.remedy(shown.rpartition(".")[2]))
        return run(recorder, name, args, kwargs or {})

    def __getitem__(self, key: Any) -> Any:
        return self._apply("getitem", key)

    def __setitem__(self, key: Any, value: Any) -> NoReturn:
        raise self._recorder.refuse("assignment to elements", "build a new tensor instead")

    def __bool__(self) -> NoReturn:
        raise self._recorder.refuse(
            "a branch or a loop on a tensor's value", "the program must not depend on the data"
        )

    def __iter__(self) -> NoReturn:
        raise self._recorder.refuse("a loop over rows", "write the step for all rows at once")

    def __len__(self) -> NoReturn:
        raise self._recorder.refuse("len() of a tensor", "row counts change from graph to graph")

    def __neg__(self) -> Any:
        return self._apply("neg")

    def __abs__(self) -> Any:
        return self._apply("abs")

    def __pos__(self) -> Symbol:
        return self

    def __repr__(self) -> str:
        return f"Symbol(shape={self._call.shape}, dtype={self._call.dtype})"


def _operator(name: str, swapped: bool = False) -> Callable[[Symbol, Any], Any]:
    def method(self: Symbol, other: Any) -> Any:
        pair = (other, self) if swapped else (self, other)
        return run(self._recorder, name, pair, {})

    return method


for _python, _name in (
    ("add", "add"), ("sub", "sub"), ("mul", "mul"), ("truediv", "div"), ("matmul", "matmul"),
    ("pow", "pow"),
):  # fmt: skip
    setattr(Symbol, f"__{_python}__", _operator(_name))
    setattr(Symbol, f"__r{_python}__", _operator(_name, swapped=True))
for _python in "lt le gt ge eq ne iadd isub imul itruediv floordiv mod and or invert xor".split():
    setattr(Symbol, f"__{_python}__", _operator(f"__{_python}__"))
Symbol.__hash__ = object.__hash__  # type: ignore[method-assign]


def _find(args: object, kwargs: object) -> Recorder:
    stack = [args, kwargs]
    while stack:
        item = stack.pop()
        if isinstance(item, Symbol):
            return item._recorder
        if isinstance(item, tuple | list):
            stack.extend(item)
        elif isinstance(item, dict):
            stack.extend(item.values())
        elif hasattr(item, "recorder"):
            found: Recorder = item.recorder
            return found
    raise TypeError("no traced tensor among the arguments")


_NUMPY = {"axis": "dim", "keepdims": "keepdim"}
"""NumPy's names of arguments, which PyTorch takes too."""

_ITSELF = frozenset(
    "contiguous to type_as float double half bfloat16 dropout hector_dropout".split()
)
"""What may return its argument; everything else returns a new tensor."""


def _unwrap(recorder: Recorder, value: Any, seeded: bool = False) -> Any:
    if isinstance(value, TracedInt):
        return value if seeded else value.fixed()
    if isinstance(value, Symbol):
        if value._recorder is not recorder:
            raise ValueError("a tensor of another trace was kept and used in this one")
        return value._call
    if isinstance(value, Tensor):
        raise recorder.refuse(
            "a tensor that is neither an argument nor a module's attribute",
            "pass it to the function as an argument",
        )
    if type(value) in (tuple, list):
        return type(value)(_unwrap(recorder, item) for item in value)
    return value


def run(recorder: Recorder, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Record the operation of this name on symbols."""
    if name not in operators.HANDLERS:
        raise recorder.refuse(f"the operator {name}", operators.remedy(name))
    handler = operators.HANDLERS[name]
    seeded = name == "hector_dropout"
    positional = tuple(_unwrap(recorder, arg, seeded and i == 2) for i, arg in enumerate(args))
    signature = inspect.signature(handler)
    named = {
        _NUMPY[key] if key in _NUMPY and key not in signature.parameters else key:
        _unwrap(recorder, value, seeded and key == "seed")
        for key, value in kwargs.items()
    }  # fmt: skip
    try:
        signature.bind(recorder, *positional, **named)
    except TypeError as error:
        what = f"this form of {name} ({error})"
        raise recorder.refuse(what, operators.remedy(name)) from error
    try:
        result = handler(recorder, *positional, **named)
    except (IndexError, TypeError, ValueError) as error:
        raise located(error, name) from error
    if isinstance(result, tuple):
        return tuple(Symbol(recorder, item) for item in result)
    same = any(result is operand for operand in positional)
    if same and name not in _ITSELF and not torch.is_grad_enabled():
        result = recorder.detached(result)
    return Symbol(recorder, result)
