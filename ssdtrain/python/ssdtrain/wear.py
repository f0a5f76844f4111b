# SPDX-License-Identifier: Apache-2.0
"""What offloading costs a drive: bytes written, lifetime left, budgets, warnings. Moves nothing."""

from __future__ import annotations

import logging
import math
import re
from typing import Any

from datapath_core.settings import parse_bytes

__all__ = [
    "DAY", "WearMeter", "parse_decimal_bytes", "parse_rating", "parse_write_budget",
    "write_budget_per_step",
]  # fmt: skip

DAY = 86400.0
YEAR = 365 * DAY
WARRANTY_YEARS = 5.0  # What drives per day refer to where no term is given.
# Seconds of training and steps after which a projection is worth a warning: the first steps
# compile, tune and plan.
SETTLED_SECONDS = 60.0
SETTLED_STEPS = 10
# A drive without a known rating is taken for one of a consumer's: 600 TB (JEDEC client class).
ASSUMED_RATING = 600e12

_logger = logging.getLogger(__name__)
_POWERS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4, "P": 5, "E": 6}
_TOTAL = re.compile(r"([0-9.]+(?:e[0-9]+)?)\s*([KMGTPE]?)(I?)B\s*W?", re.IGNORECASE)
_DAILY = re.compile(
    r"([0-9.]+)\s*DWPD(?:\s*[x*]\s*(?P<capacity>[0-9.]+\s*[KMGTPE]?I?B))?"
    r"(?:\s*,?\s*(?P<years>[0-9.]+)\s*years?)?",
    re.IGNORECASE,
)
_RATE = re.compile(r"(?P<size>.+?)\s*(?:/|per)\s*(?P<unit>second|s|hour|h|day|d)", re.IGNORECASE)
_SECONDS = {"s": 1.0, "second": 1.0, "h": 3600.0, "hour": 3600.0, "d": DAY, "day": DAY}


def parse_rating(
    rating: float | str, capacity: float | None = None, *, name: str = "rating"
) -> float:
    """Return the bytes that may be written to a drive by its rating.

    Parameters
    ----------
    rating : float or str
        Bytes; or "600TBW", "14PB" (decimal as drives are sold; "TiB" is binary); or drive writes
        per day, "1DWPD", "3 DWPD x 6.4TB", "1DWPD 3 years" (5 years where no term is given).
    capacity : float, optional
        Of the drive in bytes, for drive writes per day that do not name it.
    name : str
        Of the argument, for errors.

    Raises
    ------
    TypeError
        For what is neither a number nor a text.
    ValueError
        For a text that is none of these, a number that is not positive, or drive writes per day
        without a capacity.
    """
    if isinstance(rating, bool) or not isinstance(rating, str | int | float):
        raise TypeError(f"{name} is {rating!r}; bytes or a text like '600TBW' wanted")
    if not isinstance(rating, str):
        return _positive(name, float(rating))
    daily = _DAILY.fullmatch(rating.strip())
    if daily:
        years = _number(rating, daily["years"]) if daily["years"] else WARRANTY_YEARS
        return _writes_per_day(daily, rating, capacity, name) * 365 * years
    total = _TOTAL.fullmatch(rating.strip())
    if not total:
        raise ValueError(f"{name} {rating!r} is neither like '600TBW' nor like '1DWPD x 7.68TB'")
    return _positive(name, _decimal_bytes(rating, total))


def parse_decimal_bytes(name: str, text: str) -> float:
    """Return the bytes of a size as drives and GPUs are sold: "80GB" is 80e9, "75GiB" is binary.

    Parameters
    ----------
    name : str
        Of the argument, for errors.
    text : str

    Raises
    ------
    ValueError
        For a text that is no such size, or one that is not positive.
    """
    size = _TOTAL.fullmatch(text.strip())
    if not size:
        raise ValueError(f"{name} {text!r} is no size like '80GB' or '7.68TB'")
    return _positive(name, _decimal_bytes(text, size))


def parse_write_budget(budget: float | str, capacity: float | None = None) -> float:
    """Return a write budget in bytes a day.

    Parameters
    ----------
    budget : float or str
        Bytes a day; or "20TiB/day", "1TB/hour", "500MB/s" (sizes as everywhere in this package,
        binary); or drive writes per day, "1DWPD" or "1DWPD x 7.68TB".
    capacity : float, optional
        Of the drives in bytes, for drive writes per day that do not name it.

    Raises
    ------
    TypeError
        For what is neither a number nor a text.
    ValueError
        For a text that is none of these, a budget that is not positive, or drive writes per day
        without a capacity.
    """
    if isinstance(budget, bool) or not isinstance(budget, str | int | float):
        raise TypeError(f"write_budget is {budget!r}; bytes a day or '20TiB/day' wanted")
    if not isinstance(budget, str):
        return _positive("write_budget", float(budget))
    text = budget.strip()
    daily = _DAILY.fullmatch(text)
    if daily:
        if daily["years"]:
            raise ValueError(f"write_budget {budget!r}: a budget is a rate and has no years")
        return _writes_per_day(daily, budget, capacity, "write_budget")
    rate = _RATE.fullmatch(text)
    try:
        if rate:
            nbytes = parse_bytes(rate["size"])
            return _positive("write_budget", nbytes * DAY / _SECONDS[rate["unit"].lower()])
        return _positive("write_budget", float(parse_bytes(text)))
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"write_budget {budget!r} is no rate: '20TiB/day', '1DWPD' or bytes a day wanted"
            f" ({error})"
        ) from None


