# SPDX-License-Identifier: Apache-2.0
"""When ordering a batch by address pays, decided from measured constants; runs no kernel."""

from __future__ import annotations

import dataclasses
import functools
import json
import logging
import math
import os
import platform
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from datapath_core.cache_folder import cache_folder, write_whole

__all__ = [
    "GatherModel",
    "Prediction",
    "built_in_model",
    "gather_model",
    "save_model",
    "saved_path",
    "set_gather_model",
]

_logger = logging.getLogger("pytorch_direct")
_VARIABLE = "DATAPATH_GATHER_MODEL"
_DEFAULTS = Path(__file__).with_name("gather_model.json")
_KINDS: dict[Any, type | tuple[type, ...]] = {"str": str, "int": int, "float": (int, float)}


@dataclass(frozen=True)
class Prediction:
    """What the model expects of one batch, in seconds."""

    as_given: float
    ordered: float
    merged: float = math.inf

    @property
    def way(self) -> str:
        """The fastest: "as given", "ordered" by region, or "merged", each row read once."""
        times = {"as given": self.as_given, "ordered": self.ordered, "merged": self.merged}
        return min(times, key=times.__getitem__)

    @property
    def ordering_pays(self) -> bool:
        """Whether the ordered gather, its sort included, is the faster one."""
        return self.ordered < self.as_given


@dataclass(frozen=True)
class GatherModel:
    """The law of zero-copy gathers: bytes over the link or addresses translated, the slower one.

    A batch takes ``max(bytes / link, regions visited / regions a second)``. In given order nearly
    every row visits another region of the table once the table exceeds what the GPU's translation
    reaches; in order of address each region is visited once.

    Parameters
    ----------
    measured_on : str
        The machine.
    link_bytes_per_second : float
        Rate of wide ordered gathers from pinned memory.
    regions_per_second : float
        Distinct regions whose addresses are translated in a second.
    region_bytes : int
        Bytes that one translation covers.
    reach_regions : int
        Regions that stay translated: smaller tables need no order.
    sort_seconds, sort_seconds_per_id : float
        Time of the sort: a constant and a part for each id.
    blocks_per_multiprocessor : int
        Blocks of 512 threads launched for each multiprocessor used.
    host_blocks : int
        Most blocks launched for a gather of aligned rows from host memory: so many keep the link
        full. More would take multiprocessors from others and have more regions of the table
        translated at a time. Unaligned rows, conversions and changes of rows have three times as
        many. Where a cap leaves fewer multiprocessors, gathers have blocks of 1024 threads there.
    sm_share : float
        Share of the multiprocessors that a gather uses when its caller does not say, above 0, at
        most 1.

    Raises
    ------
    ValueError
        A constant is out of its domain.
    """

    measured_on: str
    link_bytes_per_second: float
    regions_per_second: float
    region_bytes: int
    reach_regions: int
    sort_seconds: float
    sort_seconds_per_id: float
    blocks_per_multiprocessor: int
    host_blocks: int
    sm_share: float

    def __post_init__(self) -> None:
        for field in fields(self):
            value, kinds = getattr(self, field.name), _KINDS[field.type]
            # A file can hold anything, and what is no count would end in the kernels' launch.
            if not isinstance(value, kinds) or isinstance(value, bool):
                raise ValueError(
                    f"gather model: {field.name} must be of type {field.type}, not {value!r}"
                )
            if isinstance(value, float) and not math.isfinite(value):
                raise ValueError(f"gather model: {field.name} must be finite, not {value}")
        for name in ("link_bytes_per_second", "regions_per_second", "region_bytes"):
            if not getattr(self, name) > 0:
                raise ValueError(f"gather model: {name} must be above 0, not {getattr(self, name)}")
        for name in ("reach_regions", "sort_seconds", "sort_seconds_per_id"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"gather model: {name} must not be negative")
        if not 1 <= self.blocks_per_multiprocessor <= 32:
            raise ValueError("gather model: blocks_per_multiprocessor must be 1 to 32")
        if not 1 <= self.host_blocks <= 65535:
            raise ValueError(
                f"gather model: host_blocks must be 1 to 65535, not {self.host_blocks}"
            )
        if not 0 < self.sm_share <= 1:
            raise ValueError(f"gather model: sm_share must be in (0, 1], not {self.sm_share}")

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> GatherModel:
        """Read a model from a JSON file that has every constant.

        Raises
        ------
        OSError
            The file cannot be read.
        ValueError
            It is no such JSON, or a constant is missing, unknown or out of its domain.
        """
        try:
            values = json.loads(Path(path).read_text(encoding="utf-8"))
        except ValueError as error:
            raise ValueError(f"gather model {path}: no JSON: {error}") from error
        names = {field.name for field in fields(cls)}
        if not isinstance(values, dict) or set(values) != names:
            raise ValueError(
                f"gather model {path}: it must have exactly these constants: {sorted(names)}"
            )
        try:
            return cls(**values)
        except ValueError as error:
            raise ValueError(f"{error}, in {path}") from error

    def predict(self, rows: int, stride: int, row_bytes: int, count: int) -> Prediction:
        """Predict a gather of `count` random rows; sizes in bytes, rows `stride` apart."""
        regions = max(1.0, rows * stride / self.region_bytes)
        span = 1.0 + max(0, row_bytes - 1) / self.region_bytes
        moved = count * row_bytes / self.link_bytes_per_second
        untranslated = max(0.0, 1.0 - self.reach_regions / regions)
        # Expected number of distinct regions among `count` draws.
        distinct = -regions * math.expm1(-count * span / regions)
        as_given = max(moved, count * span * untranslated / self.regions_per_second)
        visits = min(distinct, count * span) * untranslated
        sort = self.sort_seconds + self.sort_seconds_per_id * count
        ordered = max(moved, visits / self.regions_per_second) + sort
        # Each row once. Any draw that is not uniform has more duplicates.
        unique = -rows * math.expm1(-count / rows) if rows else 0.0
        read = unique * row_bytes / self.link_bytes_per_second
        # The constants are those of a sort in three passes of eight bits.
        passes = max(1.0, math.ceil(max(1, rows).bit_length() / 8) / 3)
        merged = max(read, visits / self.regions_per_second) + passes * sort
        return Prediction(as_given, ordered, merged)


