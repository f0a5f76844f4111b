# SPDX-License-Identifier: Apache-2.0
"""What the Triton emitter makes of layers: how many kernels, what they store; runs no kernel."""

import re

import pytest
import torch
from relational_layers import LAYERS, graph, inputs, maker

import hector
from hector.compiler import Candidates
from hector.cost import GPU
from hector.emit import choice
from hector.emit.triton import TritonEmitter
from hector.emit.triton.schedules import Key, Outer, Product, Rows, Traversal, schedule
from hector.ir import Space, parse
from hector.passes import node_routes
from hector.plan import Counts

CPU = torch.device("cpu")
BIG = Counts(2_000_000, 20_000_000, 6_000_000, 6_000_000, 10, 4)


def built(name, training, counts=BIG, heads=()):
    g = graph()
    tensors = inputs(name, g, maker(torch.float32), 64, 64)
    call = hector.compile(LAYERS[name])._match((g, *tensors), {})
    wrt = frozenset(item.name for item in call.trace.inputs) if training else frozenset()
    candidates = Candidates(call.trace.function, wrt, node_routes(counts), TritonEmitter(CPU))
    return candidates.build(counts, None, GPU)


def launches(program, name):
    """Kernel launches of a program, second passes over long segments left out, then those."""
    text = program.source[program.source.index(f"\ndef {name}(plan") :]
    found = re.findall(r"^ +launch_(\w+)\(", text, re.MULTILINE)
    hubs = [kernel for kernel in found if kernel.endswith("_hubs")]
    return len(found) - len(hubs), len(hubs)


# A layer, the most kernels of its forward, second passes included.
@pytest.mark.parametrize(("name", "most"), [("rgcn", 4), ("rgat", 5)])
def test_launches_of_inference(name, most):
    kernels, hubs = launches(built(name, training=False).forward, name)
    assert kernels + hubs <= most
    assert hubs == 1


@pytest.mark.parametrize("name", ["rgcn", "rgat", "rgat_heads"])
def test_nothing_of_edges_times_features_is_stored(name):
    made = built(name, training=True)
    for program in (made.forward, made.backward):
        edge = [type_ for type_ in program.tensors if type_.space is Space.EDGE]
        assert all(type_.width <= 3 for type_ in edge)


@pytest.mark.parametrize("name", LAYERS)
def test_text_has_no_atomics_and_names_what_is_left_to_pytorch(name):
    made = built(name, training=True)
    for program in (made.forward, made.backward):
        assert "atomic" not in program.source
        assert "@triton.jit" in program.source
        ours = program.source.count("\n    # %")
        assert ours > 0
        named = set(re.findall(r"^# by PyTorch: %\d+ = (\w+)", program.source, re.MULTILINE))
        assert named <= {"sum_rows", "concat", "pad"}


def emit(text):
    return TritonEmitter(CPU).emit(parse(text), BIG).source


def test_softmax_and_weighted_sum_are_one_walk():
    source = emit("""func f(%s: edge[] f32, %x: node[8] f32) {
        %0 = segment_softmax(%s) {map = edge.dst} : edge[] f32
        %1 = reshape(%0) {shape = (1)} : edge[1] f32
        %2 = gather_sum(%x, %1) {map = edge.dst, rows = edge.src} : node[8] f32
        return %2
    }""")
    assert source.count("@triton.jit") == 3  # the walk, its second pass, the maximum
    assert "launch_f_attend_along_edge_dst(" in source


def test_what_no_template_takes_is_pytorchs():
    source = emit("""func f(%x: node[8] f32) {
        %0 = power(%x) {exponent = 1.7} : node[8] f32
        %1 = exp(%0) : node[8] f32
        return %1
    }""")
    assert source.startswith("# by PyTorch: %0 = power(%x) {exponent = 1.7} : node[8] f32\n")
    assert "launch_f_rows_of_node(" in source


def test_double_precision_is_pytorchs():
    source = emit("func f(%x: node[8] f64) {\n%0 = exp(%x) : node[8] f64\nreturn %0\n}")
    assert source.startswith("# fp64 is computed by PyTorch")
    assert "triton" not in source


def test_a_function_named_as_what_programs_call():
    source = emit("func tables(%x: node[8] f32) {\n%0 = exp(%x) : node[8] f32\nreturn %0\n}")
    assert "def tables_program(plan" in source


def test_schedules_follow_family_and_size():
    for family, kind in (
        ("rows", Rows), ("traversal", Traversal), ("product", Product), ("outer", Outer),
    ):  # fmt: skip
        for width in (1, 2, 16, 64, 128, 1024):
            for size in ("small", "large"):
                found = schedule(Key(family, "f32", width, min(width, 16), size, "sm_90"))
                assert isinstance(found, kind)
    small = schedule(Key("traversal", "f32", 64, 0, "small", ""))
    large = schedule(Key("traversal", "f32", 64, 0, "large", ""))
    assert small.split < large.split
    with pytest.raises(ValueError, match="no power of two"):
        schedule(Key("rows", "f32", 3, 0, "small", ""))


def test_emitters_are_asked_for_by_name():
    with pytest.raises(ValueError, match=r"emitter='cuda' is none of auto, triton, torch"):
        hector.compile(LAYERS["rgcn"], emitter="cuda")
    g = graph()
    tensors = inputs("rgcn", g, maker(torch.float32), 3, 4)
    assert hector.compile(LAYERS["rgcn"]).explain(g, *tensors).emitter == "torch"


def test_triton_is_what_auto_takes_on_a_gpu(monkeypatch):
    monkeypatch.setattr(choice, "TritonEmitter", lambda device: ("triton", device))
    monkeypatch.setattr(choice, "available", lambda: True)
    gpu = torch.device("cuda", 0)
    assert choice.choose("auto", gpu) == ("triton", gpu)
    assert choice.choose("torch", gpu).name == "torch"
    monkeypatch.setattr(choice, "available", lambda: False)
    assert choice.choose("auto", gpu).name == "torch"
    with pytest.raises(RuntimeError, match="Triton is not installed"):
        choice.choose("triton", gpu)
