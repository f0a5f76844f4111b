# SPDX-License-Identifier: Apache-2.0
"""Each pass on its own: IR text before and after."""

import textwrap

import pytest
from pass_texts import check

from hector import passes
from hector.ir import Space, parse, verify
from hector.passes.canonicalise import check_matrices
from hector.passes.rewrite import rewrite
from hector.plan import Counts

FEW_NODES = Counts(node=10, edge=100, src_pair=40, dst_pair=50, relation=4, node_type=2)
MANY_NODES = Counts(node=95, edge=100, src_pair=90, dst_pair=95, relation=4, node_type=2)
EVERYWHERE = passes.node_routes(FEW_NODES) | {"edge.src_pair", "edge.dst_pair"}


def test_canonicalise_selects_matrices_by_type():
    check(
        passes.canonicalise,
        """
        func f(%x: node[8] f32, %W: relation[8, 5] f32) {
          %0 = gather(%x) {map = edge.src} : edge[8] f32
          %1 = gather(%W) {map = edge.rel} : edge[8, 5] f32
          %2 = linear(%0, %1) : edge[5] f32
          return %2
        }""",
        """
        func f(%x: node[8] f32, %W: relation[8, 5] f32) {
          %0 = gather(%x) {map = edge.src} : edge[8] f32
          %1 = linear(%0, %W) {type = edge.rel} : edge[5] f32
          return %1
        }""",
    )


def test_canonicalise_does_work_on_relations_there():
    check(
        passes.canonicalise,
        """
        func f(%x: node[8] f32, %W: relation[5, 8] f32, %c: relation[1, 1] f32) {
          %0 = gather(%x) {map = edge.src} : edge[8] f32
          %1 = gather(%W) {map = edge.rel} : edge[5, 8] f32
          %2 = gather(%c) {map = edge.rel} : edge[1, 1] f32
          %3 = mul(%1, %2) : edge[5, 8] f32
          %4 = transpose(%3) {perm = (1, 0)} : edge[8, 5] f32
          %5 = linear(%0, %4) : edge[5] f32
          return %5
        }""",
        """
        func f(%x: node[8] f32, %W: relation[5, 8] f32, %c: relation[1, 1] f32) {
          %0 = gather(%x) {map = edge.src} : edge[8] f32
          %1 = mul(%W, %c) : relation[5, 8] f32
          %2 = linear(%0, %1) {transpose = true, type = edge.rel} : edge[5] f32
          return %2
        }""",
    )


def test_canonicalise_composes_gathers_and_takes_factors_out_of_segments():
    check(
        passes.canonicalise,
        """
        func f(%x: src_pair[8] f32, %c: dst_pair[1] f32, %y: node[8] f32) {
          %0 = gather(%c) {map = edge.dst_pair} : edge[1] f32
          %1 = gather(%x) {map = edge.src_pair} : edge[8] f32
          %2 = mul(%0, %1) : edge[8] f32
          %3 = segment_sum(%2) {map = edge.dst_pair} : dst_pair[8] f32
          %4 = gather(%y) {map = src_pair.node} : src_pair[8] f32
          %5 = gather(%4) {map = edge.src_pair} : edge[8] f32
          return %3, %5
        }""",
        """
        func f(%x: src_pair[8] f32, %c: dst_pair[1] f32, %y: node[8] f32) {
          %0 = gather(%x) {map = edge.src_pair} : edge[8] f32
          %1 = segment_sum(%0) {map = edge.dst_pair} : dst_pair[8] f32
          %2 = mul(%1, %c) : dst_pair[8] f32
          %3 = gather(%y) {map = edge.src} : edge[8] f32
          return %2, %3
        }""",
    )


def test_factors_of_nodes_stay_inside_where_a_node_may_have_no_edge():
    text = """
        func f(%x: src_pair[8] f32, %c: node[1] f32) {
          %0 = gather(%x) {map = edge.src_pair} : edge[8] f32
          %1 = gather(%c) {map = edge.dst} : edge[1] f32
          %2 = mul(%0, %1) : edge[8] f32
          %3 = segment_sum(%2) {map = edge.dst} : node[8] f32
          return %3
        }"""
    check(passes.canonicalise, text, text)


