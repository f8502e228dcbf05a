"""Framed JSON over a stream socket between the runner and its children.

A frame is magic, length, CRC-32 and a JSON object. Anything else on the line (a handler that wrote
into a descriptor which is not its own) is a :class:`ProtocolError`, never a result.
"""

from __future__ import annotations

import json
import struct
import zlib
from typing import Any

_HEADER = struct.Struct("!2sII")
_MAGIC = b"OJ"
MAX_FRAME = 4 << 20

Frame = dict[str, Any]


class ProtocolError(Exception):
    """The other end wrote something that is not a frame."""


def pack_text(text: str) -> bytes:
    """A frame around JSON text."""
    payload = text.encode()
    return _HEADER.pack(_MAGIC, len(payload), zlib.crc32(payload)) + payload


def pack(frame: Frame) -> bytes:
    """A frame around an object."""
    return pack_text(json.dumps(frame, ensure_ascii=False, separators=(",", ":")))


class FrameReader:
    """Collects bytes and gives out whole frames."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[Frame]:
        """The frames that ``data`` completes. Raises :class:`ProtocolError`."""
        self._buffer += data
        frames = []
        start, end = 0, len(self._buffer)
        while end - start >= _HEADER.size:
            magic, length, checksum = _HEADER.unpack_from(self._buffer, start)
            if magic != _MAGIC or length > MAX_FRAME:
                raise ProtocolError("not a frame")
            if end - start - _HEADER.size < length:
                break
            begin = start + _HEADER.size
            payload = bytes(self._buffer[begin : begin + length])
            frames.append(_parse(payload, checksum))
            start = begin + length
        if start:
            del self._buffer[:start]
        return frames


def _parse(payload: bytes, checksum: int) -> Frame:
    if zlib.crc32(payload) != checksum:
        raise ProtocolError("checksum")
    try:
        frame = json.loads(payload)
    except ValueError as error:
        raise ProtocolError("not JSON") from error
    if not isinstance(frame, dict):
        raise ProtocolError("not an object")
    return frame
