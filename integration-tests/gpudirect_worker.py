# SPDX-License-Identifier: Apache-2.0
"""Trains plain and offloaded to disk over the libcufile that is preloaded; prints an account.

Usage: gpudirect_worker.py LIBRARY SPILL PLAN
"""

from __future__ import annotations

import ctypes
import gc
import json
import sys

import torch
from torch import nn

import ssdtrain


def main(library: str, spill: str, plan: str) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(
        *[nn.Sequential(nn.Linear(512, 2048), nn.GELU(), nn.Linear(2048, 512)) for _ in range(4)]
    ).cuda()
    # Rows whose bytes end at no page, so that ranges are not aligned.
    x = torch.randn(1021, 512, device="cuda")

    def run(off: ssdtrain.Offloader | None) -> list[torch.Tensor]:
        model.zero_grad(set_to_none=True)
        if off is None:
            loss = model(x).square().mean()
        else:
            with off:
                loss = model(x).square().mean()
        loss.backward()
        return [loss.detach(), *(p.grad.clone() for p in model.parameters())]

    expected = run(None)
    off = ssdtrain.Offloader(
        spill, 0, "1GiB", min_bytes="64KiB", plan=plan, backlog="16MiB", checks=plan == "all"
    )
    equal = []
    for _ in range(8):
        found = run(off)
        equal.append(all(torch.equal(a, b) for a, b in zip(expected, found, strict=True)))
    del found
    gc.collect()
    report = off.report()
    fake = ctypes.CDLL(library)
    account = {
        "equal": equal,
        "written": ctypes.c_long.in_dll(fake, "fake_cufile_bytes_written").value,
        "read": ctypes.c_long.in_dll(fake, "fake_cufile_bytes_read").value,
        "disk": report["bytes"]["disk"],
        "faults": report["faults"],
        "live": report["live_bytes"],
        "gpudirect": report["tiers"]["disk"]["gpudirect"],
    }
    off.close()
    print(json.dumps(account, default=str))


if __name__ == "__main__":
    main(*sys.argv[1:])
