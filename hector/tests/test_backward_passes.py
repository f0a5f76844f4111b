# SPDX-License-Identifier: Apache-2.0
"""Differentiation, and the passes that only joint programs need: IR text before and after."""

import textwrap

import pytest
from pass_texts import check, same

from hector import passes
from hector.grad import differentiate
from hector.ir import parse
from hector.split import split

ATTENTION = """
    func f(%x: node[4] f32, %s: node[1] f32) {
      %0 = gather(%s) {map = edge.src} : edge[1] f32
      %1 = tanh(%0) : edge[1] f32
      %2 = gather(%x) {map = edge.src} : edge[4] f32
      %3 = mul(%2, %1) : edge[4] f32
      %4 = segment_sum(%3) {map = edge.dst} : node[4] f32
      return %4
    }"""


def joint():
    return differentiate(parse(textwrap.dedent(ATTENTION)), frozenset({"x", "s"}))


def test_gradients_follow_the_function():
    found = joint()
    assert found.reached == ("x", "s")
    assert found.active == (True,)
    same(
        found.joint,
        """
        func f(%x: node[4] f32, %s: node[1] f32, %grad_0: node[4] f32) {
          %0 = gather(%s) {map = edge.src} : edge[1] f32
          %1 = tanh(%0) : edge[1] f32
          %2 = gather(%x) {map = edge.src} : edge[4] f32
          %3 = mul(%2, %1) : edge[4] f32
          %4 = segment_sum(%3) {map = edge.dst} : node[4] f32
          %5 = gather(%grad_0) {map = edge.dst} : edge[4] f32
          %6 = mul(%5, %1) : edge[4] f32
          %7 = mul(%5, %2) : edge[4] f32
          %8 = sum(%7) {axes = (0)} : edge[] f32
          %9 = reshape(%8) {shape = (1)} : edge[1] f32
          %10 = segment_sum(%6) {map = edge.src} : node[4] f32
          %11 = mul(%1, %1) : edge[1] f32
          %12 = const() {dtype = f32, value = 1.0} : weight[] f32
          %13 = sub(%12, %11) : edge[1] f32
          %14 = mul(%9, %13) : edge[1] f32
          %15 = segment_sum(%14) {map = edge.src} : node[1] f32
          return %4, %10, %15
        }""",
    )


def test_only_what_is_wanted_is_differentiated():
    function = parse(textwrap.dedent(ATTENTION))
    found = differentiate(function, frozenset({"x"}))
    assert found.reached == ("x",)
    assert "tanh" not in [op.op for op in found.joint.ops[len(function.ops) :]]
    assert differentiate(function, frozenset()).reached == ()


def test_split_saves_what_is_arithmetic_and_gathers_again():
    forward, backward = split(joint().joint, 1)
    same(
        forward,
        """
        func f(%x: node[4] f32, %s: node[1] f32) {
          %0 = gather(%s) {map = edge.src} : edge[1] f32
          %1 = tanh(%0) : edge[1] f32
          %2 = gather(%x) {map = edge.src} : edge[4] f32
          %3 = mul(%2, %1) : edge[4] f32
          %4 = segment_sum(%3) {map = edge.dst} : node[4] f32
          return %4, %1
        }""",
    )
    same(
        backward,
        """
        func f_backward(%x: node[4] f32, %saved_0: edge[1] f32, %grad_0: node[4] f32) {
          %0 = gather(%grad_0) {map = edge.dst} : edge[4] f32
          %1 = mul(%0, %saved_0) : edge[4] f32
          %2 = gather(%x) {map = edge.src} : edge[4] f32
          %3 = mul(%0, %2) : edge[4] f32
          %4 = sum(%3) {axes = (0)} : edge[] f32
          %5 = reshape(%4) {shape = (1)} : edge[1] f32
          %6 = segment_sum(%1) {map = edge.src} : node[4] f32
          %7 = const() {dtype = f32, value = 1.0} : weight[] f32
          %8 = mul(%saved_0, %saved_0) : edge[1] f32
          %9 = sub(%7, %8) : edge[1] f32
          %10 = mul(%5, %9) : edge[1] f32
          %11 = segment_sum(%10) {map = edge.src} : node[1] f32
          return %6, %11
        }""",
    )


