# SPDX-License-Identifier: Apache-2.0
"""What gather refuses, and what it says then."""

from __future__ import annotations

import pytest
import torch

from pytorch_direct import check, gather, unified


@pytest.mark.parametrize("ids", [[0, 10, 3, -1], [0, -1, 3, 10], [0, 2**31, 1, 1]])
def test_bad_id_is_named_with_its_position_and_the_valid_range(ids):
    table = torch.randn(10, 4)
    text = f"id {ids[1]} at position 1 of 4 is out of range: valid are 0 to 9"
    with pytest.raises(IndexError, match=text):
        gather(table, torch.tensor(ids))


def test_first_bad_id_is_named_whatever_the_threads():
    table = torch.zeros(10, 64)
    ids = torch.zeros(100_000, dtype=torch.int64)
    ids[70_001] = 99
    ids[70_002:] = -5
    for _ in range(5):
        with pytest.raises(IndexError, match="id 99 at position 70001 of 100000"):
            gather(table, ids)
        with pytest.raises(IndexError, match="id 99 at position 70001 of 100000"):
            gather(table, ids, dtype=torch.float16)


def test_any_id_is_bad_for_a_table_without_rows():
    with pytest.raises(IndexError, match="the table has no rows"):
        gather(torch.zeros(0, 3), torch.tensor([0]))
    with pytest.raises(IndexError):
        gather(torch.zeros(3, 0), torch.tensor([3]))


def test_indexing_wraps_negative_ids_but_not_too_far():
    table = unified(torch.randn(10, 4))
    assert torch.equal(table[torch.tensor([-1, -10])], table[torch.tensor([9, 0])])
    with pytest.raises(IndexError, match="valid are -10 to 9"):
        table[torch.tensor([-11])]
    with pytest.raises(IndexError, match="valid are 0 to 9"):
        gather(table, torch.tensor([-1]))
    with pytest.raises(IndexError):
        table[torch.tensor([-(2**63)])]


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        (([[1.0]], torch.tensor([0])), TypeError, "src must be a torch.Tensor, not list"),
        ((torch.tensor(1.0), torch.tensor([0])), ValueError, "has none"),
        ((torch.zeros(3).to_sparse(), torch.tensor([0])), TypeError, "strided"),
        ((torch.zeros(3, device="meta"), torch.tensor([0])), TypeError, "meta"),
        (
            (torch.zeros(3), [0]),
            TypeError,
            "ids must be a torch.Tensor of int32 or int64, not list",
        ),
        ((torch.zeros(3), torch.tensor([0.0])), TypeError, "use ids.long()"),
        ((torch.zeros(3), torch.tensor([True])), TypeError, "torch.bool"),
    ],
)
def test_arguments_of_the_wrong_kind(arguments, error, text):
    with pytest.raises(error, match=text):
        gather(*arguments)


@pytest.mark.filterwarnings("ignore:.*nested tensors:UserWarning")
def test_a_nested_table_is_refused_by_name():
    ragged = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])
    with pytest.raises(TypeError, match="src must be a plain strided tensor, not a nested one"):
        gather(ragged, torch.tensor([0]))


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"order": "sorted"}, ValueError),
        ({"sm_share": 0}, ValueError),
        ({"sm_share": 1.5}, ValueError),
        ({"sm_share": "all"}, TypeError),
        ({"sm_share": True}, TypeError),
        ({"dtype": "float32"}, TypeError),
        ({"stream": object()}, ValueError),
        ({"out": torch.zeros(2, 3)}, ValueError),
        ({"out": torch.zeros(1, 4, dtype=torch.float64)}, TypeError),
        ({"out": [0.0]}, TypeError),
        ({"out": torch.zeros(1, 4, device="meta")}, ValueError),
    ],
)
def test_options_out_of_their_domain(options, error):
    with pytest.raises(error):
        gather(torch.zeros(3, 4), torch.tensor([0]), **options)


def test_out_must_have_memory_of_its_own():
    table = torch.zeros(10, 4)
    with pytest.raises(ValueError, match="overlaps"):
        gather(table, torch.tensor([0, 1]), out=table[3:5])
    ids = torch.zeros(4, dtype=torch.int64)
    with pytest.raises(ValueError, match="overlaps"):
        gather(torch.zeros(9, dtype=torch.int64), ids, out=ids)


def test_out_does_not_go_with_gradients():
    table = torch.zeros(3, 4, requires_grad=True)
    with pytest.raises(RuntimeError, match="gradients"):
        gather(table, torch.tensor([0]), out=torch.zeros(1, 4))
    with torch.no_grad():
        gather(table, torch.tensor([0]), out=torch.zeros(1, 4))


def test_check_has_nothing_to_say_without_a_gpu():
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    check()
    check("cpu")
