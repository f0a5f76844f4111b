# SPDX-License-Identifier: Apache-2.0
"""Every emitted kernel compiles for a GPU, down to machine code; no GPU is needed for that."""

import pytest
import torch
from random_models import UNARY
from relational_layers import LAYERS, graph, inputs, maker
from torch.nn import functional as F  # noqa: N812

import hector
from hector.compiler import Candidates, rounded
from hector.emit.triton import TritonEmitter, runtime
from hector.forms import Forms
from hector.passes import node_routes
from hector.plan import Counts

triton = pytest.importorskip("triton")
if triton.knobs.runtime.interpret:
    pytest.skip("compiles, does not interpret", allow_module_level=True)

from triton.backends.compiler import GPUTarget  # noqa: E402
from triton.compiler import ASTSource  # noqa: E402

TARGET = GPUTarget("cuda", 90, 32)
POINTERS = {
    torch.float32: "*fp32",
    torch.bfloat16: "*bf16",
    torch.float16: "*fp16",
    torch.int32: "*i32",
    torch.int64: "*i64",
}
SIZES = {
    "small": Counts(2000, 9000, 7000, 7000, 7, 3),
    "large": Counts(2**21, 2**24, 2**23, 2**23, 7, 3),
}


class Compiling:
    """Stands for a kernel: compiles it for what it is launched with."""

    def __init__(self, kernel):
        self.kernel = kernel
        self.compiled = 0

    def __getitem__(self, grid):
        assert all(isinstance(extent, int) and extent > 0 for extent in grid)
        return self.launch

    def launch(self, *args, num_warps):
        names = self.kernel.arg_names
        assert len(args) == len(names)
        signature, constants, aligned = {}, {}, {}
        for i, (name, arg, param) in enumerate(zip(names, args, self.kernel.params, strict=True)):
            one = isinstance(arg, int) and arg == 1 and not param.do_not_specialize
            if param.is_constexpr or arg is None or one:
                signature[name], constants[name] = "constexpr", arg
            elif isinstance(arg, torch.Tensor):
                signature[name] = POINTERS[arg.dtype]
                aligned[(i,)] = [["tt.divisibility", 16]]
            else:
                signature[name] = "i32"
                if arg % 16 == 0 and not param.do_not_specialize:
                    aligned[(i,)] = [["tt.divisibility", 16]]
        source = ASTSource(self.kernel, signature, constants, aligned)
        triton.compile(source, target=TARGET, options={"num_warps": num_warps})
        self.compiled += 1


def compile_all(function, counts, plan, args):
    """Compile the kernels of a function by running its host part; nothing is computed."""
    emitter = TritonEmitter(torch.device("cpu"))
    module = runtime.load(emitter.emit(function, counts).source, emitter.scope)
    kernels = {
        name: Compiling(value)
        for name, value in module.items()
        if isinstance(value, triton.JITFunction) and name.startswith(function.name + "_")
    }
    before = dict(module)
    try:
        module.update(kernels)
        module[function.name](plan)(plan, *args)
    finally:
        module.update(before)
    return sum(kernel.compiled for kernel in kernels.values())


CASES = [("small", "float32", Forms(True, False, True, True)), ("large", "bfloat16", Forms())]


def compile_layer(layer, g, tensors, forms, size, dtype=torch.float32):
    """How many kernels a layer has; each was compiled."""
    call = hector.compile(layer)._match((g, *tensors), {})
    wrt = frozenset(item.name for item in call.trace.inputs if item.type.dtype != "i64")
    plan = g.plan()
    routes = node_routes(rounded(plan.counts))
    lowered = Candidates(
        call.trace.function, wrt, routes, TritonEmitter(torch.device("cpu"))
    ).lowered(forms)
    made = 0
    for function in (lowered.forward, lowered.backward):
        args = []
        for param in function.params:
            rows = (
                () if param.type.space.value == "weight" else (plan.rows(param.type.space.value),)
            )
            kind = torch.int64 if param.type.dtype == "i64" else dtype
            args.append(torch.zeros((*rows, *param.type.shape), dtype=kind))
        made += compile_all(function, SIZES[size], plan, args)
    return made


@pytest.mark.parametrize(("size", "dtype", "forms"), CASES, ids=str)
@pytest.mark.parametrize("name", LAYERS)
def test_kernels_compile(name, forms, size, dtype):
    g = graph(40, 900)
    kind = getattr(torch, dtype)
    tensors = inputs(name, g, maker(kind), 64, 64)
    assert compile_layer(LAYERS[name], g, tensors, forms, size, kind)


def together(*functions):
    """The sum of elementwise functions over edges, so that few kernels hold all of them."""
    return lambda g, x: sum(hector.aggregate(function(x[g.src]), g) for function in functions)


def test_every_elementwise_operator_compiles():
    g = graph(40, 900)
    layer = together(
        *UNARY.values(), lambda v: v.clamp(min=0), lambda v: v.clamp_max(1), lambda v: v ** -2,
        lambda v: v * float("inf"), lambda v: v - float("nan"),
        lambda v: torch.maximum(v, -v) - torch.minimum(v, v * 2), lambda v: v.cos() / (v * v + 1),
        lambda v: hector.dropout(v, 0.5, 3), lambda v: F.leaky_relu(v, -2.5),
    )  # fmt: skip
    assert compile_layer(layer, g, (torch.zeros(40, 6, requires_grad=True),), Forms(), "small")


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_kernels_of_plans_compile(monkeypatch, dtype):
    from hector import plan_kernels

    compiled = []

    def start(kernel, programs, *args, constants):
        each = Compiling(kernel)
        each[(programs,)](*args, *constants, num_warps=4)
        compiled.append(each.compiled)

    monkeypatch.setattr(plan_kernels, "_start", start)
    g = graph(40, 900, dtype=dtype)
    plan = g.plan()
    answer = torch.zeros(3, dtype=torch.int64)
    relations = 4 if dtype is torch.int32 else 2**31
    ids = plan_kernels.ends(g.src, g.dst, g.rel, plan.edge_order, 40, relations, answer)
    assert ids[3].dtype is dtype
    plan_kernels.pairs(ids, plan.edge_order, plan.edge_order, answer[1:])
    bounds = plan.segments("edge.dst").bounds
    plan_kernels.tiles(bounds, 900, 64)
    plan_kernels.tiles(torch.tensor([0, 900]), 900, 64)
    plan_kernels.pieces(bounds, 900, 8)
    assert compiled == [1] * 8