def test_split_does_arithmetic_on_edges_again_where_that_costs_nothing():
    forward, backward = split(joint().joint, 1, recompute=True)
    assert len(forward.results) == 1
    same(
        backward,
        """
        func f_backward(%x: node[4] f32, %s: node[1] f32, %grad_0: node[4] f32) {
          %0 = gather(%grad_0) {map = edge.dst} : edge[4] f32
          %1 = gather(%s) {map = edge.src} : edge[1] f32
          %2 = tanh(%1) : edge[1] f32
          %3 = mul(%0, %2) : edge[4] f32
          %4 = gather(%x) {map = edge.src} : edge[4] f32
          %5 = mul(%0, %4) : edge[4] f32
          %6 = sum(%5) {axes = (0)} : edge[] f32
          %7 = reshape(%6) {shape = (1)} : edge[1] f32
          %8 = segment_sum(%3) {map = edge.src} : node[4] f32
          %9 = const() {dtype = f32, value = 1.0} : weight[] f32
          %10 = mul(%2, %2) : edge[1] f32
          %11 = sub(%9, %10) : edge[1] f32
          %12 = mul(%7, %11) : edge[1] f32
          %13 = segment_sum(%12) {map = edge.src} : node[1] f32
          return %8, %13
        }""",
    )


def test_a_gradient_stops_where_it_was_told_to():
    text = ATTENTION.replace("tanh(%0)", "detach(%0)")
    found = differentiate(parse(textwrap.dedent(text)), frozenset({"x", "s"}))
    assert found.reached == ("x",)
    assert "detach" not in [op.op for op in found.joint.ops]


def test_normalise_opens_softmax():
    check(
        passes.normalise,
        """
        func f(%s: edge[3] bf16) {
          %0 = segment_softmax(%s) {map = edge.dst} : edge[3] bf16
          return %0
        }""",
        """
        func f(%s: edge[3] bf16) {
          %0 = segment_lse(%s) {map = edge.dst} : node[3] f32
          %1 = segment_weights(%s, %0) {map = edge.dst} : edge[3] bf16
          return %1
        }""",
    )


def test_sums_of_inner_products_come_from_a_sum_at_hand():
    check(
        passes.reuse_sums,
        """
        func f(%z: edge[2, 8] f32, %w: edge[2] f32, %k: edge[2] f32, %g: node[2, 8] f32) {
          %0 = mul(%w, %k) : edge[2] f32
          %1 = reshape(%0) {shape = (2, 1)} : edge[2, 1] f32
          %2 = mul(%1, %z) : edge[2, 8] f32
          %3 = segment_sum(%2) {map = edge.dst} : node[2, 8] f32
          %4 = gather(%g) {map = edge.dst} : edge[2, 8] f32
          %5 = mul(%4, %z) : edge[2, 8] f32
          %6 = sum(%5) {axes = (1)} : edge[2] f32
          %7 = mul(%6, %0) : edge[2] f32
          %8 = segment_sum(%7) {map = edge.dst} : node[2] f32
          return %3, %8
        }""",
        """
        func f(%z: edge[2, 8] f32, %w: edge[2] f32, %k: edge[2] f32, %g: node[2, 8] f32) {
          %0 = mul(%w, %k) : edge[2] f32
          %1 = reshape(%0) {shape = (2, 1)} : edge[2, 1] f32
          %2 = mul(%1, %z) : edge[2, 8] f32
          %3 = segment_sum(%2) {map = edge.dst} : node[2, 8] f32
          %4 = mul(%g, %3) : node[2, 8] f32
          %5 = sum(%4) {axes = (1)} : node[2] f32
          return %3, %5
        }""",
    )


@pytest.mark.parametrize(
    ("along", "axis", "weight"),
    [("edge.dst_pair", 1, "w"), ("edge.src", 1, "w"), ("edge.dst", 0, "w"), ("edge.dst", 1, "k")],
)
def test_sums_of_other_products_stay(along, axis, weight):
    space = {"edge.dst_pair": "dst_pair", "edge.src": "node", "edge.dst": "node"}[along]
    text = f"""
        func f(%z: edge[2, 2] f32, %w: edge[2] f32, %k: edge[2] f32, %g: node[2, 2] f32) {{
          %0 = reshape(%w) {{shape = (2, 1)}} : edge[2, 1] f32
          %1 = mul(%0, %z) : edge[2, 2] f32
          %2 = segment_sum(%1) {{map = edge.dst}} : node[2, 2] f32
          %3 = gather(%g) {{map = edge.dst}} : edge[2, 2] f32
          %4 = mul(%3, %z) : edge[2, 2] f32
          %5 = sum(%4) {{axes = ({axis})}} : edge[2] f32
          %6 = mul(%5, %{weight}) : edge[2] f32
          %7 = segment_sum(%6) {{map = {along}}} : {space}[2] f32
          return %2, %7
        }}"""
    check(passes.reuse_sums, text, text)
