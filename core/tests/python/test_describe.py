# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import logging

from datapath_core import _core, _log, describe, io


def test_it_says_what_the_machine_and_the_library_are() -> None:
    described = describe()
    json.dumps(described)
    assert described["version"] == _core.__version__
    assert described["machine"]["processors"] >= 1
    assert described["machine"]["memory_available"] > 0
    assert {row["name"] for row in described["settings"]} >= {"io.depth", "memory.budget"}


def test_every_backend_has_a_state_and_a_reason_where_it_does_not_serve() -> None:
    text = json.dumps(describe()["io"])
    for backend in ("uring", "threads", "cufile"):
        assert backend in text


def test_messages_of_the_library_go_to_logging(caplog, folder) -> None:
    _log.flush()
    with caplog.at_level(logging.DEBUG, logger="datapath_core"):
        with io.Engine("threads", faults="write:eio@after=987654"):
            pass
        _log.flush()
    assert any(
        record.name.startswith("datapath_core.") and "fault" in record.message.lower()
        for record in caplog.records
    ), caplog.records