@pytest.mark.parametrize("op", ["exp", "log", "sqrt", "rsqrt", "reciprocal"])
def test_what_may_be_infinite_moves_to_pairs_but_not_to_nodes_or_relations(op):
    text = f"""
        func f(%x: node[8] f32, %c: relation[8] f32) {{
          %0 = gather(%x) {{map = edge.src}} : edge[8] f32
          %1 = {op}(%0) : edge[8] f32
          %2 = gather(%c) {{map = edge.rel}} : edge[8] f32
          %3 = {op}(%2) : edge[8] f32
          return %1, %3
        }}"""
    nodes = passes.node_routes(FEW_NODES)
    check(lambda f: passes.compact(passes.canonicalise(f), nodes), text, text)
    moved = verify(passes.compact(parse(textwrap.dedent(text).strip()), EVERYWHERE))
    spaces = {value.type.space for value in moved.ops if value.op == op}
    assert spaces == {Space.SRC_PAIR}


def test_canonicalise_tidies():
    check(
        passes.canonicalise,
        """
        func f(%x: node[8] f32, %s: node[1] f32) {
          %0 = reshape(%x) {shape = (2, 4)} : node[2, 4] f32
          %1 = reshape(%0) {shape = (8)} : node[8] f32
          %2 = neg(%1) : node[8] f32
          %3 = neg(%2) : node[8] f32
          %4 = const() {dtype = f32, value = 1.0} : weight[] f32
          %5 = mul(%3, %4) : node[8] f32
          %6 = mul(%s, %5) : node[8] f32
          return %6
        }""",
        """
        func f(%x: node[8] f32, %s: node[1] f32) {
          %0 = mul(%x, %s) : node[8] f32
          return %0
        }""",
    )


def test_fold_multiplies_the_vector_into_the_matrices():
    check(
        passes.fold,
        """
        func f(%x: edge[8] f32, %W: relation[8, 5] f32, %a: relation[5] f32) {
          %0 = linear(%x, %W) {type = edge.rel} : edge[5] f32
          %1 = gather(%a) {map = edge.rel} : edge[5] f32
          %2 = mul(%0, %1) : edge[5] f32
          %3 = sum(%2) {axes = (0)} : edge[] f32
          return %3
        }""",
        """
        func f(%x: edge[8] f32, %W: relation[8, 5] f32, %a: relation[5] f32) {
          %0 = reshape(%W) {shape = (8, 1, 5)} : relation[8, 1, 5] f32
          %1 = reshape(%a) {shape = (1, 1, 5)} : relation[1, 1, 5] f32
          %2 = mul(%0, %1) : relation[8, 1, 5] f32
          %3 = sum(%2) {axes = (2)} : relation[8, 1] f32
          %4 = linear(%x, %3) {type = edge.rel} : edge[1] f32
          %5 = reshape(%4) {shape = ()} : edge[] f32
          return %5
        }""",
    )


def test_fold_leaves_vectors_that_differ_within_a_type():
    text = """
        func f(%x: edge[8] f32, %W: relation[8, 5] f32, %a: node[5] f32) {
          %0 = linear(%x, %W) {type = edge.rel} : edge[5] f32
          %1 = gather(%a) {map = edge.dst} : edge[5] f32
          %2 = mul(%0, %1) : edge[5] f32
          %3 = sum(%2) {axes = (0)} : edge[] f32
          return %3
        }"""
    check(passes.fold, text, text)


def test_aggregate_first_sums_before_the_product():
    check(
        passes.aggregate_first,
        """
        func f(%x: edge[8] f32, %W: relation[8, 5] f32, %s: edge[1] f32) {
          %0 = linear(%x, %W) {type = edge.rel} : edge[5] f32
          %1 = mul(%0, %s) : edge[5] f32
          %2 = segment_sum(%1) {map = edge.dst} : node[5] f32
          return %2
        }""",
        """
        func f(%x: edge[8] f32, %W: relation[8, 5] f32, %s: edge[1] f32) {
          %0 = mul(%x, %s) : edge[8] f32
          %1 = segment_sum(%0) {map = edge.dst_pair} : dst_pair[8] f32
          %2 = linear(%1, %W) {type = dst_pair.rel} : dst_pair[5] f32
          %3 = segment_sum(%2) {map = dst_pair.node} : node[5] f32
          return %3
        }""",
    )


