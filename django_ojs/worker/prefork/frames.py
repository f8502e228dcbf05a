"""Framed JSON over a stream socket between the supervisor and its children.

A packet is magic, length, CRC-32 and a JSON array of frames, which are objects: frames that are sent
together share one header and one checksum. Any other bytes (from a handler that writes to a descriptor
which is not its own) raise :class:`ProtocolError`; they are never taken for a result.
"""

from __future__ import annotations

import json
import signal
import struct
import zlib
from collections.abc import Sequence
from itertools import chain
from typing import Any

_HEADER = struct.Struct("!2sII")
_MAGIC = b"OJ"
MAX_PACKET = 8 << 20
"""Bytes: twice the largest frame."""
_FULL = 1 << 20
"""Bytes of frames in one packet; a larger frame gets a packet of its own."""

WAKEUP_SIGNAL = signal.SIGUSR1
"""Makes an executor read its channel while a handler runs."""
Frame = dict[str, Any]
text_of = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
"""Encode a frame as JSON text."""
_decode = json.JSONDecoder().raw_decode


class ProtocolError(Exception):
    """The bytes received are not a packet."""


def pack(*frames: Frame) -> bytes:
    """Encode frames as packets."""
    return pack_texts([text_of(frame) for frame in frames])


def pack_texts(texts: Sequence[str]) -> bytes:
    """Encode frames that are JSON text already as packets. Raises ``ValueError`` for a frame that is
    larger than a packet, or is no Unicode text.
    """
    packets = bytearray()
    waiting: list[bytes] = []
    size = 0
    for frame in [text.encode() for text in texts]:
        if waiting and size + len(frame) > _FULL:
            packets += _packet(waiting)
            waiting, size = [], 0
        waiting.append(frame)
        size += len(frame)
    return bytes(packets + _packet(waiting)) if waiting else b""


def _packet(frames: Sequence[bytes]) -> bytes:
    payload = b"[" + b",".join(frames) + b"]"
    if len(payload) > MAX_PACKET:
        raise ValueError(f"a frame of {len(payload)} bytes is larger than a packet")
    return _HEADER.pack(_MAGIC, len(payload), zlib.crc32(payload)) + payload


class FrameReader:
    """Collects bytes and returns whole frames."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, data: bytes) -> list[Frame]:
        """Return the frames that ``data`` completes. Raises :class:`ProtocolError`."""
        source: bytes | bytearray = data
        if self._rest:
            self._rest += data
            source = self._rest
        bodies: list[bytes] = []
        start, end = 0, len(source)
        while end - start >= _HEADER.size:
            magic, length, checksum = _HEADER.unpack_from(source, start)
            if magic != _MAGIC or length > MAX_PACKET:
                raise ProtocolError("not a packet")
            begin = start + _HEADER.size
            if end - begin < length:
                break
            start = begin + length
            payload = bytes(source[begin:start])
            if zlib.crc32(payload) != checksum:
                raise ProtocolError("checksum")
            bodies.append(payload)
        if source is data:
            self._rest = bytearray(data[start:])
        elif start:
            del self._rest[:start]
        return _parse(bodies) if bodies else []


def parse_array(payload: bytes) -> list[Frame]:
    """The frames of a JSON array. Raises :class:`ProtocolError`."""
    return _parse([payload])


def _parse(payloads: Sequence[bytes]) -> list[Frame]:
    """The frames of packets that arrived together, parsed at once: a call costs more than a frame."""
    try:
        text = f"[{b','.join(payloads).decode()}]"
        arrays, end = _decode(text)
    except (ValueError, RecursionError) as error:
        raise ProtocolError("not JSON") from error
    if end != len(text) or {*map(type, arrays)} != {list}:
        raise ProtocolError("not an array")
    frames = list(chain.from_iterable(arrays))
    if {*map(type, frames)} != {dict}:
        raise ProtocolError("not an array of objects")
    return frames
