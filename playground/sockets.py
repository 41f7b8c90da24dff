"""The composer that shows who else is writing, over a WebSocket; and a message of it that publishes.

Every message that arrives is recorded as a write of its own, with the method WEBSOCKET. Says nothing about what a
browser may send.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Protocol

from wsproto.connection import SERVER, Connection
from wsproto.events import BytesMessage, CloseConnection, Ping, TextMessage

from playground.composers import NO_TITLE, Composers
from playground.messages import CommitKind, Plan, Request
from playground.pages import csrf_matches
from playground.truth import Truth

PRESENCE = "/live/presence"
METHOD = "WEBSOCKET"
"""Of the recorded messages."""

Routes = list[tuple[str, str, Callable[..., Plan]]]


class Live(Composers):
    """Plans for the pages and the form of this composer."""

    def routes(self) -> Routes:
        """Method, path and handler of each."""
        return [
            ("GET", "/live/new", lambda request: Plan.of(self._pages.composer(request, "live"))),
            ("POST", "/live/publish", self.publish),
            ("GET", "/live/(?:done|queued)", self.done),
        ]

    def done(self, request: Request) -> Plan:
        wanted = request.query.get("item", "")
        item = self._own(request, int(wanted)) if wanted.isascii() and wanted.isdecimal() else None
        return Plan.of(self._pages.done(request, item))

    def publish(self, request: Request) -> Plan:
        fields = request.fields()
        if not csrf_matches(request, fields.get("csrf", "")):
            return self._refused_token(request)
        title, body = fields.get("title", "").strip(), fields.get("body", "")
        if not title:
            return Plan.of(self._pages.composer(request, "live", error=NO_TITLE, title="", body=body))
        return self._create(request, "live", CommitKind.PUBLISH, title, body, self._to_done(request, "live"))


class Line(Protocol):
    """A connection after the handshake."""

    async def read(self) -> bytes:
        """Empty at the end."""

    async def write(self, data: bytes) -> None: ...


async def attend(line: Line, first: bytes, request: Request, truth: Truth, admit: Callable[[Request], int]) -> None:
    """Answer each message with who is there, until one side ends it. `admit` records a message and gives its number."""
    frames = Connection(SERVER)
    async for message in _messages(line, frames, first):
        data = message.encode("utf-8") if isinstance(message, str) else message
        number = admit(replace(request, method=METHOD, body=data))
        said = _read(message)
        answer: dict[str, object] = {"type": "present", "people": [request.account]}
        if said.get("type") == "publish":
            item = truth.create(
                account=request.account or "",
                title=str(said.get("title", "")),
                body=str(said.get("body", "")),
                state="published",
                variant="live",
                request_seq=number,
            )
            answer["published"] = item.id
        await line.write(frames.send(TextMessage(json.dumps(answer))))


async def _messages(line: Line, frames: Connection, first: bytes) -> AsyncIterator[str | bytes]:
    held: list[str | bytes] = []
    data = first or await line.read()
    while data:
        frames.receive_data(data)
        for event in frames.events():
            if isinstance(event, TextMessage | BytesMessage):
                held.append(event.data if isinstance(event, TextMessage) else bytes(event.data))
                if event.message_finished:
                    yield "".join(map(str, held)) if isinstance(event, TextMessage) else b"".join(map(_bytes, held))
                    held.clear()
            elif isinstance(event, Ping):
                await line.write(frames.send(event.response()))
            elif isinstance(event, CloseConnection):
                await line.write(frames.send(event.response()))
                return
        data = await line.read()


def _bytes(piece: str | bytes) -> bytes:
    return piece if isinstance(piece, bytes) else piece.encode("utf-8")


def _read(message: str | bytes) -> dict[str, object]:
    try:
        value = json.loads(message)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