@pytest.mark.parametrize(
    "between",
    [
        "%1 = relu(%0) : edge[5] f32",
        "%1 = mul(%0, %s) : edge[5] f32",
    ],
)
def test_aggregate_first_refuses_what_is_not_linear_in_the_rows(between):
    text = f"""
        func f(%x: edge[8] f32, %W: relation[8, 5] f32, %s: edge[5] f32) {{
          %0 = linear(%x, %W) {{type = edge.rel}} : edge[5] f32
          {between}
          %2 = segment_sum(%1) {{map = edge.dst}} : node[5] f32
          return %2
        }}"""
    check(passes.aggregate_first, text, text)


BEFORE_COMPACT = """
    func f(%x: node[8] f32, %W: relation[8, 5] f32, %e: edge[5] f32) {
      %0 = gather(%x) {map = edge.src} : edge[8] f32
      %1 = tanh(%0) : edge[8] f32
      %2 = linear(%1, %W) {type = edge.rel} : edge[5] f32
      %3 = relu(%2) : edge[5] f32
      %4 = mul(%3, %e) : edge[5] f32
      return %4
    }"""


def test_compact_computes_once_for_each_pair():
    check(
        lambda f: passes.compact(f, EVERYWHERE),
        BEFORE_COMPACT,
        """
        func f(%x: node[8] f32, %W: relation[8, 5] f32, %e: edge[5] f32) {
          %0 = tanh(%x) : node[8] f32
          %1 = gather(%0) {map = src_pair.node} : src_pair[8] f32
          %2 = linear(%1, %W) {type = src_pair.rel} : src_pair[5] f32
          %3 = relu(%2) : src_pair[5] f32
          %4 = gather(%3) {map = edge.src_pair} : edge[5] f32
          %5 = mul(%4, %e) : edge[5] f32
          return %5
        }""",
    )


def test_compact_keeps_edges_without_a_route():
    check(
        lambda f: passes.compact(f, frozenset({"edge.dst_pair"})),
        BEFORE_COMPACT,
        BEFORE_COMPACT,
    )


def test_routes_to_nodes_are_those_with_no_more_nodes():
    every = {"edge.src", "edge.dst", "src_pair.node", "dst_pair.node"}
    assert passes.node_routes(FEW_NODES) == every
    assert passes.node_routes(MANY_NODES) == every - {"src_pair.node"}


def test_compact_keeps_values_of_both_ends():
    text = """
        func f(%x: node[8] f32) {
          %0 = gather(%x) {map = edge.src} : edge[8] f32
          %1 = gather(%x) {map = edge.dst} : edge[8] f32
          %2 = mul(%0, %1) : edge[8] f32
          return %2
        }"""
    check(lambda f: passes.compact(f, EVERYWHERE), text, text)


def test_common_subexpressions():
    check(
        passes.eliminate_common,
        """
        func f(%x: node[8] f32) {
          %0 = leaky_relu(%x) {slope = 0.2} : node[8] f32
          %1 = leaky_relu(%x) {slope = 0.2} : node[8] f32
          %2 = leaky_relu(%x) {slope = 0.3} : node[8] f32
          %3 = add(%0, %1) : node[8] f32
          %4 = add(%3, %2) : node[8] f32
          return %4
        }""",
        """
        func f(%x: node[8] f32) {
          %0 = leaky_relu(%x) {slope = 0.2} : node[8] f32
          %1 = leaky_relu(%x) {slope = 0.3} : node[8] f32
          %2 = add(%0, %0) : node[8] f32
          %3 = add(%2, %1) : node[8] f32
          return %3
        }""",
    )


