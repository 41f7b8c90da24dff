"""The fault vocabulary and how each one is acted out on the connection.

A fault decides two things only: whether and how the write is carried out, and what the client then sees on
the socket. It may not look into the site or the record.

"Before" in a name means that nothing was stored, "after" that the write was stored first.
"""

from __future__ import annotations

import asyncio
from enum import StrEnum
from typing import Protocol

from playground.messages import Response, html, json_response, redirect


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
    STATUS_409 = "status_409"
    STATUS_429_BEFORE = "status_429_before"
    STATUS_429_AFTER = "status_429_after"
    STATUS_502_BEFORE = "status_502_before"
    STATUS_502_AFTER = "status_502_after"
    ERROR_IN_200_BEFORE = "error_in_200_before"
    ERROR_IN_200_AFTER = "error_in_200_after"
    STALE_NONCE = "stale_nonce"
    """Answered 403: fetch another nonce and send it again. Some pages do so by themselves."""
    MODERATED = "moderated"
    """Held back for a moderator, and answered as if it were out."""
    TWICE = "twice"
    """The site itself stores two items for one request. With the argument "lost" it then says nothing."""
    SHORTENED = "shortened"
    """Stored with half of its title and body. With the argument "body" the title stays whole."""


REUSED = "reused"
"""Argument that restricts a fault to requests that are not the first on their connection."""

DEFAULT_DELAY_S = 2.0
OTHER_PUBLISH = "/other-publish"

RETRY_AFTER_S = 3
LOST_TOO = "lost"
BODY_ONLY = "body"
STALE_NONCE_CODE = "STALE_NONCE"
CONFLICT_CODE = "CONFLICT"

BAD_REASONS = {
    408: "Request timeout",
    409: "Conflict",
    429: "Too many requests",
    500: "Internal server error",
    502: "Bad gateway",
}


class Shorten(StrEnum):
    """What is cut when a write is stored."""

    NOTHING = "nothing"
    BODY = "body"
    ALL = "all"


class CarryOut(Protocol):
    """Store the write and give the answer that it earned."""

    def __call__(self, *, queued: bool = False, pretend: bool = False, shorten: Shorten = Shorten.NOTHING) -> Response:
        """`queued` holds it back for review; with `pretend` the answer does not say so."""


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


async def perform(fault: Fault, argument: str | None, wire: Wire, carry_out: CarryOut, *, as_json: bool) -> None:
    """Act the fault out. `as_json` says in what form the client expects its answers."""
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
        case Fault.STATUS_409:
            await wire.answer(_conflict(as_json))
        case Fault.STATUS_429_BEFORE | Fault.STATUS_429_AFTER:
            if fault is Fault.STATUS_429_AFTER:
                carry_out()
            await wire.answer(_bad(429).with_header("Retry-After", str(RETRY_AFTER_S)))
        case Fault.STATUS_502_BEFORE:
            await wire.answer(_bad(502))
        case Fault.STATUS_502_AFTER:
            carry_out()
            await wire.answer(_bad(502))
        case Fault.ERROR_IN_200_BEFORE:
            await wire.answer(_error_in_200(as_json))
        case Fault.ERROR_IN_200_AFTER:
            carry_out()
            await wire.answer(_error_in_200(as_json))
        case Fault.STALE_NONCE:
            await wire.answer(_stale_nonce(as_json))
        case Fault.MODERATED:
            await wire.answer(carry_out(queued=True, pretend=True))
        case Fault.TWICE:
            response = carry_out()
            carry_out()
            await (wire.hold() if argument == LOST_TOO else wire.answer(response))
        case Fault.SHORTENED:
            await wire.answer(carry_out(shorten=Shorten.BODY if argument == BODY_ONLY else Shorten.ALL))


def _bad(status: int) -> Response:
    reason = BAD_REASONS[status]
    return html(f"<!doctype html><title>{reason}</title><h1>{status} {reason}</h1>", status)


def _error_in_200(as_json: bool) -> Response:
    said = "Something went wrong."
    if as_json:
        return json_response({"data": None, "error": said, "errors": [{"message": said}]})
    return html(f"<!doctype html><title>Error</title><h1>Error</h1><p>{said}</p>")


def _conflict(as_json: bool) -> Response:
    said = "Somebody else has changed it meanwhile."
    return _coded(409, CONFLICT_CODE, said) if as_json else _bad(409)


def _stale_nonce(as_json: bool) -> Response:
    said = "The nonce is not valid any more."
    if as_json:
        return _coded(403, STALE_NONCE_CODE, said)
    return html(f"<!doctype html><title>Forbidden</title><h1>403 Forbidden</h1><p>{said}</p>", 403)


def _coded(status: int, code: str, said: str) -> Response:
    errors = [{"message": said, "extensions": {"code": code}}]
    return json_response({"data": None, "error": said, "errors": errors}, status)
