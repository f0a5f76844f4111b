# SPDX-License-Identifier: Apache-2.0
"""A Lightning ``Trainer`` with the callback, and a Fabric loop."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from frameworks_support import WIDTH, Model, assert_equal, batch, gradients, seeded
from packages import needed

lightning = needed("lightning")

from ssdtrain.integrations import wrap_forward  # noqa: E402
from ssdtrain.integrations.lightning import OffloadCallback  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(autouse=True)
def _no_process_group_left() -> Iterator[None]:
    yield
    if dist.is_initialized():  # Lightning's DDP strategy leaves it.
        dist.destroy_process_group()


class Module(lightning.LightningModule):
    """Logs its losses."""

    def __init__(self) -> None:
        super().__init__()
        self.model, self.losses = Model(), []

    def training_step(self, x: torch.Tensor, batch_idx: int) -> torch.Tensor:
        loss = self.model(x).square().mean()
        self.losses.append(loss.detach().clone())
        return loss

    def validation_step(self, x: torch.Tensor, batch_idx: int) -> None:
        self.model(x)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=1e-2)


class TwoBackwards(Module):
    """Manual optimisation: backward runs inside ``training_step``."""

    automatic_optimization = False

    def training_step(self, x: torch.Tensor, batch_idx: int) -> None:
        optimizer = self.optimizers()
        loss = super().training_step(x, batch_idx)
        optimizer.zero_grad()
        self.manual_backward(loss, retain_graph=True)
        self.manual_backward(loss)
        optimizer.step()


class Fails(Module):
    def training_step(self, x: torch.Tensor, batch_idx: int) -> torch.Tensor:
        super().training_step(x, batch_idx)
        raise ValueError("stop here")


def fit(
    folder: Path, kind: type[Module], callbacks: list[Any], **arguments: Any
) -> tuple[dict[str, torch.Tensor], Module]:
    module = seeded(kind)
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=1,
        max_epochs=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=folder,
        callbacks=callbacks,
        **arguments,
    )
    data = torch.utils.data.DataLoader([batch(step)[0] for step in range(8)], batch_size=2)
    torch.manual_seed(1)
    trainer.fit(module, data, data)
    return {"losses": torch.stack(module.losses), **module.state_dict()}, module


@pytest.mark.parametrize("kind", [Module, TwoBackwards])
@pytest.mark.parametrize(
    "arguments",
    [{}, {"precision": "bf16-mixed"}, {"strategy": "ddp"}],
    ids=["plain", "bf16", "ddp"],
)
def test_fit(kind: type[Module], arguments: dict[str, Any], tmp_path: Path, offloader: Any) -> None:
    plain, _ = fit(tmp_path, kind, [], **arguments)
    moved, module = fit(tmp_path, kind, [OffloadCallback(offloader)], **arguments)
    assert_equal(moved, plain)
    report = offloader.report()
    assert report["bytes"]["disk"] > 0
    assert report["faults"] == []
    # Four steps; validation began none.
    assert report["step"] == 4
    assert "training_step" not in module.__dict__


def test_accumulation(tmp_path: Path, offloader: Any) -> None:
    plain, _ = fit(tmp_path, Module, [], accumulate_grad_batches=2)
    moved, _ = fit(tmp_path, Module, [OffloadCallback(offloader)], accumulate_grad_batches=2)
    assert_equal(moved, plain)
    assert offloader.report()["bytes"]["disk"] > 0


def test_after_an_exception_in_a_step(tmp_path: Path, offloader: Any) -> None:
    callback = OffloadCallback(offloader)
    with pytest.raises(ValueError, match="stop here"):
        fit(tmp_path, Fails, [callback])
    plain, _ = fit(tmp_path, Module, [])
    moved, _ = fit(tmp_path, Module, [callback])
    assert_equal(moved, plain)


@pytest.mark.parametrize("before", [False, True])
def test_fabric(before: bool, offloader: Any) -> None:
    def run(offload: bool) -> dict[str, torch.Tensor]:
        fabric = lightning.Fabric(accelerator="cpu", devices=1, precision="bf16-mixed")
        model = seeded(Model)
        if offload and before:
            wrap_forward(model, offloader)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model, optimizer = fabric.setup(model, optimizer)
        if offload and not before:
            wrap_forward(model, offloader)
        for step in range(2):
            optimizer.zero_grad()
            loss = model(batch(step)).square().mean()
            fabric.backward(loss)
            optimizer.step()
        return {"loss": loss.detach(), **gradients(model)}

    plain = run(False)
    assert_equal(run(True), plain)
    assert offloader.report()["bytes"]["disk"] > WIDTH


def test_wrong_argument() -> None:
    with pytest.raises(TypeError, match="takes an Offloader, not str"):
        OffloadCallback("/tmp")