def test_dead_code():
    check(
        passes.eliminate_dead,
        """
        func f(%x: node[8] f32, %y: node[8] f32) {
          %0 = exp(%y) : node[8] f32
          %1 = relu(%x) : node[8] f32
          %2 = exp(%0) : node[8] f32
          return %1
        }""",
        """
        func f(%x: node[8] f32, %y: node[8] f32) {
          %0 = relu(%x) : node[8] f32
          return %0
        }""",
    )


def test_fuse_absorbs_gathers_and_scales():
    check(
        passes.fuse,
        """
        func f(%x: node[8] f32, %W: relation[8, 5] f32, %s: edge[1] f32, %g: node[5] f32) {
          %0 = gather(%x) {map = src_pair.node} : src_pair[8] f32
          %1 = linear(%0, %W) {type = src_pair.rel} : src_pair[5] f32
          %2 = gather(%1) {map = edge.src_pair} : edge[5] f32
          %3 = mul(%2, %s) : edge[5] f32
          %4 = segment_sum(%3) {map = edge.dst} : node[5] f32
          %5 = gather(%g) {map = edge.dst} : edge[5] f32
          %6 = mul(%2, %5) : edge[5] f32
          %7 = sum(%6) {axes = (0)} : edge[] f32
          %8 = outer(%0, %1) {type = src_pair.rel} : relation[8, 5] f32
          return %4, %7, %8
        }""",
        """
        func f(%x: node[8] f32, %W: relation[8, 5] f32, %s: edge[1] f32, %g: node[5] f32) {
          %0 = linear(%x, %W) {rows = src_pair.node, type = src_pair.rel} : src_pair[5] f32
          %1 = gather_sum(%0, %s) {map = edge.dst, rows = edge.src_pair} : node[5] f32
          %2 = gather_dot(%0, %g) {rows = edge.src_pair, rows_y = edge.dst} : edge[] f32
          %3 = outer(%x, %0) {rows = src_pair.node, type = src_pair.rel} : relation[8, 5] f32
          return %1, %2, %3
        }""",
    )


def test_a_rewrite_that_changes_a_type_stops():
    function = parse("func f(%x: node[8] f32) {\n%0 = exp(%x) : node[8] f32\nreturn %0\n}")
    with pytest.raises(ValueError, match=r"exp was node\[8\] f32, rewritten to node\[\] f32"):
        rewrite(function, lambda b, op, operands: b.emit("sum", operands[0], axes=(0,)))


def test_a_matrix_for_each_row_is_refused():
    text = """func f(%x: edge[8] f32, %W: edge[8, 5] f32) {
        %0 = linear(%x, %W) : edge[5] f32
        return %0
    }"""
    with pytest.raises(RuntimeError, match="differs from row to row"):
        check_matrices(parse(text))


def test_fold_multiplies_a_narrower_matrix_into_the_matrices():
    check(
        passes.fold,
        """
        func f(%x: edge[8] f32, %W: relation[8, 5] f32, %q: weight[5, 1] f32) {
          %0 = linear(%x, %W) {type = edge.rel} : edge[5] f32
          %1 = linear(%0, %q) : edge[1] f32
          return %1
        }""",
        """
        func f(%x: edge[8] f32, %W: relation[8, 5] f32, %q: weight[5, 1] f32) {
          %0 = linear(%W, %q) : relation[8, 1] f32
          %1 = linear(%x, %0) {type = edge.rel} : edge[1] f32
          return %1
        }""",
    )


def test_fold_leaves_products_that_are_needed_anyway():
    text = """
        func f(%x: edge[8] f32, %W: relation[8, 5] f32, %q: weight[5, 1] f32, %a: weight[5] f32) {
          %0 = linear(%x, %W) {type = edge.rel} : edge[5] f32
          %1 = linear(%0, %q) : edge[1] f32
          %2 = mul(%0, %a) : edge[5] f32
          %3 = sum(%2) {axes = (0)} : edge[] f32
          return %0, %1, %3
        }"""
    check(passes.fold, text, text)