def write_budget_per_step(
    budget: float | str, seconds: float, capacity: float | None = None
) -> int:
    """Return the bytes that a step may write under a budget.

    Parameters
    ----------
    budget : float or str
        As :func:`parse_write_budget` takes it.
    seconds : float
        Length of a step, from its start to the next one's.
    capacity : float, optional
        Of the drives in bytes.

    Raises
    ------
    TypeError, ValueError
        As :func:`parse_write_budget`; for a time that is not positive.
    """
    return int(parse_write_budget(budget, capacity) * _positive("seconds", seconds) / DAY)


class WearMeter:
    """Counts what is written to the drives and projects how long they last.

    Warns once, through ``logging``, when the projected lifetime is under ``warn_years``: a rating
    is used up evenly, so that a warning in the first minutes of a run is a year early. Without a
    rating a consumer drive of 600 TB is assumed, and said to be.

    Parameters
    ----------
    rating : float or str, optional
        Of all drives written to, together; as :func:`parse_rating` takes it.
    capacity : float, optional
        Of those drives in bytes, for a rating in drive writes per day.
    written_before : float, default 0
        Bytes written in the drives' life before, if known (``drive_state`` reads them).
    warn_years : float, default 1

    Raises
    ------
    TypeError, ValueError
        For a rating that cannot be read, or a negative number.
    """

    def __init__(
        self,
        rating: float | str | None = None,
        capacity: float | None = None,
        *,
        written_before: float = 0.0,
        warn_years: float = 1.0,
    ) -> None:
        if written_before < 0 or warn_years < 0:
            raise ValueError("written_before and warn_years must not be negative")
        self.rating = None if rating is None else parse_rating(rating, capacity)
        self._written_before = written_before
        self._warn_years = warn_years
        self._bytes = 0
        self._seconds = 0.0
        self._steps = 0
        self._last = (0, 0.0)
        self._warned = False

    def step(self, bytes_written: int, seconds: float) -> None:
        """Count a step.

        Parameters
        ----------
        bytes_written : int
            To the drives, by the host.
        seconds : float
            From the step's start to the next one's.

        Raises
        ------
        ValueError
            If one of them is negative or not finite.
        """
        if bytes_written < 0 or not 0 <= seconds < math.inf:
            raise ValueError(f"a step of {bytes_written} bytes in {seconds} s cannot be")
        self._bytes += bytes_written
        self._seconds += seconds
        self._steps += 1
        self._last = (bytes_written, seconds)
        settled = self._seconds >= SETTLED_SECONDS and self._steps >= SETTLED_STEPS
        if settled and not self._warned:
            self._warn()

    @property
    def bytes_per_day(self) -> float:
        """Bytes written in a day of training at the pace so far; 0 before any time has passed."""
        return self._bytes / self._seconds * DAY if self._seconds else 0.0

    def lifetime_seconds(self) -> float | None:
        """Seconds until the rating is used up at this pace; None if unknown, inf if never."""
        return None if self.rating is None else self._lifetime(self.rating)

    def _lifetime(self, rating: float) -> float:
        left = max(0.0, rating - self._written_before - self._bytes)
        return left / self.bytes_per_day * DAY if self.bytes_per_day else math.inf

    def _warn(self) -> None:
        lifetime = self._lifetime(ASSUMED_RATING if self.rating is None else self.rating)
        if lifetime >= self._warn_years * YEAR:
            return
        self._warned = True
        assumed = (
            " (no rating is known, a consumer drive's 600 TB is assumed: pass the drive's own)"
            if self.rating is None
            else ""
        )
        _logger.warning(
            "offloading writes %.1f TB a day: the drives' rated endurance%s is used up in %.0f"
            " days of training; bound it with write_budget=, or give host= more",
            self.bytes_per_day / 1e12,
            assumed,
            lifetime / DAY,
        )

    def report(self) -> dict[str, Any]:
        """Return what was written and how long the drives last.

        Returns
        -------
        dict
            ``steps``, ``seconds``, ``bytes_written``, ``bytes_last_step``, ``bytes_per_step``,
            ``bytes_per_day``, ``rating_bytes`` (None if unknown), ``rating_used`` (a fraction, with
            what was written before; None if unknown), ``lifetime_days`` (None if unknown or if
            nothing was written), ``warned``.
        """
        lifetime = self.lifetime_seconds()
        used = self._written_before + self._bytes
        return {
            "steps": self._steps,
            "seconds": self._seconds,
            "bytes_written": self._bytes,
            "bytes_last_step": self._last[0],
            "bytes_per_step": self._bytes / self._steps if self._steps else 0.0,
            "bytes_per_day": self.bytes_per_day,
            "rating_bytes": self.rating,
            "rating_used": None if self.rating is None else used / self.rating,
            "lifetime_days": None if lifetime is None or lifetime == math.inf else lifetime / DAY,
            "warned": self._warned,
        }


def _writes_per_day(daily: re.Match[str], text: str, capacity: float | None, name: str) -> float:
    """Bytes a day."""
    if daily["capacity"]:
        capacity = parse_decimal_bytes(name, daily["capacity"])
    if capacity is None:
        raise ValueError(
            f"{name} {text!r} counts drive writes: say of how large a drive, '1DWPD x 7.68TB'"
        )
    return _positive(name, _number(text, daily[1]) * capacity)


def _decimal_bytes(text: str, size: re.Match[str]) -> float:
    base = 1024.0 if size[3] else 1000.0
    return _number(text, size[1]) * base ** _POWERS[size[2].upper()]


def _number(text: str, digits: str) -> float:
    try:
        return float(digits)
    except ValueError:
        raise ValueError(f"{text!r}: {digits!r} is no number") from None


def _positive(name: str, value: float) -> float:
    if not 0 < value < math.inf:
        raise ValueError(f"{name} must be positive, is {value!r}")
    return value
