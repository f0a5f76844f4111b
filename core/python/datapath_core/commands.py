# SPDX-License-Identifier: Apache-2.0
"""What command lines of this and dependent packages share: how they end, and what they start with.

Not for what any command does, nor for reading its arguments.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from datapath_core.errors import Error

__all__ = ["exit_status", "load_factory", "with_threads_that_sleep"]

# What a user can mend: said in one line. Any other exception is a fault of the program.
_SAID = (Error, ImportError, MemoryError, OSError, RuntimeError, TypeError, ValueError)


def exit_status(name: str, action: Callable[[], int | None]) -> int:
    """Run what a command does and return the status that its process ends with.

    Parameters
    ----------
    name : str
        Of the command, as a user types it; errors begin with it.
    action : callable
        Does the work; returns a status, or ``None`` for 0.

    Returns
    -------
    int
        What `action` returned; 1 after an error, which is said in one line on standard error, or
        where nobody reads on (``... | head``), which is not said; 130 after Ctrl-C.
    """
    try:
        status = action()
        sys.stdout.flush()
    except BrokenPipeError:
        # What is still in the buffer would fail once more when the process ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except _SAID as error:
        print(f"{name}: {str(error) or type(error).__name__}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return status or 0


def with_threads_that_sleep() -> None:
    """Start this process again if its idle OpenMP threads would spin.

    On a busy machine those threads take the processors from the ones that compute or move bytes,
    and what is measured is that. The policy is read when torch is loaded, which may have happened
    by now. A policy that the environment names is left as it is.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ["OMP_WAIT_POLICY"] = "passive"
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def load_factory(name: str) -> Callable[[], Any]:
    """Return the function that "script.py:make" or "package.module:make" names.

    Raises
    ------
    ValueError
        If there is no such file, module or function.
    """
    where, _, attribute = name.rpartition(":")
    if not where or not attribute:
        raise ValueError(f"{name!r} names no function: 'script.py:make' or 'module:make' wanted")
    path = Path(where)
    if where.endswith(".py"):
        if not path.is_file():
            raise ValueError(f"there is no file {where}")
        spec = importlib.util.spec_from_file_location(path.stem, path)
        if spec is None or spec.loader is None:
            raise ValueError(f"{where} cannot be imported")
        module = importlib.util.module_from_spec(spec)
        # Pickling and dataclasses of the script look its module up by name; what stands beside it
        # is imported as if it were run.
        sys.modules.setdefault(path.stem, module)
        sys.path.insert(0, str(path.resolve().parent))
        spec.loader.exec_module(module)
    else:
        try:
            module = importlib.import_module(where)
        except ModuleNotFoundError as error:
            raise ValueError(f"no module {where!r}: {error}") from None
    factory = getattr(module, attribute, None)
    if not callable(factory):
        raise ValueError(f"{where} has no function {attribute!r}")
    return factory  # type: ignore[no-any-return]
