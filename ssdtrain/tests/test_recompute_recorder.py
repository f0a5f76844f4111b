# SPDX-License-Identifier: Apache-2.0
"""What the recorder refuses, keeps alive, and leaves undisturbed."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Iterator

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from recompute_harness import (
    ChangedError,
    DroppingHooks,
    assert_same_training,
    everything,
    only,
    recipe_of,
    run,
    same_bits,
)

from ssdtrain.recorder import Recorder
from ssdtrain.storage import WeakStorage

aten = torch.ops.aten


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    with Recorder(everything) as mode:
        yield mode


@pytest.fixture
def x() -> torch.Tensor:
    torch.manual_seed(0)
    return torch.randn(64, 32)


# ---------------------------------------------------------------------- writes


def test_output_changed_in_place(recorder: Recorder, x: torch.Tensor) -> None:
    for change in (
        lambda y: y[:, :3].zero_(),
        lambda y: y.data.cumsum_(0),
        lambda y: y.detach().copy_(x),
        lambda y: torch.add(x, x, out=y),
        lambda y: y.view(-1).clamp_(0),
        lambda y: torch._foreach_zero_([x.clone(), y]),
        lambda y: y.set_(x.clone()),
        lambda y: torch.autograd.graph.increment_version(y),
    ):
        y = F.gelu(x)
        assert recorder.recipe(y) is not None
        change(y)
        assert recorder.recipe(y) is None


def test_in_place_listed_operator_on_a_part(recorder: Recorder, x: torch.Tensor) -> None:
    y = F.gelu(x)
    y[:32].relu_()
    assert recorder.recipe(y) is None
    z = torch.cat([x, x])
    z.relu_()
    assert recorder.recipe(z) is None


def test_input_changed_before_the_recipe(recorder: Recorder, x: torch.Tensor) -> None:
    y = F.gelu(x)
    x.data.mul_(2)
    assert recorder.recipe(y) is None
    y = F.gelu(x)
    x.mul_(2)
    assert recorder.recipe(y) is None


def test_small_input_changed_after_the_recipe(x: torch.Tensor) -> None:
    weight = torch.nn.Parameter(torch.randn(32))
    with Recorder(only(x)) as recorder:
        y = F.layer_norm(x, (32,), weight) * weight
        recipe = recipe_of(recorder, y)
        assert 0 < recipe.held_bytes <= 1024
        weight.data.mul_(2)
    assert recipe.name == "mul < layer_norm"
    assert len(recipe.inputs) == 1
    assert same_bits(run(recipe, x), y)


def test_parameter_changed_in_place_between_uses(x: torch.Tensor) -> None:
    weight = torch.nn.Parameter(torch.randn(32))
    with Recorder(lambda operand: operand.nbytes > 1000) as recorder:
        first = x * weight
        one = recipe_of(recorder, first)
        weight.data.add_(1)
        second = x * weight
        two = recipe_of(recorder, second)
    assert same_bits(run(one, x), first)
    assert same_bits(run(two, x), second)


def test_parameter_whose_memory_was_given_back(x: torch.Tensor) -> None:
    weight = torch.nn.Parameter(torch.randn(32))
    with Recorder(only(x)) as recorder:
        y = x * weight
        weight.untyped_storage().resize_(0)
        assert recorder.recipe(y) is None
    assert weight.untyped_storage().nbytes() == 0


def test_recipe_operand_changed_after_the_drop() -> None:
    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(32, 32)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            h = self.linear(x).to(torch.bfloat16)
            wide = h.float()
            y = wide * wide
            h += 1
            return (y + h).float().sum()

    model = Model()
    x = torch.randn(64, 32)
    assert_same_training(model, lambda: model(x), DroppingHooks(materialises=True))
    with pytest.raises(ChangedError):
        assert_same_training(model, lambda: model(x), DroppingHooks())


def test_writes_behind_the_back_are_found_by_comparison(
    recorder: Recorder, x: torch.Tensor
) -> None:
    y = F.gelu(x)
    recipe = recipe_of(recorder, y)
    assert recipe.measure([x], y.untyped_storage()).is_exact
    y.numpy()[3, 3] += 1
    assert recipe.measure([x], y.untyped_storage()).is_exact is False
    assert recipe.measure([x]).is_exact is None
    assert recipe.measure([x]).seconds > 0


def test_called_before_a_write(x: torch.Tensor) -> None:
    seen: list[tuple[int, torch.Tensor]] = []
    recorder = Recorder(everything, lambda key: seen.append((key, x.clone())))
    with recorder:
        before = x.clone()
        x.add_(1)
        F.gelu(x)
        x.clamp_(0)
    assert [key for key, _ in seen] == [x.untyped_storage()._cdata] * 2
    assert torch.equal(seen[0][1], before)


# ---------------------------------------------------------------------- random operators


def test_dropout_draws_the_same_and_disturbs_nothing(x: torch.Tensor) -> None:
    model = torch.nn.Linear(32, 32)

    def step() -> torch.Tensor:
        y = F.dropout(model(x), 0.5)
        torch.rand(7)
        z = F.dropout(y.relu() @ model.weight, 0.3)
        return (z * torch.randn(32)).sum()

    hooks = DroppingHooks()
    assert_same_training(model, step, hooks)
    assert "div_ < bernoulli_" in hooks.names


def test_mask_needs_no_input(x: torch.Tensor) -> None:
    recorder = Recorder(everything, small_bytes=0)
    with recorder:
        output, mask = aten.native_dropout(x, 0.4, True)
        of_output, of_mask = recipe_of(recorder, output), recipe_of(recorder, mask)
    torch.rand(5)
    assert len(of_output.inputs) == 1
    assert not of_mask.inputs
    assert same_bits(run(of_mask), mask)
    assert same_bits(run(of_output, x), output)


def test_generator_of_the_caller(recorder: Recorder, x: torch.Tensor) -> None:
    generator = torch.Generator().manual_seed(5)
    y = torch.empty_like(x).bernoulli_(0.5, generator=generator)
    recipe = recipe_of(recorder, y)
    state = generator.get_state()
    assert same_bits(run(recipe), y)
    assert torch.equal(generator.get_state(), state)


# ---------------------------------------------------------------------- lifetime


def test_nothing_large_is_kept_alive(recorder: Recorder) -> None:
    gc.collect()
    gc.disable()
    try:
        x = torch.randn(64, 2048)
        middle = F.gelu(x * 2)
        y = middle * 3
        recipe = recipe_of(recorder, y)
        weak = [WeakStorage(tensor.untyped_storage()) for tensor in (x, middle, y)]
        del x, middle, y
        assert all(storage.get() is None for storage in weak)
        recipe_dead = weakref.ref(recipe)
        del recipe
        assert recipe_dead() is None
    finally:
        gc.enable()


def test_records_end_with_the_context(x: torch.Tensor) -> None:
    recorder = Recorder(everything)
    with recorder:
        with recorder:
            y = F.gelu(x)
        recipe = recipe_of(recorder, y)
        recorder.forget_step()
        assert recorder.recipe(y) is None
        z = F.gelu(x)
    assert recorder.recipe(z) is None
    assert torch._C._len_torch_dispatch_stack() == 0
    assert same_bits(run(recipe, x), y)


def test_steps_in_one_context_pile_up_nothing(recorder: Recorder, x: torch.Tensor) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.GELU(), torch.nn.Linear(32, 1))
    sizes = []
    for _ in range(5):
        y = model(x)
        assert recorder.recipe(F.silu(y)) is not None
        y.sum().backward()
        with torch.no_grad():
            for _ in range(10):
                F.gelu(x)
        sizes.append(len(recorder._storages))
    assert sizes == [0] * 5


def test_one_thread_at_a_time(recorder: Recorder) -> None:
    raised = []

    def elsewhere() -> None:
        with pytest.raises(RuntimeError, match="another thread"):
            recorder.__enter__()
        raised.append(True)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert raised


def test_what_is_saved_later(x: torch.Tensor) -> None:
    known: set[int] = set()
    with Recorder(lambda operand: operand.key in known, small_bytes=0) as recorder:
        y = torch.tanh(x)
        assert recorder.recipe(y) is None
        known.add(x.untyped_storage()._cdata)
        assert recorder.recipe(y) is not None


def test_addresses_that_are_used_again(recorder: Recorder) -> None:
    for _ in range(50):
        y = F.gelu(torch.randn(8, 300))
        assert recorder.recipe(y) is not None
        del y
        assert recorder.recipe(torch.empty(8, 300)) is None


# ---------------------------------------------------------------------- running


def test_bad_inputs(recorder: Recorder, x: torch.Tensor) -> None:
    recipe = recipe_of(recorder, F.gelu(x))
    with pytest.raises(ValueError, match="takes 1 inputs, not 0"):
        recipe.run([])
    with pytest.raises(ValueError, match="gelu takes Layout"):
        recipe.run([x.t()])


def test_thread_settings() -> None:
    threads = torch.get_num_threads()
    x = torch.full((300, 1001), 1e-39)
    with Recorder(only(x), small_bytes=0) as recorder:
        y = torch.sigmoid(x) * x
        recipe = recipe_of(recorder, y)
    assert y.min() > 0
    found = []

    def elsewhere() -> None:
        torch.set_num_threads(threads + 1)
        torch.set_flush_denormal(True)
        found.append(run(recipe, x))
        found.append(torch.get_num_threads() == threads + 1)
        found.append(bool((torch.full((3,), 1e-39) * 1 == 0).all()))

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    torch.set_num_threads(threads)
    assert same_bits(found[0], y)
    assert found[1:] == [True, True]


def test_kernels_of_another_library() -> None:
    """GELU has two, whose last bits differ."""
    if not torch.backends.mkldnn.is_available():
        pytest.skip("this PyTorch has one library of kernels only")
    x = torch.randn(64, 257)
    with Recorder(only(x), small_bytes=0) as recorder, torch.backends.mkldnn.flags(enabled=False):
        y = F.gelu(x)
        recipe = recipe_of(recorder, y)
    assert torch._C._get_mkldnn_enabled()
    assert same_bits(run(recipe, x), y)
    assert torch._C._get_mkldnn_enabled()


def test_estimates(recorder: Recorder, x: torch.Tensor) -> None:
    recipe = recipe_of(recorder, F.gelu(x) * x)
    assert recipe.nbytes == 64 * 32 * 4
    assert recipe.name in ("mul", "mul < gelu")
    assert recipe.moved_bytes >= 2 * recipe.nbytes
    assert recipe.seconds(1e9) == recipe.moved_bytes / 1e9
    assert "mul" in repr(recipe)


def test_chain_frees_what_it_has_used(x: torch.Tensor) -> None:
    key = x.untyped_storage()._cdata
    with Recorder(lambda operand: operand.key == key, small_bytes=0) as recorder:
        y = x
        for _ in range(6):
            y = y * 2
        recipe = recipe_of(recorder, y)
        assert recipe.name == " < ".join(["mul"] * 6)
        assert recipe.scratch_bytes == recipe.nbytes
        for _ in range(30):
            y = y * 2
        assert recorder.recipe(y) is None
    assert same_bits(run(recipe, x), x * 64)
