# SPDX-License-Identifier: Apache-2.0
"""Which drives a directory lies on, and what they say of their wear where no root is needed."""

from __future__ import annotations

import ctypes
import fcntl
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

__all__ = ["DriveState", "capacity_of", "drive_states", "parse_smart_log"]

SECTOR = 512  # sysfs counts in these whatever the drive's own are.
DATA_UNIT = 512_000  # NVMe counts a thousand of 512 bytes as one.
_GET_LOG_PAGE = 0x02
_SMART_LOG = 0x02
_ALL_NAMESPACES = 0xFFFFFFFF
_LOG_BYTES = 512


@dataclass(frozen=True, slots=True)
class DriveState:
    """One drive under a directory.

    Attributes
    ----------
    device : str
        "nvme0n1"; "" if the directory lies on no block device.
    model : str
    capacity : int
        Bytes; 0 if unknown.
    written_since_boot : int or None
        Bytes that the host has written, by the kernel's count.
    percentage_used : int or None
        SMART: share of the rated endurance used, in per cent; may pass 100.
    bytes_written : int or None
        SMART: bytes that hosts have written in the drive's life.
    reason : str
        Why SMART's numbers are missing; "" if they are there.
    """

    device: str
    model: str = ""
    capacity: int = 0
    written_since_boot: int | None = None
    percentage_used: int | None = None
    bytes_written: int | None = None
    reason: str = ""


def drive_states(path: str | os.PathLike[str], sys: Path = Path("/sys")) -> list[DriveState]:
    """Return the drives that a directory lies on, through partitions, RAID and device mapper.

    Parameters
    ----------
    path : path
        An existing file or directory.
    sys : Path
        Where sysfs is.

    Raises
    ------
    OSError
        If ``path`` is not there.
    """
    node = _node(path, sys)
    if node is None:
        return [DriveState("", reason=f"{os.fspath(path)} lies on no block device that is visible")]
    return [_state(disk) for disk in _disks(node)]


def capacity_of(
    directories: Iterable[str | os.PathLike[str]], sys: Path = Path("/sys")
) -> int | None:
    """Return the bytes of all drives that some directories lie on, each drive counted once.

    Parameters
    ----------
    directories : iterable of path
    sys : Path
        Where sysfs is.

    Returns
    -------
    int or None
        None if one of them is not there, lies on no drive that is visible, or on one of unknown
        size.
    """
    disks: set[Path] = set()
    for directory in directories:
        try:
            node = _node(directory, sys)
        except OSError:
            return None
        if node is None:
            return None
        disks.update(_disks(node))
    sizes = [_capacity(disk) for disk in disks]
    return sum(sizes) if sizes and all(sizes) else None


def _node(path: str | os.PathLike[str], sys: Path) -> Path | None:
    device = Path(path).stat().st_dev
    node = sys / "dev" / "block" / f"{os.major(device)}:{os.minor(device)}"
    return node.resolve() if node.exists() else None


def _disks(node: Path) -> list[Path]:
    slaves = node / "slaves"
    below = sorted(slaves.iterdir()) if slaves.is_dir() else []
    if below:
        found = [disk for slave in below for disk in _disks(slave.resolve())]
        return list(dict.fromkeys(found))
    return [node.parent] if (node / "partition").exists() else [node]


def _state(disk: Path) -> DriveState:
    fields = _text(disk / "stat").split()
    log, reason = _smart_log(disk)
    used, written = parse_smart_log(log) if log else (None, None)
    return DriveState(
        device=disk.name,
        model=_text(disk / "device" / "model"),
        capacity=_capacity(disk),
        written_since_boot=int(fields[6]) * SECTOR if len(fields) > 6 else None,
        percentage_used=used,
        bytes_written=written,
        reason=reason,
    )


def _capacity(disk: Path) -> int:
    size = _text(disk / "size")
    return int(size) * SECTOR if size.isdigit() else 0


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


class _AdminCommand(ctypes.Structure):
    """``struct nvme_admin_cmd`` of linux/nvme_ioctl.h."""

    _fields_ = (
        ("opcode", ctypes.c_uint8),
        ("flags", ctypes.c_uint8),
        ("reserved", ctypes.c_uint16),
        ("nsid", ctypes.c_uint32),
        ("cdw2", ctypes.c_uint32),
        ("cdw3", ctypes.c_uint32),
        ("metadata", ctypes.c_uint64),
        ("addr", ctypes.c_uint64),
        ("metadata_len", ctypes.c_uint32),
        ("data_len", ctypes.c_uint32),
        ("cdw10", ctypes.c_uint32),
        ("cdw11", ctypes.c_uint32),
        ("cdw12", ctypes.c_uint32),
        ("cdw13", ctypes.c_uint32),
        ("cdw14", ctypes.c_uint32),
        ("cdw15", ctypes.c_uint32),
        ("timeout_ms", ctypes.c_uint32),
        ("result", ctypes.c_uint32),
    )


# _IOWR('N', 0x41, struct nvme_admin_cmd)
_ADMIN_COMMAND = (3 << 30) | (ctypes.sizeof(_AdminCommand) << 16) | (ord("N") << 8) | 0x41


def _smart_log(disk: Path) -> tuple[bytes, str]:
    if not disk.name.startswith("nvme"):
        return b"", f"{disk.name} is no NVMe drive"
    node = f"/dev/{disk.name}"
    try:
        descriptor = os.open(node, os.O_RDONLY)
    except OSError as error:
        # The kernel shows SMART to those only who may read the whole drive.
        return b"", f"{node}: {error.strerror}; run 'nvme smart-log {node}' as root"
    try:
        log = ctypes.create_string_buffer(_LOG_BYTES)
        command = _AdminCommand(
            opcode=_GET_LOG_PAGE,
            nsid=_ALL_NAMESPACES,
            addr=ctypes.addressof(log),
            data_len=_LOG_BYTES,
            cdw10=(_LOG_BYTES // 4 - 1) << 16 | _SMART_LOG,
        )
        status = fcntl.ioctl(descriptor, _ADMIN_COMMAND, command)
    except OSError as error:
        return b"", f"{node}: no SMART log ({error.strerror})"
    finally:
        os.close(descriptor)
    return (log.raw, "") if status == 0 else (b"", f"{node}: the drive answered {status:#x}")


def parse_smart_log(log: bytes) -> tuple[int, int]:
    """Return (percentage used, bytes written) of an NVMe SMART log page.

    Parameters
    ----------
    log : bytes
        512 of them. Source: NVM Express Base Specification, "SMART / Health Information".

    Raises
    ------
    ValueError
        If it is too short.
    """
    if len(log) < _LOG_BYTES:
        raise ValueError(f"a SMART log has {_LOG_BYTES} bytes, this one {len(log)}")
    return log[5], int.from_bytes(log[48:64], "little") * DATA_UNIT
