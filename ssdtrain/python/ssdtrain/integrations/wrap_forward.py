# SPDX-License-Identifier: Apache-2.0
"""Enters the offloader around each forward pass of a module, for loops that one does not write."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from types import TracebackType
from typing import Any

import torch

from ssdtrain.offloader import Offloader

__all__ = ["WrapHandle", "wrap_forward"]


def wrap_forward(
    module: torch.nn.Module, offloader: Offloader, method: str = "forward"
) -> WrapHandle:
    """Make every forward pass of a module run inside the offloader.

    It does what ``with offloader: module(...)`` does, where the call stands in a framework's
    training loop. Passes without gradients (evaluation, generation) are left alone. Hooks on the
    module, checkpointing inside it, copies (``copy.deepcopy``) and pickles of it work as before;
    a copy offloads too, a pickle does not.

    Parameters
    ----------
    module : torch.nn.Module
        Also one that a framework has wrapped (DDP, FSDP2, an Accelerate or DeepSpeed model).
    offloader : Offloader
        Stays the caller's to close.
    method : str, default "forward"
        The method to wrap, for frameworks that call another one (Lightning: ``training_step``).

    Returns
    -------
    WrapHandle
        ``handle.remove()`` undoes it; so does leaving ``with wrap_forward(...):``.

    Raises
    ------
    TypeError
        If ``module`` is no module or ``offloader`` no offloader.
    AttributeError
        If the module has no such method.
    """
    if not isinstance(module, torch.nn.Module):
        raise TypeError(f"wrap_forward() takes a torch.nn.Module, not {type(module).__name__}")
    if not isinstance(offloader, Offloader):
        raise TypeError(f"wrap_forward() takes an Offloader, not {type(offloader).__name__}")
    call = getattr(module, method, None)
    if not callable(call):
        raise AttributeError(f"{type(module).__name__} has no method {method}() to wrap")
    # A compiler must see the call below, but not the offloader, which is no part of the graph.
    torch.compiler.disable(OffloadedCall.__call__, recursive=False)  # type: ignore[no-untyped-call]
    wrapper = OffloadedCall(module, method, call, offloader)
    handle = WrapHandle(wrapper, module.__dict__.get(method))
    # Not setattr: containers such as Fabric's pass that on to the module that they hold.
    module.__dict__[method] = wrapper
    return handle


class OffloadedCall:
    """Stands in a module's instance dictionary in place of the method.

    An object rather than a closure: a copied module must call its own method, not that of the
    module it was copied from, and a pickled one must not carry an offloader.
    """

    def __init__(
        self,
        module: torch.nn.Module,
        method: str,
        call: Callable[..., Any],
        offloader: Offloader | None,
    ) -> None:
        # Frameworks look at the signature and drop batch columns that it does not name.
        functools.update_wrapper(self, call, updated=())
        self.module = module
        self.method = method
        self.call = call
        self.offloader = offloader

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        offloader = self.offloader
        if offloader is None or not torch.is_grad_enabled():
            return self.call(*args, **kwargs)
        with offloader:
            return self.call(*args, **kwargs)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        module = memo.get(id(self.module))
        if module is None:  # Copied without its module: the same method of the same module.
            return self
        call = copy.deepcopy(self.call, memo)
        return OffloadedCall(module, self.method, call, self.offloader)

    def __reduce__(self) -> Any:
        return _itself, (self.call,)


class WrapHandle:
    """Undoes :func:`wrap_forward`."""

    def __init__(self, wrapper: OffloadedCall, before: Any) -> None:
        self._wrapper = wrapper
        self._before = before

    def remove(self) -> None:
        """Let forward passes run without the offloader again; a second call does nothing."""
        wrapper = self._wrapper
        # Something wrapped later may hold it: there it goes on as a plain call.
        wrapper.offloader = None
        attributes = wrapper.module.__dict__
        if attributes.get(wrapper.method) is not wrapper:
            return
        if self._before is None:
            del attributes[wrapper.method]
        else:
            attributes[wrapper.method] = self._before

    def __enter__(self) -> WrapHandle:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.remove()


def _itself(call: Any) -> Any:
    return call
