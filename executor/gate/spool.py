"""Where a request body waits until it is whole: in memory while small, then in a temporary file that has no name.

Holds bytes, counts and digests them. Decides nothing, and never keeps a file behind.
"""

from __future__ import annotations

import asyncio
import hashlib
import tempfile
from collections.abc import AsyncIterator
from typing import IO

_PIECE = 1024 * 1024


class SpoolFull(Exception):
    """The body is larger than the gate, or the disk, takes."""


class Spool:
    """One body. File work happens in a thread: a slow disk must not stop the other connections."""

    def __init__(self, *, memory_bytes: int, total_bytes: int) -> None:
        self._memory_bytes = memory_bytes
        self._total_bytes = total_bytes
        self._held = bytearray()
        self._file: IO[bytes] | None = None
        self._digest = hashlib.sha256()
        self.size = 0

    @property
    def sha256(self) -> str:
        return self._digest.hexdigest()

    async def write(self, data: bytes) -> None:
        """Raises `SpoolFull`."""
        if self.size + len(data) > self._total_bytes:
            raise SpoolFull(f"the body is larger than {self._total_bytes} bytes")
        self.size += len(data)
        self._digest.update(data)
        self._held += data
        if self.size > self._memory_bytes and len(self._held) >= min(_PIECE, self._memory_bytes):
            await self._to_file()

    async def end(self) -> None:
        """The body is whole. From here on a full disk is no trouble any more. Raises `SpoolFull`."""
        if self._file is not None and self._held:
            await self._to_file()

    async def bytes_up_to(self, limit: int) -> bytes | None:
        """The whole body, or None when it is larger than `limit`."""
        if self.size > limit:
            return None
        if self._file is None:
            return bytes(self._held)
        return b"".join([piece async for piece in self.pieces()])

    async def pieces(self) -> AsyncIterator[bytes]:
        """The body from its beginning, in pieces of at most a mebibyte; after `end`. May be read several
        times, one at a time."""
        if self._file is None:
            for start in range(0, len(self._held), _PIECE):
                yield bytes(self._held[start : start + _PIECE])
            return
        file = self._file
        await asyncio.to_thread(file.seek, 0)
        while piece := await asyncio.to_thread(file.read, _PIECE):
            yield piece

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
        self._held.clear()

    async def _to_file(self) -> None:
        held = bytes(self._held)
        self._held.clear()

        def append() -> None:
            if self._file is None:
                # Unlinked from the start and readable by this user alone; close() closes it.
                self._file = tempfile.TemporaryFile(prefix="interlock-spool-")  # noqa: SIM115
            self._file.seek(0, 2)
            self._file.write(held)

        try:
            await asyncio.to_thread(append)
        except OSError as error:
            raise SpoolFull(f"the disk does not take the body: {error}") from error
