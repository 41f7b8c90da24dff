"""The fault vocabulary and how each one is acted out on the connection.

A fault decides two things only: whether the write is carried out, and what the client then sees on the
socket. It may not look into the site or the record.

"Before" in a name means that nothing was stored, "after" that the write was stored first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import StrEnum
from typing import Protocol

from playground.messages import Response, html, redirect


class Fault(StrEnum):
    """One way in which an answer goes wrong."""

    LATE = "late"
    LOST = "lost"
    LOST_BEFORE = "lost_before"
    RESET_AFTER = "reset_after"
    RESET_BEFORE = "reset_before"
    CLOSE_AFTER = "close_after"
    CLOSE_BEFORE = "close_before"
    TRUNCATED = "truncated"
    STATUS_408_AFTER = "status_408_after"
    STATUS_500_BEFORE = "status_500_before"
    STATUS_500_AFTER = "status_500_after"
    NO_CONTENT = "no_content"
    REDIRECT_LOGIN = "redirect_login"
    REDIRECT_307 = "redirect_307"
    QUEUED = "queued"


REUSED = "reused"
"""Argument that restricts a fault to requests that are not the first on their connection."""

DEFAULT_DELAY_S = 2.0
OTHER_PUBLISH = "/other-publish"

BAD_REASONS = {408: "Request timeout", 500: "Internal server error"}


class Wire(Protocol):
    """What a fault can do to the connection that carried the request."""

    async def answer(self, response: Response, *, close: bool = False) -> None:
        """Send the whole response; with `close`, say `Connection: close` and end the connection after it."""

    async def answer_in_part(self, response: Response) -> None:
        """Announce more body than is sent, then end the connection."""

    async def hold(self) -> None:
        """Say nothing until the client goes away."""

    def reset(self) -> None:
        """End the connection with a TCP reset (SO_LINGER 0)."""

    def close(self) -> None:
        """End the connection in order (FIN; on TLS after close_notify)."""


def delay_of(argument: str | None) -> float:
    """Seconds that a late answer waits: the argument when it is a number, else DEFAULT_DELAY_S."""
    if argument is None or argument == REUSED:
        return DEFAULT_DELAY_S
    return float(argument)


async def perform(fault: Fault, argument: str | None, wire: Wire, carry_out: Callable[..., Response]) -> None:
    """Act the fault out. `carry_out(queued=False)` stores the write and gives the answer that it earned."""
    match fault:
        case Fault.LATE:
            response = carry_out()
            await asyncio.sleep(delay_of(argument))
            await wire.answer(response)
        case Fault.LOST:
            carry_out()
            await wire.hold()
        case Fault.LOST_BEFORE:
            await wire.hold()
        case Fault.RESET_AFTER:
            carry_out()
            wire.reset()
        case Fault.RESET_BEFORE:
            wire.reset()
        case Fault.CLOSE_AFTER:
            carry_out()
            wire.close()
        case Fault.CLOSE_BEFORE:
            wire.close()
        case Fault.TRUNCATED:
            await wire.answer_in_part(carry_out())
        case Fault.STATUS_408_AFTER:
            carry_out()
            await wire.answer(_bad(408), close=True)
        case Fault.STATUS_500_BEFORE:
            await wire.answer(_bad(500))
        case Fault.STATUS_500_AFTER:
            carry_out()
            await wire.answer(_bad(500))
        case Fault.NO_CONTENT:
            carry_out()
            await wire.answer(Response(204))
        case Fault.REDIRECT_LOGIN:
            await wire.answer(redirect("/login"))
        case Fault.REDIRECT_307:
            target = OTHER_PUBLISH if argument in (None, REUSED) else str(argument)
            await wire.answer(redirect(target, 307))
        case Fault.QUEUED:
            await wire.answer(carry_out(queued=True))


def _bad(status: int) -> Response:
    reason = BAD_REASONS[status]
    return html(f"<!doctype html><title>{reason}</title><h1>{status} {reason}</h1>", status)
