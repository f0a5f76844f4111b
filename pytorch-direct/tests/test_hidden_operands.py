# SPDX-License-Identifier: Apache-2.0
"""Operands whose memory native code must not read, or that carry what it would lose."""

from __future__ import annotations

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import forward_ad

import pytorch_direct as ptd
from datapath_core import UnsupportedError

IDS = torch.tensor([1, 0])


def test_tensors_of_fake_mode_are_refused():
    with FakeTensorMode():
        table, ids = torch.zeros(5, 3), torch.zeros(2, dtype=torch.long)
        with pytest.raises(TypeError, match="FakeTensorMode"):
            ptd.gather(table, ids)
        with pytest.raises(TypeError, match="FakeTensorMode"):
            ptd.scatter_add_(table, ids, torch.zeros(2, 3))


def test_zero_tensors_of_autograd_are_refused():
    zeros = torch._efficientzerotensor(4, 3)
    with pytest.raises(TypeError, match="clone"):
        ptd.gather(zeros, IDS)
    with pytest.raises(TypeError, match="clone"):
        ptd.scatter_add_(torch.ones(4, 3), IDS, zeros[:2])
    assert torch.equal(ptd.gather(zeros.clone(), IDS), torch.zeros(2, 3))


def test_tangents_are_refused_and_not_lost():
    table = torch.randn(4, 3)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(table, torch.ones_like(table))
        with pytest.raises(UnsupportedError, match="forward-mode"):
            ptd.gather(dual, IDS)
        with pytest.raises(UnsupportedError, match="forward-mode"):
            ptd.scatter_add_(torch.zeros(4, 3), IDS, dual[:2])
        assert torch.equal(ptd.gather(table, IDS), table[IDS])
