# SPDX-License-Identifier: Apache-2.0
"""The IR's printer, parser, typing rules and verifier."""

import dataclasses

import pytest
import torch
from relational_layers import LAYERS, graph, inputs, maker

import hector
from hector.ir import Builder, Function, Space, Type, parse, print_function, verify

TEXT = """\
func f(%x: node[8] f32, %W: relation[8, 5] f32, %b: weight[5] f32) {
  %0 = linear(%x, %W) {rows = edge.src, type = edge.rel} : edge[5] f32
  %1 = leaky_relu(%0) {slope = 0.2} : edge[5] f32
  %2 = inverse_count() {dtype = f32, map = edge.dst} : node[] f32
  %3 = reshape(%2) {shape = (1)} : node[1] f32
  %4 = gather_sum(%x) {map = edge.dst, rows = edge.src} : node[8] f32
  %5 = slice(%4) {axis = 0, start = 0, stop = 5} : node[5] f32
  %6 = segment_sum(%1) {map = edge.dst} : node[5] f32
  %7 = add(%5, %6) : node[5] f32
  %8 = mul(%7, %3) : node[5] f32
  %9 = add(%8, %b) : node[5] f32
  %10 = const() {dtype = f32, value = -1.5e-07} : weight[] f32
  return %9, %10, %x
}
"""


def test_round_trip():
    assert print_function(verify(parse(TEXT))) == TEXT


@pytest.mark.parametrize("name", LAYERS)
def test_every_stage_of_every_layer_round_trips(name):
    g = graph()
    explained = hector.compile(LAYERS[name]).explain(
        g, *inputs(name, g, maker(torch.float32), 3, 4)
    )
    assert len(explained.stages) >= 5
    for stage, text in explained.stages:
        assert print_function(verify(parse(text))) == text, stage


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("type = edge.rel", "type = edge.dst", "does not lead from"),
        ("type = edge.rel", "type = edge.up", "is no map"),
        ("linear(%x, %W) {rows = edge.src, ", "linear(%x, %W) {", "does not lead from"),
        ("edge[5] f32\n  %1", "edge[6] f32\n  %1", "line 2: stated type"),
        ("add(%5, %6)", "add(%5, %1)", "differ in space"),
        ("add(%5, %6)", "add(%4, %6)", "do not broadcast"),
        ("add(%5, %6)", "add(%5, %66)", "line 9: %66 is not defined"),
        ("add(%5, %6)", "plus(%5, %6)", "unknown operator 'plus'"),
        ("add(%5, %6)", "add(%5)", "takes"),
        ("stop = 5", "stop = 9", "does not fit axis 0"),
        ("{slope = 0.2}", "", "malformed|missing"),
        ("{slope = 0.2}", "{slope = 0.2, tilt = 1}", "unknown \\['tilt'\\]"),
        ("%x: node[8] f32", "%x: node[8] f64", "differ in dtype|stated type"),
        ("%x: node[8] f32", "%x: plane[8] f32", "plane"),
        ("%x: node[8] f32, ", "%x: node[8], ", "malformed parameters"),
        ("%b: weight", "%x: weight", "defined twice"),
        ("%1 = leaky", "%0 = leaky", "defined twice"),
        ("  return %9, %10, %x\n", "", "an IR function is"),
    ],
)
def test_parser_refuses(old, new, message):
    assert old in TEXT
    with pytest.raises(ValueError, match=message):
        parse(TEXT.replace(old, new, 1))


def test_matrix_selected_by_a_map_of_another_space_is_refused():
    text = "func f(%x: node[5] f32, %W: relation[8, 5] f32) {\n"
    text += "%0 = linear(%x, %W) {transpose = true, type = node.type} : node[8] f32\nreturn %0\n}"
    with pytest.raises(ValueError, match=r"type = node.type does not lead from node\[5\]"):
        parse(text)


def small():
    builder = Builder("f")
    x = builder.param("x", Type(Space.NODE, (2,), "f32"))
    y = builder.emit("relu", x)
    return builder, x, y


def test_verifier_finds_order_duplicates_and_false_types():
    builder, x, y = small()
    good = builder.finish([y])
    verify(good)
    z = builder.emit("exp", y)
    with pytest.raises(ValueError, match="not yet defined"):
        verify(Function("f", (x,), (z, y), (z,)))
    with pytest.raises(ValueError, match="defined twice"):
        verify(Function("f", (x,), (y, y), (y,)))
    with pytest.raises(ValueError, match="repeated parameter"):
        verify(Function("f", (x, x), (y,), (y,)))
    with pytest.raises(ValueError, match="missing or undefined"):
        verify(Function("f", (x,), (y,), (z,)))
    false = dataclasses.replace(y, type=Type(Space.EDGE, (2,), "f32"))
    with pytest.raises(ValueError, match=r"is node\[2\] f32, not edge"):
        verify(Function("f", (x,), (false,), (false,)))
