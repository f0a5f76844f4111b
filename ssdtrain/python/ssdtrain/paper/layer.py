# SPDX-License-Identifier: Apache-2.0
"""What one transformer layer saves and computes for one token, part by part."""

from __future__ import annotations

from dataclasses import dataclass

from .figures import Sheet
from .models import ModelShape
from .setup import Setup

__all__ = ["SavedPart", "saved_parts", "write_layer"]

REDUCING = "arXiv 2205.05198 (Korthikanti et al.), section 4"


@dataclass(frozen=True, slots=True)
class SavedPart:
    """One tensor that backward needs.

    Attributes
    ----------
    name : str
    formula : str
        Bytes a token, over ``e`` (bytes an element), ``h, q, kv, a, f, k`` and ``s``.
    sharded : bool
        Divided by tensor parallelism; False: only with sequence parallelism.
    cheap : bool
        Computed again from other saved tensors at next to no cost (norm, activation).
    """

    name: str
    formula: str
    sharded: bool
    cheap: bool = False


def saved_parts(model: ModelShape, setup: Setup) -> list[SavedPart]:
    """List what a layer saves. 32-bit copies inside norms, rotary tables and router are left out.

    Source: the 34 bytes of arXiv 2205.05198, section 4.1, tensor by tensor, and the same reading
    of gated, grouped-query and mixture-of-experts layers.
    """
    parts = [
        SavedPart("norm 1 input", "e*h", False),
        SavedPart("q, k, v projection input", "e*h", False, cheap=True),
        SavedPart("q, k, v", "e*(q + 2*kv)", True),
    ]
    if setup.flash:
        parts.append(SavedPart("log-sum-exp of the scores, 32-bit", "4*a", True))
    elif setup.dropout:
        parts.append(SavedPart("softmax, dropout mask and output", "(2*e + 1)*a*s", True))
    else:
        parts.append(SavedPart("softmax of the scores", "e*a*s", True))
    parts.append(SavedPart("attention output", "e*q", True))
    if setup.dropout:
        parts.append(SavedPart("dropout mask after attention", "h", False))
    parts += [
        SavedPart("norm 2 input", "e*h", False),
        SavedPart("MLP input", "e*h", False, cheap=True),
    ]
    if setup.moe_buffers:
        parts.append(SavedPart("tokens as dispatched to experts", "e*h*k", True))
    if model.mlp == "swiglu":
        parts.append(SavedPart("gate and up", "2*e*f*k", True))
        if not setup.fused_mlp:
            parts.append(SavedPart("silu(gate)", "e*f*k", True, cheap=True))
    else:
        parts.append(SavedPart("activation input", "e*f*k", True))
    parts.append(SavedPart("down projection input", "e*f*k", True, cheap=True))
    if setup.moe_buffers:
        parts.append(SavedPart("experts' outputs before they are combined", "e*h*k", True))
    if setup.dropout:
        parts.append(SavedPart("dropout mask after the MLP", "h", False))
    return parts


def write_layer(sheet: Sheet, model: ModelShape, setup: Setup) -> None:
    """Write the bytes and FLOPs of a layer for a token on one GPU."""
    given = (
        ("h", model.hidden, "hidden size"),
        ("L", model.layers, "layers"),
        ("f", model.ffn, "MLP width" + (" of one expert" if model.experts else "")),
        ("a", model.heads, "attention heads"),
        ("q", model.heads * model.head_dim, "width of all query heads"),
        ("kv", model.kv_heads * model.head_dim, "width of all key heads"),
        ("k", model.experts_per_token, "experts a token"),
        ("E", model.experts, "experts"),
        ("V", model.vocab, "vocabulary"),
    )
    for name, value, label in given:
        sheet.given(name, value, "", label, model.source)
    sheet.given("e", setup.element_bytes, "B", "bytes an element", setup.source("element_bytes"))
    sheet.given("s", setup.sequence, "", "tokens in a sequence", "given")
    sheet.given("t", setup.tensor_parallel, "", "tensor parallel", "given")
    u = setup.tensor_parallel if setup.sequence_parallel else 1
    sheet.given("u", u, "", "sequence parallel (t with it, 1 without)", REDUCING)
    parts = saved_parts(model, setup)
    sheet.work_out(
        "layer_bytes", "B", _total(parts), "saved for a token and layer", f"{REDUCING}, by part"
    )
    kept = [part for part in parts if not part.cheap]
    sheet.work_out(
        "lean_layer_bytes",
        "B",
        _total(kept),
        "the same, norms and activations computed again",
        "the parts that no norm and no activation function gives back",
    )
    sheet.work_out(
        "boundary_bytes",
        "B",
        "e*h/u",
        "the same, only the layer's input",
        "arXiv 2205.05198, section 5",
    )
    matrices = 3 if model.mlp == "swiglu" else 2
    attended = "s" if setup.causal else "2*s"
    sheet.work_out(
        "layer_flops",
        "FLOP",
        f"(2*h*(q + 2*kv) + 2*q*h + {matrices}*2*h*f*k + 2*h*E + 2*{attended}*q)/t",
        "forward pass of a token and layer",
        "two for each multiplication and addition; attention over "
        + ("half of the sequence (causal)" if setup.causal else "the whole sequence"),
    )
    sheet.work_out(
        "layer_parameters",
        "",
        f"h*(q + 2*kv) + q*h + {matrices}*h*f*max(1, E) + h*E",
        "parameters of a layer; norms and biases left out",
    )
    sheet.given("tied", int(model.tied), "", "embedding is the output projection", model.source)
    sheet.work_out("head_parameters", "", "h*V", "parameters of the output projection")
    sheet.work_out(
        "head_bytes",
        "B",
        "e*h/u + e*h/u + 4*V/t",
        "saved for a token by final norm, output projection and 32-bit cross entropy",
        "arXiv 2205.05198, section 4.3",
    )
    sheet.work_out("head_flops", "FLOP", "2*h*V/t", "output projection of a token")


def _total(parts: list[SavedPart]) -> str:
    """Write a sum of parts as one formula; those that are sharded alike stand together."""
    terms = []
    for sharded, divisor in ((False, "u"), (True, "t")):
        chosen = " + ".join(part.formula for part in parts if part.sharded is sharded)
        if chosen:
            terms.append(f"({chosen})/{divisor}")
    return " + ".join(terms)
