# SPDX-License-Identifier: Apache-2.0
"""The recorder beside compiled functions, other modes, distributed tensors, odd layouts."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from recompute_harness import (
    DroppingHooks,
    assert_same_training,
    everything,
    recipe_of,
    run,
    same_bits,
)
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)
from torch.utils.flop_counter import FlopCounterMode

from ssdtrain.recipes import Recipe
from ssdtrain.recorder import Recorder
from ssdtrain.storage import Layout

aten = torch.ops.aten


@contextlib.contextmanager
def one_process() -> Iterator[None]:
    if not torch.distributed.is_available():
        pytest.skip("without torch.distributed")
    store = torch.distributed.HashStore()
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        yield
    finally:
        torch.distributed.destroy_process_group()


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    with Recorder(everything) as mode:
        yield mode


@pytest.fixture
def x() -> torch.Tensor:
    torch.manual_seed(0)
    return torch.randn(64, 32)


def test_collective_writes(recorder: Recorder, x: torch.Tensor) -> None:
    y = F.gelu(x)

    with one_process():
        torch.distributed.all_reduce(y)
    assert recorder.recipe(y) is None


def test_compiled_functions_stay_compiled(x: torch.Tensor) -> None:
    compiled = []

    def backend(graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> object:
        compiled.append(graph)
        return graph.forward

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = torch.nn.Linear(32, 32)
            self.middle = torch.compile(
                torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.GELU()), backend=backend
            )
            self.last = torch.nn.Linear(32, 32)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.last(F.silu(self.middle(F.gelu(self.first(x))))).sum()  # type: ignore[no-any-return]

    torch._dynamo.reset()
    model = Model()
    hooks = DroppingHooks()
    with hooks:
        model(x).backward()
    assert len(compiled) == 1
    assert_same_training(model, lambda: model(x), hooks)
    assert len(compiled) == 1
    assert {"gelu", "silu"} <= set(hooks.names)


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compiled_backends(backend: str, x: torch.Tensor) -> None:
    if backend == "inductor":
        pytest.importorskip("torch._inductor")
        import shutil

        if shutil.which("g++") is None:
            pytest.skip("no C++ compiler")
    torch._dynamo.reset()
    model = torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.GELU(), torch.nn.Linear(32, 32))
    middle = torch.compile(model, backend=backend)
    assert_same_training(model, lambda: F.silu(middle(x)).pow(2).sum(), DroppingHooks())


def test_under_functorch_and_inference(recorder: Recorder, x: torch.Tensor) -> None:
    def loss(value: torch.Tensor) -> torch.Tensor:
        return F.gelu(value).sum()

    expected = torch.func.grad(loss)(x)
    assert same_bits(torch.func.grad(loss)(x), expected)
    assert torch.vmap(F.gelu)(x).shape == x.shape
    with torch.inference_mode():
        y = F.gelu(x)
        y.add_(1)
    assert recorder.recipe(y) is None
    z = F.silu(y)
    assert recorder.recipe(z) is None
    with torch.no_grad():
        assert recorder.recipe(F.gelu(x)) is None


def test_beside_other_modes(x: torch.Tensor) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.GELU(), torch.nn.Linear(32, 32))
    with FlopCounterMode(display=False) as outer:
        assert_same_training(model, lambda: model(x).sum(), DroppingHooks())
    assert outer.get_total_flops() > 0

    def selective() -> torch.Tensor:
        def contexts() -> object:
            return create_selective_checkpoint_contexts(
                lambda _, op, *args, **kwargs: (
                    CheckpointPolicy.MUST_SAVE
                    if op is aten.addmm.default
                    else CheckpointPolicy.PREFER_RECOMPUTE
                )
            )

        return checkpoint(model, x, use_reentrant=False, context_fn=contexts).sum()  # type: ignore[no-any-return]

    assert_same_training(model, selective, DroppingHooks())


def test_local_part_of_a_distributed_tensor(x: torch.Tensor) -> None:
    with one_process():
        from torch.distributed.tensor import DTensor, Shard, init_device_mesh

        mesh = init_device_mesh("cpu", (1,))
        with Recorder(everything) as recorder:
            y = F.gelu(DTensor.from_local(x, mesh, [Shard(0)]))
            recipe = recipe_of(recorder, y._local_tensor)
            assert same_bits(run(recipe, x), y.to_local())
            y.add_(1)
            assert recorder.recipe(y._local_tensor) is None


def test_higher_order_operators(recorder: Recorder, x: torch.Tensor) -> None:
    y = F.gelu(x)
    found = torch.cond(torch.tensor(True), torch.sin, torch.cos, (y,))
    assert same_bits(found, y.sin())


def test_backward_inside_the_context_records_nothing(recorder: Recorder, x: torch.Tensor) -> None:
    class Look(torch.autograd.Function):
        @staticmethod
        def forward(ctx: object, value: torch.Tensor) -> torch.Tensor:
            return value.clone()

        @staticmethod
        def backward(ctx: object, gradient: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
            y = F.gelu(gradient)
            seen.append(recorder.recipe(y))
            return y

    seen: list[Recipe | None] = []
    Look.apply(x.requires_grad_()).sum().backward()  # type: ignore[no-untyped-call]
    assert seen == [None]


def test_layouts_that_are_not_strided(recorder: Recorder) -> None:
    sparse = torch.eye(8).to_sparse()
    assert torch.equal((sparse * 2).to_dense(), torch.eye(8) * 2)
    sparse.mul_(2)
    nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged)
    assert (nested * 2).values().sum() == 10
    assert (torch.ones(4, dtype=torch.complex64).conj() * 1j).abs().sum() == 4
    assert recorder.recipe(torch.ones(3).expand(2, 3)) is None


def test_view_of_the_output_and_of_the_input(recorder: Recorder, x: torch.Tensor) -> None:
    halves = torch.cat([x, x], dim=1).chunk(2, dim=-1)
    y = F.silu(halves[0]) * halves[1]
    recipe = recipe_of(recorder, y.view(8, 8, 32).transpose(0, 1))
    assert recipe.layout == Layout.of(y)
    storage = halves[0].untyped_storage()
    spans = sorted(operand.span.start for operand in recipe.inputs if operand.key == storage._cdata)
    assert spans
    key = storage._cdata
    whole = Recorder(lambda operand: operand.key == key, small_bytes=0)
    with whole:
        y = F.silu(halves[0]) * halves[1]
        recipe = recipe_of(whole, y)
    assert recipe.name == "mul < silu"
    assert [operand.span.start for operand in recipe.inputs] == [0, 128]
    inputs = [operand.layout.on(storage, 0) for operand in recipe.inputs]
    assert same_bits(recipe.run(inputs), y)
