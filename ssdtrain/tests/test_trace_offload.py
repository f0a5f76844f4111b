# SPDX-License-Identifier: Apache-2.0
"""What a trace records, what core's schedulers add, and that its file keeps the format's rules."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter as Tally
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from datapath_core import io
from datapath_core.streams import Scheduler
from ssdtrain.trace import Counter, Instant, Lane, Quantity, Span, Tracer
from ssdtrain.trace_format import rows, trace_events


def validate(document: dict[str, Any]) -> None:
    """Check a file against the rules of the trace-event format that viewers rely on."""
    named: dict[tuple[int, int], str] = {}
    threads: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    flows: dict[tuple[str, int], list[dict[str, Any]]] = defaultdict(list)
    assert isinstance(document["traceEvents"], list)
    assert document["displayTimeUnit"] in ("ms", "ns")
    for event in document["traceEvents"]:
        assert isinstance(event["name"], str)
        assert isinstance(event["pid"], int)
        assert isinstance(event["tid"], int)
        place = (event["pid"], event["tid"])
        if event["ph"] == "M":
            if event["name"] == "thread_sort_index":
                assert isinstance(event["args"]["sort_index"], int)
            else:
                assert event["name"] in ("process_name", "thread_name")
                assert event["args"]["name"]
                if event["name"] == "thread_name":
                    assert place not in named
                    named[place] = event["args"]["name"]
            continue
        assert event["ts"] >= 0
        if event["ph"] == "X":
            assert event["dur"] >= 0
            begin = round(event["ts"] * 1000)
            threads[place].append((begin, begin + round(event["dur"] * 1000)))
        elif event["ph"] == "i":
            assert event["s"] in ("t", "p", "g")
        elif event["ph"] == "C":
            assert event["args"]
            assert all(isinstance(value, int | float) for value in event["args"].values())
        else:
            assert event["ph"] in ("s", "t", "f")
            flows[event["cat"], event["id"]].append(event)
    assert set(threads) <= set(named)
    assert len(set(named.values())) == len(named)
    for spans in threads.values():
        stack: list[int] = []
        for begin, end in sorted(spans, key=lambda span: (span[0], -span[1])):
            while stack and stack[-1] <= begin:
                stack.pop()
            assert not stack or end <= stack[-1], "spans of a thread overlap without nesting"
            stack.append(end)
    for arrow in flows.values():
        assert Tally(event["ph"] for event in arrow)["s"] == 1
        assert Tally(event["ph"] for event in arrow)["f"] == 1
        assert len({event["name"] for event in arrow}) == 1
        times = [event["ts"] for event in arrow]
        assert times == sorted(times)
        assert (arrow[0]["ph"], arrow[-1]["ph"]) == ("s", "f")
        for event in arrow:
            time = round(event["ts"] * 1000)
            spans = threads[event["pid"], event["tid"]]
            assert any(begin <= time <= end for begin, end in spans), "an arrow without a span"
            assert event["ph"] == "s" or event["bp"] == "e"


def exported(tracer: Tracer, tmp_path: Path, **options: Any) -> list[dict[str, Any]]:
    tracer.export(tmp_path / "trace.json", **options)
    document = json.loads((tmp_path / "trace.json").read_text())
    validate(document)
    events: list[dict[str, Any]] = document["traceEvents"]
    return events


def test_a_step_exports(tmp_path: Path) -> None:
    tracer = Tracer()
    tracer.begin_step(7)
    forward = tracer.begin("forward")
    tracer.counter(Quantity.DEVICE, 4096)
    tracer.span(Lane.WRITE, "store", 1_000, 5_000, group=3, nbytes=8_000)
    wait = tracer.begin("wait")
    tracer.end(wait, Lane.COMPUTE, "wait", group=3)
    tracer.end(forward, Lane.COMPUTE, "forward")
    tracer.span(Lane.READ, "load", 9_000, 11_000, group=3, nbytes=8_000)
    tracer.instant(Lane.COMPUTE, "dropped", group=3, nbytes=8_000)
    events = exported(tracer, tmp_path)
    by_phase = defaultdict(list)
    for event in events:
        by_phase[event["ph"]].append(event)
    lanes = {
        event["args"]["name"]: event["tid"] for event in events if event["name"] == "thread_name"
    }
    assert list(lanes) == ["compute", "disk write", "disk read"]
    assert sorted(lanes.values()) == list(lanes.values())
    assert [event["args"]["bytes"] for event in by_phase["C"]] == [4096]
    store = next(event for event in by_phase["X"] if event["name"] == "store")
    assert store["tid"] == lanes["disk write"]
    assert (store["ts"], store["dur"]) == (0, 4)
    assert store["args"] == {"step": 7, "group": 3, "bytes": 8_000, "GB/s": 2.0}
    assert {event["name"] for event in by_phase["i"]} == {"step 7", "dropped"}
    (begin,), (end,) = by_phase["s"], by_phase["f"]
    assert (begin["tid"], end["tid"]) == (lanes["disk write"], lanes["disk read"])
    assert begin["id"] == end["id"]


def test_an_arrow_passes_all_stops_and_counts_pieces_once() -> None:
    path = (Lane.D2H, Lane.WRITE, Lane.READ, Lane.H2D)
    records: list[Any] = []
    for number, lane in enumerate(path):
        for piece in range(2):
            begin = 100 * number + 10 * piece
            records.append(Span(lane, "move", begin, begin + 10, step=1, group=5))
    # The same group number of another step, and one that was never loaded: no arrow.
    records.append(Span(Lane.D2H, "store", 900, 910, step=2, group=5))
    records.append(Span(Lane.D2H, "store", 920, 930, step=1, group=6))
    events = trace_events(records)
    validate({"traceEvents": events, "displayTimeUnit": "ms"})
    arrows = [event for event in events if event["ph"] in "stf"]
    assert [event["ph"] for event in arrows] == ["s", "t", "t", "f"]
    assert [event["ts"] for event in arrows] == [0, 0.1, 0.2, 0.3]


def test_off_records_nothing_and_a_span_that_was_open_ends() -> None:
    tracer = Tracer(enabled=False)
    token = tracer.begin("wait")
    assert token == 0
    tracer.enabled = True
    tracer.end(token, Lane.COMPUTE, "wait")
    assert tracer.records() == []
    tracer.enabled = False
    tracer.span(Lane.D2H, "store", 1, 2)
    tracer.instant(Lane.D2H, "x")
    tracer.counter(Quantity.DISK, 5)
    tracer.device_span(Lane.COMPUTE, "forward", FakeEvent(0), FakeEvent(1))
    tracer.begin_step(1)
    assert tracer.records() == []


def test_the_ring_forgets_the_oldest() -> None:
    tracer = Tracer(3)
    for value in range(10):
        tracer.counter(Quantity.BACKLOG, value)
    assert [record.value for record in tracer.records()] == [7, 8, 9]  # type: ignore[union-attr]
    tracer.clear()
    assert tracer.records() == []
    with pytest.raises(ValueError, match="at least 1 entry"):
        Tracer(0)


class FakeEvent:
    """An event of a device whose clock counts milliseconds from some moment of its own."""

    def __init__(self, milliseconds: float, device: str = "cuda:0") -> None:
        self.milliseconds = milliseconds
        self.device = device

    def elapsed_time(self, end_event: Any) -> float:
        assert self.device == end_event.device
        return float(end_event.milliseconds - self.milliseconds)


def test_device_times_become_host_times_by_one_anchor_a_device() -> None:
    tracer = Tracer()
    tracer.device_span(Lane.COMPUTE, "forward", FakeEvent(5.0), FakeEvent(7.5), nbytes=3)
    tracer.device_span(Lane.COMPUTE, "backward", FakeEvent(8.0), FakeEvent(9.0))
    tracer.device_span(
        Lane.D2H, "store", FakeEvent(2.0, "cuda:1"), FakeEvent(3.0, "cuda:1"), group=4
    )
    anchors = []

    def anchor(event: Any) -> tuple[FakeEvent, int]:
        anchors.append(event.device)
        return FakeEvent(10.0, event.device), 1_000_000_000 if event.device == "cuda:0" else 10**9

    found = tracer.records(anchor=anchor)
    assert anchors == ["cuda:0", "cuda:1"]
    assert found == [
        Span(Lane.D2H, "store", 992_000_000, 993_000_000, group=4),
        Span(Lane.COMPUTE, "forward", 995_000_000, 997_500_000, nbytes=3),
        Span(Lane.COMPUTE, "backward", 998_000_000, 999_000_000),
    ]


def test_hops_of_a_real_scheduler_replace_the_span(tmp_path: Path) -> None:
    tracer = Tracer()
    data = torch.arange(3 << 20, dtype=torch.uint8)
    back = torch.empty_like(data)
    tracer.begin_step(2)
    with Scheduler("cpu") as scheduler, io.Volume([tmp_path], "64MiB") as volume:
        extent = volume.allocate(data.numel())
        for number, (label, lane, pair) in enumerate(
            [("store", Lane.WRITE, (extent, data)), ("load", Lane.READ, (back, extent))]
        ):
            ticket = scheduler.transfer(*pair)
            ticket.result()
            # Far too long a time, as of a host that looks only much later.
            tracer.span(lane, label, 0, 10**18, group=9, nbytes=1, sequence=("cpu", number))
        description = scheduler.describe()
    assert torch.equal(back, data)
    spans = [r for r in tracer.records({"cpu": description}) if isinstance(r, Span)]
    for label, lane in (("store", Lane.WRITE), ("load", Lane.READ)):
        hops = [span for span in spans if span.label == label]
        assert {span.lane for span in hops} == {lane}
        assert {(span.step, span.group) for span in hops} == {(2, 9)}
        assert sum(span.nbytes for span in hops) == data.numel()
        assert all(0 < span.begin <= span.end < 10**18 for span in hops)
    events = exported(tracer, tmp_path, schedulers={"cpu": description})
    assert [event["ph"] for event in events if event["ph"] in "stf"] == ["s", "f"]
    # Without the scheduler's memory the span stays as it was.
    assert {span.end for span in tracer.records() if isinstance(span, Span)} == {10**18}


def hop(number: int, start: int, end: int, lane: str = "d2h") -> dict[str, Any]:
    return {
        "lane": lane, "transfer": number, "offset": 0, "nbytes": 10, "start": start, "end": end,
        "failed": number == 2,
    }  # fmt: skip


def test_a_copy_lane_is_a_stream_and_queued_time_is_left_out() -> None:
    tracer = Tracer()
    for number in range(4):
        tracer.span(Lane.D2H, "store", 100, 900, group=number, sequence=("cuda:0", number), step=1)
    trace = [
        hop(0, 100, 200), hop(1, 101, 300), hop(2, 102, 400), hop(3, 600, 700),
        hop(7, 50, 60), hop(8, 800, 850, "h2d"), hop(9, 100, 110, "host"),
    ]  # fmt: skip
    spans = [r for r in tracer.records({"cuda:0": {"trace": trace}}) if isinstance(r, Span)]
    assert [(span.group, span.begin, span.end) for span in spans] == [
        (0, 100, 200), (1, 200, 300), (2, 300, 400), (3, 600, 700), (-1, 800, 850),
    ]  # fmt: skip
    assert [span.failed for span in spans] == [False, False, True, False, False]
    assert spans[-1].label == "not a group's"


def test_many_threads_record() -> None:
    tracer = Tracer(10_000)

    def work(lane: Lane) -> None:
        for number in range(1000):
            tracer.end(tracer.begin("x"), lane, "x", group=number)

    threads = [threading.Thread(target=work, args=(lane,)) for lane in (Lane.D2H, Lane.READ)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        tracer.records()
    for thread in threads:
        thread.join()
    tally = Tally(record.lane for record in tracer.records() if isinstance(record, Span))
    assert tally == {Lane.D2H: 1000, Lane.READ: 1000}


def test_nvtx_ranges_are_balanced(monkeypatch: pytest.MonkeyPatch) -> None:
    ranges: list[str] = []
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda.nvtx, "range_push", ranges.append)
    monkeypatch.setattr(torch.cuda.nvtx, "range_pop", lambda: ranges.append("pop"))
    tracer = Tracer()
    early = tracer.begin("early")
    tracer.begin_step(0)
    token = tracer.begin("load")
    tracer.enabled = False
    tracer.end(token, Lane.H2D, "load")
    tracer.end(early, Lane.COMPUTE, "early")
    assert ranges == ["ssdtrain: load", "pop"]


intervals = st.lists(
    st.tuples(st.integers(0, 60), st.integers(0, 20)).map(lambda t: (t[0], t[0] + t[1])),
    max_size=25,
)


@given(intervals, st.booleans())
def test_rows_never_overlap_and_lose_nothing(drawn: list[tuple[int, int]], nested: bool) -> None:
    spans = [Span(Lane.D2H, str(n), begin, end) for n, (begin, end) in enumerate(drawn)]
    placed = rows(spans, nested=nested)
    assert sorted(span.label for row in placed for span in row) == sorted(
        span.label for span in spans
    )
    for row in placed:
        for n, a in enumerate(row):
            for b in row[n + 1 :]:
                apart = a.end <= b.begin or b.end <= a.begin
                within = (a.begin <= b.begin and b.end <= a.end) or (
                    b.begin <= a.begin and a.end <= b.end
                )
                assert apart or (nested and within)


@given(intervals)
def test_any_records_make_a_valid_file(drawn: list[tuple[int, int]]) -> None:
    lanes = list(Lane)
    records: list[Any] = [
        Span(lanes[n % len(lanes)], "x", begin, end, group=n % 5, nbytes=n)
        for n, (begin, end) in enumerate(drawn)
    ]
    records += [Instant(Lane.READ, "y", begin) for begin, _ in drawn]
    records += [Counter(Quantity.HOST, begin, end) for begin, end in drawn]
    events = trace_events(records)
    validate({"traceEvents": events, "displayTimeUnit": "ms"})
    assert sum(event["ph"] == "X" for event in events) == len(drawn)


@pytest.mark.gpu
def test_device_spans_on_a_gpu_lie_between_host_times() -> None:
    tracer = Tracer()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    before = time.monotonic_ns()
    begin.record()
    x = torch.randn(2048, 2048, device="cuda")
    (x @ x).sum()
    end.record()
    torch.cuda.synchronize()
    after = time.monotonic_ns()
    tracer.device_span(Lane.COMPUTE, "forward", begin, end)
    (span,) = tracer.records()
    assert isinstance(span, Span)
    slack = 1_000_000  # of the two clocks against each other
    assert before - slack <= span.begin < span.end <= after + slack
