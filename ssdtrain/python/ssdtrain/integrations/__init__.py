# SPDX-License-Identifier: Apache-2.0
"""Offloading inside other people's training loops.

:func:`wrap_forward` is all that most of them need. :mod:`ssdtrain.integrations.transformers` and
:mod:`ssdtrain.integrations.lightning` put it behind a callback; importing this package imports
neither of those libraries.
"""

from .wrap_forward import WrapHandle, wrap_forward

__all__ = ["WrapHandle", "wrap_forward"]