_chosen: GatherModel | None = None


def gather_model() -> GatherModel:
    """Return the model in use.

    That of :func:`set_gather_model`, else of the file that ``DATAPATH_GATHER_MODEL`` names, else
    what :func:`calibrate` saved on this machine, else the built-in constants.
    """
    return _chosen if _chosen is not None else _from_file()


def set_gather_model(model: GatherModel | None) -> None:
    """Use another model in this process; None goes back to the variable or the constants."""
    global _chosen
    if model is not None and not isinstance(model, GatherModel):
        raise TypeError(
            f"set_gather_model() takes a GatherModel or None, not {type(model).__name__}"
        )
    _chosen = model
    way_of.cache_clear()


@functools.cache
def _from_file() -> GatherModel:
    named = os.environ.get(_VARIABLE)
    if named:
        return GatherModel.load(named)
    saved = saved_path()
    if saved.exists():
        try:
            return GatherModel.load(saved)
        except (OSError, ValueError) as error:
            _logger.warning("the saved gather model is left out, calibrate() again: %s", error)
    return built_in_model()


@functools.cache
def built_in_model() -> GatherModel:
    """Return the constants that came with the package."""
    return GatherModel.load(_DEFAULTS)


def saved_path() -> Path:
    """Return where the constants of this machine stand; a home folder may serve several."""
    return cache_folder() / f"gather-model-{platform.node() or 'here'}.json"


def save_model(model: GatherModel) -> Path:
    """Write a model where later processes of this machine find it; returns the path."""
    path = saved_path()
    write_whole(path, json.dumps(dataclasses.asdict(model), indent=2))
    _from_file.cache_clear()
    return path


@functools.lru_cache(maxsize=1024)
def way_of(rows: int, stride: int, row_bytes: int, count: int) -> str:
    """Return how the model in use would read a batch; see `Prediction.way`."""
    return gather_model().predict(rows, stride, row_bytes, count).way
