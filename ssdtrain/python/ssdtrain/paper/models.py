# SPDX-License-Identifier: Apache-2.0
"""Shapes of transformers: catalogue entries, Hugging Face configurations, or numbers given."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from datapath_core import UnsupportedError

from .catalogue import catalogue, entry

__all__ = ["ModelShape", "find_model", "from_config"]

# Families whose MLP has two matrices whatever their activation is called.
PLAIN_MLP = ("gpt", "opt", "bloom", "bert", "roberta", "phi", "falcon", "starcoder2", "mpt")
# Parts of a configuration that the formulas do not describe.
UNDESCRIBED = {
    "kv_lora_rank": "multi-head latent attention",
    "n_shared_experts": "shared experts",
    "shared_expert_intermediate_size": "shared experts",
    "first_k_dense_replace": "dense layers among those with experts",
    "ssm_state_size": "state-space layers",
    "layers_block_type": "layers of several kinds",
    "linear_num_value_heads": "linear attention",
    "encoder_layers": "an encoder beside the decoder",
}


@dataclass(frozen=True, slots=True)
class ModelShape:
    """A stack of equal transformer layers between an embedding and an output projection.

    Attributes
    ----------
    name : str
    hidden, layers, ffn, heads, kv_heads, head_dim, vocab : int
        ``ffn`` is the width of one expert where there are experts.
    mlp : {"swiglu", "gelu"}
        Three matrices with a gate, or two.
    experts, experts_per_token : int
        0 and 1 for a dense model.
    tied : bool
        Whether embedding and output projection share their weight.
    source : str

    Raises
    ------
    ValueError
        For a size that is not positive, heads that do not divide, or an unknown MLP.
    """

    name: str
    hidden: int
    layers: int
    ffn: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    mlp: str = "swiglu"
    experts: int = 0
    experts_per_token: int = 1
    tied: bool = False
    source: str = "given"

    def __post_init__(self) -> None:
        for size in ("hidden", "layers", "ffn", "heads", "kv_heads", "head_dim", "vocab"):
            if getattr(self, size) < 1:
                raise ValueError(f"{self.name}: {size} must be 1 or more, is {getattr(self, size)}")
        if self.heads % self.kv_heads:
            raise ValueError(
                f"{self.name}: {self.heads} heads do not divide into {self.kv_heads} kv heads"
            )
        if self.mlp not in ("swiglu", "gelu"):
            raise ValueError(f"{self.name}: mlp must be 'swiglu' or 'gelu', is {self.mlp!r}")
        if self.experts < 0:
            raise ValueError(f"{self.name}: experts must be 0 or more, is {self.experts}")
        if not 1 <= self.experts_per_token <= max(1, self.experts):
            raise ValueError(
                f"{self.name}: {self.experts_per_token} experts a token of {self.experts}"
            )


def find_model(name: str | None, **sizes: int | str | bool | None) -> ModelShape:
    """Return a model of the catalogue or of a configuration file, with sizes of one's own.

    Parameters
    ----------
    name : str or None
        A name of the catalogue; the path of a Hugging Face ``config.json`` or its folder; "gpt" or
        "llama" for sizes of one's own (None is "gpt"): "gpt" has 4 hidden wide GELU layers and
        heads of 128, "llama" SwiGLU ones of 8/3 hidden, unless said otherwise.
    **sizes
        Attributes of :class:`ModelShape`; those that are None are as found.

    Raises
    ------
    ValueError
        For a name that is not known, a file that is no configuration, or sizes that are missing.
    UnsupportedError
        For a configuration with parts that the formulas do not describe.
    """
    given: dict[str, Any] = {key: value for key, value in sizes.items() if value is not None}
    if name is None or name.lower() in ("gpt", "llama"):
        return _own((name or "gpt").lower(), given)
    path = Path(name)
    if path.is_dir():
        path = path / "config.json"
    if path.suffix == ".json" or path.is_file():
        shape = from_config(path)
    elif name.lower().replace(" ", "-").replace("_", "-") in catalogue("models"):
        found = entry("models", name)
        shape = ModelShape(
            **{"head_dim": found["hidden"] // found["heads"], **found},
        )
    else:
        raise ValueError(
            f"model {name!r} is neither in the catalogue ({', '.join(sorted(catalogue('models')))})"
            " nor the path of a config.json; or give sizes: --model gpt --hidden 8192 --layers 4"
        )
    if not given:
        return shape
    changed = ", ".join(sorted(given))
    return replace(shape, **given, source=f"{changed} given; the rest {shape.source}")


def _own(kind: str, given: dict[str, Any]) -> ModelShape:
    missing = [f"--{key}" for key in ("hidden", "layers") if key not in given]
    if missing:
        raise ValueError(f"a model of your own needs {' and '.join(missing)}")
    hidden = given["hidden"]
    if hidden < 1:
        raise ValueError(f"hidden must be 1 or more, is {hidden}")
    mlp = given.get("mlp", "gelu" if kind == "gpt" else "swiglu")
    heads = given.get("heads", max(1, hidden // given.get("head_dim", 128)))
    defaults = {
        "name": f"{kind} {hidden} x {given['layers']}",
        "ffn": 4 * hidden if mlp == "gelu" else -(-8 * hidden // 3 // 256) * 256,
        "heads": heads,
        "kv_heads": heads,
        "head_dim": max(1, hidden // heads) if heads > 0 else 1,
        "vocab": 50257 if kind == "gpt" else 128256,
        "mlp": mlp,
    }
    return ModelShape(**{**defaults, **given})


def from_config(path: Path) -> ModelShape:
    """Read a Hugging Face ``config.json``.

    Raises
    ------
    ValueError
        For a file that is not there, is no JSON object or lacks a size.
    UnsupportedError
        For a model that is no stack of equal layers; the text names the part.
    """
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror}") from None
    except ValueError as error:
        raise ValueError(f"{path} is no JSON: {error}") from None
    if not isinstance(config, dict):
        raise ValueError(f"{path} holds no JSON object")
    config = config.get("text_config", config)
    for key, part in UNDESCRIBED.items():
        if config.get(key):
            raise UnsupportedError(
                f"{path}: {part} ({key}) are not among the formulas; describe the nearest plain"
                " model with --hidden, --layers, --ffn, --heads, --kv-heads and --experts"
            )
    if config.get("decoder_sparse_step", 1) != 1 or config.get("mlp_only_layers"):
        raise UnsupportedError(f"{path}: dense layers among those with experts are not described")
    return _from_fields(path, config)


def _from_fields(path: Path, config: dict[str, Any]) -> ModelShape:
    def size(*keys: str, default: int | None = None) -> int:
        for key in keys:
            if isinstance(config.get(key), int):
                return int(config[key])
        if default is None:
            raise ValueError(f"{path} has none of {', '.join(keys)}")
        return default

    hidden = size("hidden_size", "n_embd", "d_model")
    heads = size("num_attention_heads", "n_head")
    experts = size("num_experts", "num_local_experts", "n_routed_experts", default=0)
    family = str(config.get("model_type", ""))
    dense_ffn = size("intermediate_size", "n_inner", "ffn_dim", default=4 * hidden)
    return ModelShape(
        name=str(config.get("_name_or_path") or family or path.parent.name),
        hidden=hidden,
        layers=size("num_hidden_layers", "n_layer"),
        ffn=size("moe_intermediate_size", default=dense_ffn) if experts else dense_ffn,
        heads=heads,
        kv_heads=size("num_key_value_heads", default=heads),
        head_dim=size("head_dim", default=hidden // max(1, heads)),
        vocab=size("vocab_size"),
        mlp="gelu" if family.startswith(PLAIN_MLP) and family != "phi3" else "swiglu",
        experts=experts,
        experts_per_token=size("num_experts_per_tok", default=1) if experts else 1,
        tied=bool(config.get("tie_word_embeddings", False)),
        source=str(path),
    )
