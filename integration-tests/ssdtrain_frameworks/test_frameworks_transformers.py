# SPDX-License-Identifier: Apache-2.0
"""A Transformers ``Trainer`` with the callback: same losses, same weights, in every setting."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from frameworks_support import assert_equal
from packages import needed

transformers = needed("transformers")
needed("accelerate")

from ssdtrain.integrations.transformers import OffloadCallback  # noqa: E402

SIZES: dict[str, Any] = {
    "vocab_size": 128,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
}


class Text(torch.utils.data.Dataset[dict[str, torch.Tensor]]):
    """Random tokens, to be predicted."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        tokens = torch.randint(0, 128, (16,), generator=torch.Generator().manual_seed(index))
        # A column that forward() does not name: the Trainer must still drop it.
        return {"input_ids": tokens, "labels": tokens, "unknown": tokens}


def llama() -> Any:
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**SIZES))


def qwen_tied() -> Any:
    return transformers.Qwen3ForCausalLM(
        transformers.Qwen3Config(**SIZES, head_dim=8, tie_word_embeddings=True)
    )


def gpt2_with_dropout() -> Any:
    return transformers.GPT2LMHeadModel(
        transformers.GPT2Config(vocab_size=128, n_embd=32, n_layer=2, n_head=4, n_positions=64)
    )


def mixtral() -> Any:
    return transformers.MixtralForCausalLM(
        transformers.MixtralConfig(**SIZES, num_local_experts=4, num_experts_per_tok=2)
    )


def train(
    folder: Path, build: Any, callbacks: list[Any], **arguments: Any
) -> tuple[dict[str, torch.Tensor], Any]:
    """Train two epochs; returns the logged losses and the weights."""
    transformers.set_seed(0)
    model = build()
    settings: dict[str, Any] = {
        "output_dir": str(folder / "out"),
        "num_train_epochs": 2,
        "per_device_train_batch_size": 2,
        "learning_rate": 1e-2,
        "logging_steps": 1,
        "save_strategy": "no",
        "report_to": [],
        "use_cpu": True,
        "disable_tqdm": True,
        "seed": 0,
        **arguments,
    }
    trainer = transformers.Trainer(
        model=model,
        args=transformers.TrainingArguments(**settings),
        train_dataset=Text(),
        eval_dataset=Text(),
        callbacks=callbacks,
    )
    trainer.train()
    losses = [entry[key] for entry in trainer.state.log_history for key in entry if "loss" in key]
    weights = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    return {"losses": torch.tensor(losses), **weights}, model


@pytest.mark.parametrize("build", [llama, qwen_tied, gpt2_with_dropout, mixtral])
def test_models(build: Any, tmp_path: Path, offloader: Any) -> None:
    plain, _ = train(tmp_path, build, [])
    moved, model = train(tmp_path, build, [OffloadCallback(offloader)])
    assert_equal(moved, plain)
    assert offloader.report()["bytes"]["disk"] > 0
    assert offloader.report()["faults"] == []
    assert "forward" not in model.__dict__


@pytest.mark.parametrize(
    "arguments",
    [
        {"gradient_accumulation_steps": 2},
        {"bf16": True},
        {"eval_strategy": "steps", "eval_steps": 2},
        {"activation_checkpointing": True},
        {
            "activation_checkpointing": True,
            "activation_checkpointing_kwargs": {"use_reentrant": True},
        },
        {"save_strategy": "steps", "save_steps": 2},
        {"torch_compile": True, "torch_compile_backend": "aot_eager"},
        {"label_smoothing_factor": 0.1},
        {"auto_find_batch_size": True},
    ],
    ids=lambda arguments: "-".join(map(str, arguments)),
)
def test_settings(arguments: dict[str, Any], tmp_path: Path, offloader: Any) -> None:
    plain, _ = train(tmp_path, llama, [], **arguments)
    moved, model = train(tmp_path, llama, [OffloadCallback(offloader)], **arguments)
    assert_equal(moved, plain)
    assert offloader.report()["bytes"]["disk"] > 0
    assert offloader.report()["faults"] == []
    assert not any(type(value).__name__ == "OffloadedCall" for value in model.__dict__.values())


def test_evaluation_is_no_step(tmp_path: Path, offloader: Any) -> None:
    callback = OffloadCallback(offloader)
    train(tmp_path, llama, [callback], eval_strategy="epoch", max_steps=4)
    # Four steps; the evaluations between them began none.
    assert offloader.report()["step"] == 4


def test_after_an_exception_in_training(tmp_path: Path, offloader: Any) -> None:
    class Stop(transformers.TrainerCallback):
        def on_step_end(self, *_: Any, **__: Any) -> None:
            raise ValueError("stop here")

    callback = OffloadCallback(offloader)
    with pytest.raises(ValueError, match="stop here"):
        train(tmp_path, llama, [callback, Stop()])
    callback.remove()
    plain, _ = train(tmp_path, llama, [])
    moved, _ = train(tmp_path, llama, [callback])
    assert_equal(moved, plain)


def test_peft(tmp_path: Path, offloader: Any) -> None:
    peft = pytest.importorskip("peft")

    def build() -> Any:
        settings = peft.LoraConfig(r=4, target_modules=["q_proj", "up_proj"], lora_dropout=0.1)
        return peft.get_peft_model(llama(), settings)

    plain, _ = train(tmp_path, build, [])
    moved, _ = train(tmp_path, build, [OffloadCallback(offloader)])
    assert_equal(moved, plain)
    assert offloader.report()["bytes"]["disk"] > 0


def test_wrong_argument() -> None:
    with pytest.raises(TypeError, match="takes an Offloader, not str"):
        OffloadCallback("/tmp")
