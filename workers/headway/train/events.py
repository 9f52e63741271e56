"""Figures of a run as TensorBoard reads them: records of TFRecord files, each an `Event` of one step.

The two messages are so small that they are written by hand; TensorFlow's `event.proto` and `summary.proto` number their
fields, and `record_writer.cc` says how records are framed.
"""

import socket
import struct
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

_WALL_TIME, _STEP, _FILE_VERSION, _SUMMARY = 1, 2, 3, 5
_SUMMARY_VALUE = 1
_TAG, _SIMPLE_VALUE = 1, 2
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_CASTAGNOLI = 0x82F63B78
_MASK_DELTA = 0xA282EAD8


class EventFile:
    """A new file of events in a directory; every step is there for readers at once."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / f"events.out.tfevents.{time.time_ns() / 1e9:.6f}.{socket.gethostname()}"
        self._file = path.open("wb")
        self._write(_event(time.time(), 0) + _field(_FILE_VERSION, b"brain.Event:2"))

    def add(self, step: int, scalars: Mapping[str, float]) -> None:
        """Writes figures of a step, by their names."""
        values = b"".join(_field(_SUMMARY_VALUE, _scalar(tag, value)) for tag, value in scalars.items())
        self._write(_event(time.time(), step) + _field(_SUMMARY, values))

    def close(self) -> None:
        self._file.close()

    def _write(self, event: bytes) -> None:
        length = struct.pack("<Q", len(event))
        self._file.write(length + _masked(length) + event + _masked(event))
        self._file.flush()


def _event(wall_time_s: float, step: int) -> bytes:
    return _key(_WALL_TIME, _FIXED64) + struct.pack("<d", wall_time_s) + _key(_STEP, _VARINT) + _varint(step)


def _scalar(tag: str, value: float) -> bytes:
    return _field(_TAG, tag.encode()) + _key(_SIMPLE_VALUE, _FIXED32) + struct.pack("<f", value)


def _field(number: int, value: bytes) -> bytes:
    return _key(number, _BYTES) + _varint(len(value)) + value


def _key(number: int, kind: int) -> bytes:
    return _varint(number << 3 | kind)


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])


def _masked(data: bytes) -> bytes:
    """The checksum of a record's part: CRC-32C, turned and shifted."""
    value = crc32c(data)
    return struct.pack("<I", ((value >> 15 | value << 17) + _MASK_DELTA) & 0xFFFFFFFF)


def crc32c(data: bytes) -> int:
    """The Castagnoli cyclic redundancy check, as RFC 3720 has it."""
    value = 0xFFFFFFFF
    for byte in data:
        value = _TABLE[(value ^ byte) & 0xFF] ^ value >> 8
    return value ^ 0xFFFFFFFF


def _table() -> Iterator[int]:
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = value >> 1 ^ (_CASTAGNOLI if value & 1 else 0)
        yield value


_TABLE = tuple(_table())
