"""One declared WebSocket between the page and its site: messages read, judged and passed on, until somebody ends it.

A message of the page leaves only whole, only when the declaration allows it, and only while the phase in which the
connection was opened holds; between that check and the handing over there is no await. What a message causes at the
site the gate cannot know, so the record names every such connection as a blind spot. Nothing is ever sent twice.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging

from wsproto.connection import CLIENT, SERVER, Connection, ConnectionState
from wsproto.events import BytesMessage, CloseConnection, Ping, TextMessage
from wsproto.frame_protocol import CloseReason

from executor.gate.limits import Limits
from executor.gate.rules import Phase, Reason
from executor.gate.stream import ByteStream, StreamLost
from executor.gate.wire_log import WireLog
from flows.effect import WebSocket

_log = logging.getLogger(__name__)

_POLITE = (CloseReason.NORMAL_CLOSURE, CloseReason.GOING_AWAY)
"""Codes of the page's that are passed on. Others, and every reason, are text of the page's choice: they stay here."""


class WebSocketRelay:
    """`run` carries until the end, whoever brings it about. `cut` ends it now, `close` politely."""

    def __init__(
        self, *, page: ByteStream, site: ByteStream, declared: WebSocket, log: WireLog, sequence: int, limits: Limits
    ) -> None:
        self._page = page
        self._site = site
        self._declared = declared
        self._log = log
        self._sequence = sequence
        self._limits = limits
        self._with_page = Connection(SERVER)
        self._with_site = Connection(CLIENT)
        self._over = asyncio.Event()
        self._gone = asyncio.Event()
        self._held: list[str | bytes] = []
        self._held_size = 0
        # However the connection ends, the system drops what the site has not taken by then.
        site.end_unsent(True)
        site.on_closed.append(self._nothing_leaves_any_more)

    async def run(self, first: bytes) -> None:
        """`first` is what the site sent together with its answer. Raises only cancellation."""
        from_site = asyncio.ensure_future(self._from_site(first))
        from_page = asyncio.ensure_future(self._from_page())
        for task in (from_site, from_page):
            task.add_done_callback(self._ended)
        try:
            await self._over.wait()
            # The site may answer the end with its own; what else it says is read and dropped.
            await asyncio.wait([from_site], timeout=self._limits.websocket_close_s)
        finally:
            self._finish("the connection was ended")
            for task in (from_site, from_page):
                task.cancel()
            await asyncio.gather(from_site, from_page, return_exceptions=True)
            self._drop_site()
            await self._site.wait_closed(1.0)
            self._page.close()
            self._gone.set()

    def cut(self) -> None:
        """Nothing of the page leaves any more, what the system still holds included. Takes no await."""
        self._finish("cut: the phase changed", to_site=None)
        self._drop_site()

    async def close(self) -> None:
        """Say goodbye to both sides, and return when the connection to the site is gone."""
        self._finish("closed by the gate", to_page=CloseReason.GOING_AWAY, to_site=CloseReason.GOING_AWAY)
        await self._gone.wait()

    # The end

    def _ended(self, task: asyncio.Task[None]) -> None:
        """One direction is over. A defect in it must end the other one too, which would go on unread."""
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("carrying the frames of a WebSocket failed", exc_info=error)
            self._finish("carrying its frames failed", to_page=None, to_site=None)

    def _finish(
        self,
        how: str,
        *,
        to_page: int | None = CloseReason.GOING_AWAY,
        to_site: int | None = CloseReason.GOING_AWAY,
        reason: str | None = None,
    ) -> None:
        """The first end that comes is the end: from here on no message leaves. None says nothing to that side."""
        if self._over.is_set():
            return
        self._over.set()
        self._log.note(self._sequence, how)
        for connection, stream, code, why in (
            (self._with_page, self._page, to_page, reason),
            (self._with_site, self._site, to_site, None),
        ):
            if code is not None and connection.state in (ConnectionState.OPEN, ConnectionState.REMOTE_CLOSING):
                stream.write(connection.send(CloseConnection(code, why)))

    def _drop_site(self) -> None:
        if self._with_site.state is ConnectionState.CLOSED and not self._site.may_still_send:
            self._site.end_unsent(False)  # both have said goodbye and everything has arrived
            self._site.close()
        else:
            self._site.abort()

    def _nothing_leaves_any_more(self) -> None:
        if self._log[self._sequence].bytes_out:
            self._log.left(self._sequence)

    # From the page

    async def _from_page(self) -> None:
        try:
            while not self._over.is_set():
                data = await self._page.read()
                if not data:
                    return self._finish("the page went away", to_page=None)
                self._with_page.receive_data(data)
                for event in self._with_page.events():
                    if self._over.is_set():
                        return None
                    if isinstance(event, CloseConnection):
                        return self._page_ends(event)
                    if isinstance(event, Ping):
                        self._page.write(self._with_page.send(event.response()))
                    elif isinstance(event, TextMessage | BytesMessage):
                        await self._take(event)
        except StreamLost as error:
            self._finish(f"the connection was lost: {error}")
        except TimeoutError:
            self._finish("the site took nothing for too long")

    def _page_ends(self, event: CloseConnection) -> None:
        if self._with_page.state is ConnectionState.OPEN:  # not closed: it could not be read
            self._finish("the page's frames cannot be read", to_page=event.code)
            return
        code = event.code if event.code in _POLITE else CloseReason.NORMAL_CLOSURE
        self._finish("closed by the page", to_page=CloseReason.NORMAL_CLOSURE, to_site=code)

    async def _take(self, event: TextMessage | BytesMessage) -> None:
        if event.data:  # fragments without a byte count for nothing, and a page may send them for ever
            self._held.append(event.data if isinstance(event.data, str) else bytes(event.data))
        self._held_size += len(event.data)
        if self._held_size > self._limits.websocket_message_bytes:
            self._refuse(b"", Reason.BODY_UNREADABLE, "it is too large to be read", CloseReason.MESSAGE_TOO_BIG)
            return
        if not event.message_finished:
            return
        whole: str | bytes
        if isinstance(event, TextMessage):
            whole = "".join(piece for piece in self._held if isinstance(piece, str))
        else:
            whole = b"".join(piece for piece in self._held if isinstance(piece, bytes))
        self._held, self._held_size = [], 0
        try:
            allowed = self._declared.sends(whole) is True
        except Exception:  # noqa: BLE001  a flow author's predicate may raise anything, and anything must refuse
            _log.warning("the predicate of the WebSocket %s failed", self._declared.name)
            allowed = False
        if not allowed:
            data = whole.encode("utf-8") if isinstance(whole, str) else whole
            self._refuse(data, Reason.NOT_DECLARED, "it is not among what the flow lets the page say")
            return
        # From the check of `_over` in the caller to here there was no await.
        message = TextMessage(whole) if isinstance(whole, str) else BytesMessage(whole)
        self._log.message_left(self._sequence)
        self._site.write(self._with_site.send(message))
        async with asyncio.timeout(self._limits.upstream_write_stall_s):
            await self._site.drain()

    def _refuse(self, data: bytes, why: Reason, note: str, code: int = CloseReason.POLICY_VIOLATION) -> None:
        self._log.record_refused_message(
            Phase.PREPARE,
            self._log[self._sequence],
            why,
            f"a message over the WebSocket {self._declared.name}: {note}",
            size=len(data) or self._held_size,
            sha256=hashlib.sha256(data).hexdigest() if data else "",
        )
        self._finish("closed by the gate: a message was refused", to_page=code, reason="Interlock: not let out")

    # From the site

    async def _from_site(self, first: bytes) -> None:
        try:
            data = first or await self._site.read()
            while data:
                self._with_site.receive_data(data)
                for event in self._with_site.events():
                    if isinstance(event, CloseConnection):
                        return self._site_ends(event)
                    if not self._over.is_set():
                        await self._pass_on(event)
                data = await self._site.read()
            self._finish("the site went away", to_site=None)
        except StreamLost as error:
            self._finish(f"the connection was lost: {error}", to_site=None)
        except TimeoutError:
            self._finish("one side took nothing for too long")

    def _site_ends(self, event: CloseConnection) -> None:
        if self._with_site.state is ConnectionState.OPEN:  # not closed: it could not be read
            self._finish("the site's frames cannot be read", to_page=CloseReason.INTERNAL_ERROR, to_site=event.code)
            return
        said = event.code if event.code in _SENDABLE or 3000 <= event.code < 5000 else CloseReason.NORMAL_CLOSURE
        self._finish("closed by the site", to_page=said, to_site=CloseReason.NORMAL_CLOSURE, reason=event.reason)

    async def _pass_on(self, event: object) -> None:
        """Messages in the pieces in which they come; a ping is answered here."""
        async with asyncio.timeout(self._limits.upstream_write_stall_s):
            if isinstance(event, Ping):
                self._site.write(self._with_site.send(event.response()))
                await self._site.drain()
            elif isinstance(event, TextMessage | BytesMessage):
                if event.message_finished:
                    self._log.message_came(self._sequence)
                self._page.write(self._with_page.send(event))
                await self._page.drain()


_SENDABLE = frozenset(
    {
        CloseReason.NORMAL_CLOSURE,
        CloseReason.GOING_AWAY,
        CloseReason.PROTOCOL_ERROR,
        CloseReason.UNSUPPORTED_DATA,
        CloseReason.INVALID_FRAME_PAYLOAD_DATA,
        CloseReason.POLICY_VIOLATION,
        CloseReason.MESSAGE_TOO_BIG,
        CloseReason.INTERNAL_ERROR,
    }
)
"""Codes that may stand in a close frame (RFC 6455 section 7.4.1)."""
