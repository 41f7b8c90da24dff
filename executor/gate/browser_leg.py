"""What one exchange needs of the browser's side, whichever version of HTTP the browser speaks. Types only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from executor.gate.answers import OwnAnswer
from executor.gate.stream import ByteStream
from executor.gate.upstream import AnswerHead


class BrowserGone(ConnectionError):
    """The browser closed its connection, or gave up this request."""


class BodyFault(Exception):
    """The body is not framed as its head says. The message never quotes it (A11)."""


class BrowserLeg(Protocol):
    """One request of the browser's, and the place for its answer."""

    @property
    def on_gone(self) -> list[Callable[[], None]]:
        """Each is called once when the browser can get no answer any more."""

    @property
    def is_gone(self) -> bool: ...

    @property
    def keeps_alive(self) -> bool:
        """Whether another request may follow where this one came from."""

    async def piece(self) -> bytes:
        """The next piece of the body, empty at its end. Raises `BodyFault`, `BrowserGone`, and `TimeoutError` when
        nothing comes for too long."""

    def answer(self, own: OwnAnswer, *, unread: bool = False) -> None:
        """Give an answer of the gate's own, whole. `unread`: the request was not taken to its end, so that nothing
        can follow it."""

    def begin(self, head: AnswerHead) -> None:
        """The head of the site's answer; it goes out with the first piece."""

    def give(self, data: bytes, *, ended: bool) -> None:
        """A piece of its body, in order; `ended` with the last, which may be empty."""

    async def drain(self) -> None:
        """Wait until the browser has taken so much that more may follow. Raises `StreamLost` when it is gone."""

    def bare(self) -> ByteStream | None:
        """The connection itself, for another protocol to go on over; None where other requests share it."""

    def cut(self) -> None:
        """What was given is not whole, and the browser must see that."""

    def abort(self) -> None:
        """End without an answer."""
