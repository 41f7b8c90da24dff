"""Writing heads in HPACK (RFC 7541), for `h2` in the place of `hpack`'s own encoder.

A page asks for 170 things with nearly the same head. `hpack` searches its tables from end to end for every field and
codes every letter (Huffman) in Python, which is a fifth of what the gate does for such a page; here each field is one
look into a dictionary, and letters go as they are. Reading stays with `hpack`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from functools import lru_cache

from hpack import NeverIndexedHeaderTuple
from hpack.table import HeaderTable

_STATIC = {(bytes(name), bytes(value)): number for number, (name, value) in enumerate(HeaderTable.STATIC_TABLE, 1)}
_STATIC_NAMES = {name: number for (name, _), number in reversed(_STATIC.items())}
_FIRST_DYNAMIC = len(HeaderTable.STATIC_TABLE) + 1
_ENTRY = 32
"""What an entry of the table counts beside its letters (section 4.1)."""
_LARGEST = 4096
"""Size of the table where the other side allows so much or more: what every side allows from the start."""

_PASSING = frozenset(
    b":path age content-length content-range date etag expires if-modified-since if-none-match if-range"
    b" last-modified location range set-cookie".split()
)
"""Fields whose values do not come again: in the table they would only drive out others."""


class HeadEncoder:
    """Its table mirrors the one of the other side's decoder. Entries are numbered in the order in which they came."""

    def __init__(self) -> None:
        self._limit = _LARGEST
        self._least: int | None = None
        """The lowest limit since the last head, if it has changed: the next one begins with it (section 4.2)."""
        self._numbers: dict[tuple[bytes, bytes], int] = {}
        self._entries: deque[tuple[bytes, bytes]] = deque()
        self._size = 0
        self._added = 0

    @property
    def header_table_size(self) -> int:
        return self._limit

    @header_table_size.setter
    def header_table_size(self, allowed: int) -> None:
        """Called by h2 when the other side's settings say so."""
        limit = min(allowed, _LARGEST)
        if limit != self._limit:
            self._limit = limit
            self._least = limit if self._least is None else min(limit, self._least)
            self._shrink(limit)

    def encode(self, fields: Iterable[tuple[bytes, bytes]]) -> bytes:
        block = bytearray()
        if self._least is not None:
            for limit in sorted({self._least, self._limit}):
                block += _integer(0x20, 5, limit)
            self._least = None
        for field in fields:
            name, value = field
            key = (name, value)
            if (number := _STATIC.get(key)) is not None:
                block += _integer(0x80, 7, number)
            elif (entry := self._numbers.get(key)) is not None:
                block += _integer(0x80, 7, _FIRST_DYNAMIC + self._added - 1 - entry)
            elif isinstance(field, NeverIndexedHeaderTuple):
                block += _literal(0x10, 4, name, value)
            elif name in _PASSING:
                block += _literal(0x00, 4, name, value)
            else:
                block += _literal(0x40, 6, name, value)
                self._add(key)
        return bytes(block)

    def _add(self, key: tuple[bytes, bytes]) -> None:
        size = len(key[0]) + len(key[1]) + _ENTRY
        self._shrink(self._limit - size)
        if size <= self._limit:
            self._entries.append(key)
            self._numbers[key] = self._added
            self._added += 1
            self._size += size

    def _shrink(self, size: int) -> None:
        """Drop the oldest entries until no more than so much is left (section 4.4)."""
        while self._entries and self._size > size:
            name, value = oldest = self._entries.popleft()
            self._size -= len(name) + len(value) + _ENTRY
            del self._numbers[oldest]


@lru_cache(maxsize=1024)  # most fields, and most indices, come again and again
def _integer(mark: int, bits: int, number: int) -> bytes:
    """Section 5.1."""
    most = (1 << bits) - 1
    if number < most:
        return bytes((mark | number,))
    written = bytearray((mark | most,))
    number -= most
    while number >= 0x80:
        written.append(number & 0x7F | 0x80)
        number >>= 7
    written.append(number)
    return bytes(written)


def _literal(mark: int, bits: int, name: bytes, value: bytes) -> bytes:
    """Section 6.2, letters as they are."""
    known = _STATIC_NAMES.get(name, 0)
    written = _integer(mark, bits, known)
    if not known:
        written += _integer(0x00, 7, len(name)) + name
    return written + _integer(0x00, 7, len(value)) + value
