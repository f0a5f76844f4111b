# SPDX-License-Identifier: Apache-2.0
"""Batches come in order with their graphs, made ahead; errors and endings reach the reader."""

import threading
import time

import pytest
import torch
from relational_layers import LAYERS, graph, inputs, maker, outputs_and_gradients

import hector


def make(number):
    return graph(20 + number, 60 + number, seed=number)


def workers():
    return [thread for thread in threading.enumerate() if thread.name == "hector prefetch"]


def soon(condition):
    deadline = time.monotonic() + 30
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.005)
    return condition()


def test_batches_come_in_order_with_their_graphs():
    layer = hector.compile(LAYERS["rgcn"])
    count = 0
    for number, g in hector.prefetch(range(7), make):
        assert number == count
        count += 1
        assert torch.equal(g.edge_index, make(number).edge_index)
        tensors = inputs("rgcn", g, maker(torch.float64), 4, 3)
        found = outputs_and_gradients(layer, g, tensors)
        expected = outputs_and_gradients(LAYERS["rgcn"], g, tensors)
        for a, b in zip(found, expected, strict=True):
            torch.testing.assert_close(a, b)
    assert count == 7
    assert soon(lambda: not workers())


def test_later_graphs_hold_what_earlier_steps_needed():
    layer = hector.compile(LAYERS["rgat"])
    held = []
    for _, g in hector.prefetch(range(8), make, depth=1):
        held.append(len(g.recipe()))
        layer(g, *inputs("rgat", g, maker(torch.float32), 4, 3)).sum().backward()
    assert held[0] == 0
    assert held[-1] == len(g.recipe()) > 0


def test_no_more_than_depth_are_made_ahead():
    made = []

    def note(number):
        made.append(number)
        return make(number)

    found = hector.prefetch(range(50), note, depth=3)
    next(found)
    assert soon(lambda: len(made) == 4)
    time.sleep(0.05)
    assert len(made) == 4
    found.close()
    assert soon(lambda: not workers())
    assert len(made) <= 5


@pytest.mark.parametrize(("fault", "what"), [("batches", "loader"), ("graph", "graph")])
def test_errors_come_in_their_turn(fault, what):
    def batches():
        yield 0
        yield 1
        if fault == "batches":
            raise ZeroDivisionError("the loader failed")
        yield 2

    def one(number):
        if fault == "graph" and number == 2:
            raise ZeroDivisionError("the graph failed")
        return make(number)

    found = hector.prefetch(batches(), one)
    assert [next(found)[0], next(found)[0]] == [0, 1]
    with pytest.raises(ZeroDivisionError, match=f"the {what} failed"):
        next(found)
    assert soon(lambda: not workers())


def test_bad_ids_raise_where_the_batch_is_taken():
    def bad(number):
        return hector.Graph(torch.tensor([[0], [number]]), torch.tensor([0]), 2)

    found = hector.prefetch(range(4), bad)
    assert next(found)[0] == 0
    assert next(found)[0] == 1
    with pytest.raises(IndexError, match="edge_index holds 2"):
        next(found)


def test_batches_move_before_their_graphs_are_made():
    batches = [{"index": torch.tensor([[0, 1], [1, 0]]), "name": "first"}]
    ((batch, g),) = hector.prefetch(batches, lambda b: graph().to(b["index"].device), device="meta")
    assert batch["index"].is_meta
    assert batch["name"] == "first"
    assert g.device.type == "meta"


def test_depth_is_checked_at_once():
    with pytest.raises(ValueError, match="depth must be at least 1, got 0"):
        hector.prefetch([], make, depth=0)


def test_what_is_no_graph_is_told_of():
    with pytest.raises(TypeError, match=r"must make a hector\.Graph of a batch, not a int"):
        next(hector.prefetch(range(3), lambda batch: batch))
    with pytest.raises(TypeError, match="depth must be an int, not float"):
        hector.prefetch(range(3), depth=1.5)
