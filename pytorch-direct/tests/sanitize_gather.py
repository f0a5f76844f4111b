# SPDX-License-Identifier: Apache-2.0
"""Every gather kernel once, on small inputs: ``compute-sanitizer python sanitize_gather.py``.

Good under memcheck, racecheck, initcheck and synccheck. Not collected by pytest.
"""

from __future__ import annotations

import torch

from pytorch_direct import check, gather, scatter_add_, unified
from pytorch_direct.optim import SparseAdagrad, SparseAdam, SparseSGD


def main() -> None:
    """Run each form, width, id type, order and conversion; compare with the CPU."""
    for width in (1, 2, 3, 4, 8, 16, 24, 64, 100, 128, 130, 256, 412, 1024, 3076):
        for offset in (0, 1, 4, 16):
            base = torch.randint(0, 256, (offset + 500 * width,), dtype=torch.uint8)
            table = base[offset:].view(500, width)
            for kind in (torch.int32, torch.int64):
                ids = torch.randint(0, 500, (600,), dtype=kind)
                for order in ("none", "address"):
                    rows = gather(unified(table), ids.cuda(), order=order)
                    assert torch.equal(rows.cpu(), table[ids])
    cube = torch.randn(300, 5, 8).transpose(1, 2)
    ids = torch.randint(0, 300, (400,))
    assert torch.equal(gather(unified(cube), ids.cuda()).cpu(), cube[ids])
    for source in (torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int8):
        table = torch.randint(0, 100, (300, 7)).to(source)
        for target in (torch.float32, torch.float16, torch.bfloat16):
            rows = gather(unified(table), ids.cuda(), dtype=target)
            assert torch.equal(rows.cpu(), table[ids].to(target))
        for scale in (0.5, torch.rand(300)):
            moved = scale.cuda() if isinstance(scale, torch.Tensor) else scale
            rows = gather(unified(table), ids.cuda(), scale=moved, dtype=torch.float32)
            assert torch.equal(rows.cpu(), gather(table, ids, scale=scale, dtype=torch.float32))
    for width in (7, 64, 412):
        table = torch.randint(0, 256, (300, width), dtype=torch.uint8)
        rows = gather(unified(table), (ids % 20).cuda(), duplicates="merge")
        assert torch.equal(rows.cpu(), table[ids % 20])
    for kind in (SparseSGD, SparseAdagrad, SparseAdam):
        weights = torch.nn.Parameter(unified(torch.randn(300, 33)))
        optimiser = kind([weights])
        weights[ids.cuda()].square().sum().backward()
        optimiser.step()
    added = unified(torch.zeros(300, 5, dtype=torch.int64))
    scatter_add_(added, ids.cuda(), torch.ones(400, 5, dtype=torch.int64, device="cuda"))
    assert torch.equal(added[:, 0].clone(), torch.bincount(ids, minlength=300))
    large = torch.randn(200_000, 3)
    ids = torch.randint(0, 200_000, (100_000,))
    ids[5] = 200_000
    for order in ("none", "address"):
        gather(unified(large), ids.cuda(), order=order)
        try:
            check()
        except IndexError:
            continue
        raise AssertionError("a bad id went unnoticed")
    torch.cuda.synchronize()
    print("clean")


if __name__ == "__main__":
    main()
