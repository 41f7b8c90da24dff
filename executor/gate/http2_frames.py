"""What is looked at in the bytes of an HTTP/2 connection before `h2` gets them: floods, and GOAWAY.

`h2` counts no frames, and takes a GOAWAY for the end of everything, where the streams that were begun before it go on
(RFC 9113 section 6.8; sites end their connections so after some hundred requests). Reads frame headers only.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

_HEADER = 9
_DATA, _HEADERS, _GOAWAY, _CONTINUATION = 0x0, 0x1, 0x7, 0x9
_END_STREAM, _END_HEADERS = 0x1, 0x4
_LONGEST_GOAWAY = 16384


class Flood(Exception):
    """More frames came that carry nothing than any use of the protocol needs."""


@dataclass(frozen=True)
class GoAway:
    """The other side takes no stream above `last`; those up to it may go on. `code` as in RFC 9113 section 7."""

    last: int
    code: int


class Frames:
    """Follows one direction of one connection. `calls` is how many frames that carry nothing are granted at once; a
    tenth of it comes back each second, two with each `carried`."""

    def __init__(self, *, preface: bool, calls: int) -> None:
        self.goaways: list[GoAway] = []
        """Those that came; for the reader to take."""
        self.in_head = False
        """Whether a head has begun and not come to its end."""
        self._calls = float(calls)
        self._left_calls = float(calls)
        self._counted_at = time.monotonic()
        self._skip = len(PREFACE) if preface else 0
        self._held = b""

    @property
    def midway(self) -> bool:
        """Whether a frame or a head has begun and not come to its end."""
        return self.in_head or bool(self._held) or self._skip > 0

    def carried(self) -> None:
        """Something was sent that the other side may answer with frames of its own: a piece of a body, an answer."""
        self._left_calls = min(self._calls, self._left_calls + 2)

    def take(self, data: bytes) -> bytes:
        """What `h2` may read of these bytes: all but GOAWAY frames and a frame header that is not whole, which is held
        back. Raises `Flood`."""
        if self._held:
            data = self._held + data
            self._held = b""
        position, size = self._skip, len(data)
        passed: list[bytes] = []
        start = 0
        while position + _HEADER <= size:
            length = int.from_bytes(data[position : position + 3], "big")
            kind, flags = data[position + 3], data[position + 4]
            end = position + _HEADER + length
            if kind == _GOAWAY:
                if length > _LONGEST_GOAWAY:
                    raise Flood("a GOAWAY of absurd size")
                if end > size:
                    break
                self.count()
                passed.append(data[start:position])
                start = end
                if length >= 8:
                    last = int.from_bytes(data[position + 9 : position + 13], "big") & 0x7FFFFFFF
                    self.goaways.append(GoAway(last, int.from_bytes(data[position + 13 : position + 17], "big")))
            elif kind in (_HEADERS, _CONTINUATION):
                self.in_head = not flags & _END_HEADERS
                if kind == _CONTINUATION:
                    self.count()
            elif kind != _DATA or (not length and not flags & _END_STREAM):
                self.count()
            position = end
        if position >= size:
            self._skip = position - size
            position = size
        else:
            self._skip = 0
            self._held = data[position:]
        if not start and position == size:
            return data
        passed.append(data[start:position])
        return b"".join(passed)

    def count(self) -> None:
        """One more that carries nothing. Raises `Flood`."""
        self._left_calls -= 1
        if self._left_calls >= 0:
            return
        now = time.monotonic()
        self._left_calls = min(self._calls, self._left_calls + (now - self._counted_at) * self._calls / 10)
        self._counted_at = now
        if self._left_calls < 0:
            raise Flood(f"more than {self._calls:.0f} frames that carry nothing")
