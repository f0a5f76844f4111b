# SPDX-License-Identifier: Apache-2.0
"""Every gather kernel once, on small inputs: ``compute-sanitizer python sanitize_gather.py``.

Good under memcheck, racecheck, initcheck and synccheck. Not collected by pytest.
"""

from __future__ import annotations

import torch

from pytorch_direct import check, gather, unified


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
