# SPDX-License-Identifier: Apache-2.0
"""The command ``hector``: explanations of functions, modules and scripts; figures and pictures."""

import json
import subprocess
import sys
import xml.etree.ElementTree as ET

import pytest

from hector.cli import main

SCRIPT = """
import sys
import torch
import hector

def layer(g, x, W):
    return hector.aggregate(hector.linear(x[g.src], W[g.rel]), g)

def graph():
    torch.manual_seed(0)
    return hector.Graph(torch.randint(0, 50, (2, 300)), torch.randint(0, 4, (300,)), 50, 4)

def make():
    x, W = torch.randn(50, 8, requires_grad=True), torch.randn(4, 8, 8, requires_grad=True)
    return layer, graph(), x, W

def module():
    return hector.nn.RGCNConv(8, 6, 4), graph(), torch.randn(50, 8)

class Whole(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = hector.nn.RGCNConv(8, 6, 4)

    @hector.compile
    def forward(self, g, x):
        return torch.relu(self.inner(g, x))

def nested():
    return Whole(), graph(), torch.randn(50, 8)

def wrong():
    return layer

if __name__ == "__main__":
    made, g, x, W = make()
    compiled = hector.compile(made, forms=sys.argv[1])
    for _ in range(2):
        compiled(g, x, W)
"""


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "model_of_the_test.py"
    path.write_text(SCRIPT, encoding="utf-8")
    return str(path)


def test_a_function_is_explained(script, capsys):
    assert main(["explain", f"{script}:make"]) == 0
    text = capsys.readouterr().out
    for part in ("# layer: forms", "func layer(", "== forms: predicted", "== forward:", "held at",
                 "== backward:"):  # fmt: skip
        assert part in text
    assert sum(line.startswith("* ") for line in text.splitlines()) == 1
    assert "def layer(plan" not in text


def test_everything_is_shown_on_request_and_gradients_can_be_left_out(script, capsys):
    assert main(["explain", f"{script}:make", "--all", "--no-grad"]) == 0
    text = capsys.readouterr().out
    assert "def layer(plan" in text
    assert "backward" not in text


def test_a_module_is_explained_by_the_calls_that_it_makes(script, capsys):
    assert main(["explain", f"{script}:module"]) == 0
    assert "# _rgcn: forms" in capsys.readouterr().out


def test_layers_inside_a_compiled_method_are_explained_as_one(script, capsys):
    assert main(["explain", f"{script}:nested"]) == 0
    assert [line for line in capsys.readouterr().out.splitlines() if line.startswith("# ")] == [
        "# forward: forms aggregate_first, emitter torch"
    ]


def test_a_script_is_run_and_equal_calls_are_explained_once(script, capsys):
    assert main(["explain", script, "--", "compact"]) == 0
    text = capsys.readouterr().out
    assert text.count("# layer: forms compact_src, compact_dst") == 1


def test_the_picture_shows_the_program_before_and_after(script, tmp_path):
    target = tmp_path / "layer.svg"
    assert main(["explain", f"{script}:make", "--svg", str(target)]) == 0
    words = [e.text for e in ET.parse(target).getroot().iter() if e.tag.endswith("text")]
    for part in ("as written", "forward (torch)", "backward (torch)", "x", "W", "grad_0", "k1"):
        assert part in words
    assert any(word.startswith("gather edge.src") for word in words)
    assert str(tmp_path) not in target.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("where", "part"),
    [
        ("nothing.py", "no file"),
        ("nothing.py:make", "no file"),
        ("no_such_module_here:make", "no module"),
        ("{script}:absent", "no function"),
        ("{script}:wrong", "must return"),
    ],
)
def test_what_cannot_be_explained_is_said_in_a_line(script, where, part, capsys):
    assert main(["explain", where.format(script=script)]) == 1
    error = capsys.readouterr().err
    assert error.startswith("hector explain: ")
    assert part in error
    assert error.count("\n") == 1


def test_bench_writes_figures_and_a_picture(tmp_path):
    numbers, picture = tmp_path / "r.json", tmp_path / "roofline.svg"
    command = ["bench", "--graphs", "AIFB", "--scale", "0.01", "--width", "8", "--seconds", "0",
               "--device", "cpu", "--json", str(numbers), "--picture", str(picture)]  # fmt: skip
    assert main(command) == 0
    result = json.loads(numbers.read_text(encoding="utf-8"))
    names = [figure["name"] for figure in result["figures"]]
    assert names == [
        f"{layer} aifb x 0.01 {what}"
        for layer in ("RGCN", "RGAT", "HGT")
        for what in ("forward", "training")
    ]
    for figure in result["figures"]:
        assert min(figure["milliseconds"], figure["bytes"], figure["flops"]) > 0
    drawn = ET.parse(picture).getroot()
    dots = [e for e in drawn.iter() if e.tag.endswith("circle")]
    assert len(dots) == 2 * len(names)


@pytest.mark.parametrize(
    "options",
    [
        ["--heads", "3"], ["--scale", "0"], ["--scale", "2"], ["--seconds", "-1"],
        ["--device", "abacus"], ["--device", "cuda:99"], ["--device", "meta"],
        ["--json", "no such folder/r.json"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_bench_refuses_what_does_not_fit_before_it_measures(options, capsys):
    assert main(["bench", "--graphs", "aifb", "--device", "cpu", *options]) == 1
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.count("\n") == 1
    assert (options[0].strip("-")[:4] if options[0] != "--json" else options[1]) in told.err


def test_unknown_graphs_are_a_wrong_command_line(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["bench", "--graphs", "aifb,cora"])
    assert ended.value.code == 2
    assert "cora" in capsys.readouterr().err


def test_a_reader_that_stops_is_no_error_to_talk_about(script):
    command = [sys.executable, "-m", "hector.cli", "explain", f"{script}:make", "--all"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        running.stdout.readline()
        running.stdout.close()
        told = running.stderr.read().decode()
    assert "Broken pipe" not in told
    assert "Traceback" not in told
