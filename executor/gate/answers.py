"""Answers that the gate makes itself. They say so, in a header for programs and in words for people."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

from executor.gate.framing import answer_head
from executor.gate.rules import Reason, destination
from flows.wire import OutgoingRequest

OWN_TITLE = "Answered by Interlock"
"""Of each page that the gate makes."""

_WORDS = {
    Reason.PHASE_CLOSED: "the gate is closed",
    Reason.METHOD_OVERRIDE: "the request asks to be taken for another method than its own",
    Reason.PREFETCH: "nothing is loaded ahead of its use",
    Reason.WEBSOCKET: "the flow declares no such WebSocket for now",
    Reason.MALFORMED_TARGET: "the address can be read in two ways",
    Reason.HOST_MISMATCH: "the request names another host than its connection",
    Reason.SMUGGLING: "the request's framing can be read in two ways",
    Reason.PROBE_UNKNOWN: "this path proof was not expected, or was used before",
    Reason.WRITE_IN_READ_ONLY: "a view may only read",
    Reason.EFFECT_CLOSED: "this is the effect, and it may not leave now",
    Reason.BODY_UNREADABLE: "the body cannot be read, so it cannot be told from the effect",
    Reason.PREDICATE_FAILED: "a predicate of the flow failed on this request",
    Reason.NOT_DECLARED: "the flow declares no such write",
    Reason.AMBIGUOUS: "more than one declaration matches the request",
    Reason.EFFECT_COUNT: "the request does not hold exactly one effect",
    Reason.WRITE_AFTER_SHUT: "after the effect no write leaves",
    Reason.UNLISTED_DOCUMENT: "the view does not list this page",
    Reason.UNLISTED_FETCH: "the view does not list this address",
    Reason.READ_BUDGET_SPENT: "the view's reads are used up",
    Reason.BUDGET_SPENT: "one effect was already let through",
    Reason.CONTENT_CLOSED: "the effect is on its way, and no save may change what it makes public",
    Reason.MATERIAL_DIFFERS: "the content differs from what was approved",
    Reason.SESSION_DIFFERS: "the session differs from the one whose account was read",
    Reason.KEY_DIFFERS: "the request does not carry the operation's own key",
    Reason.LEDGER_REFUSED: "the ledger did not record it, so it may not leave",
    Reason.DOOR_FAILED: "the release failed before anything was written",
    Reason.HOST_UNREACHABLE: "the site cannot be reached",
    Reason.TLS_FAILED: "the site's certificate or encryption was not accepted",
    Reason.UPSTREAM_FAILED: "the site gave no usable answer",
}

_STATUS = {
    Reason.SMUGGLING: (400, b"Bad Request"),
    Reason.HOST_MISMATCH: (400, b"Bad Request"),
    Reason.MALFORMED_TARGET: (400, b"Bad Request"),
    Reason.HOST_UNREACHABLE: (502, b"Bad Gateway"),
    Reason.TLS_FAILED: (502, b"Bad Gateway"),
    Reason.UPSTREAM_FAILED: (502, b"Bad Gateway"),
}

_PAGES = frozenset({"document", "iframe", "frame", "embed", "object", "fencedframe"})


@dataclass(frozen=True)
class OwnAnswer:
    """One answer of the gate's own. `word` is the value of X-Interlock; `length` is that of the body, which is left out
    where the request is a HEAD."""

    status: int
    phrase: bytes
    content_type: bytes
    word: bytes
    body: bytes
    length: int

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        return [
            (b"content-type", self.content_type),
            (b"cache-control", b"no-store"),
            (b"x-content-type-options", b"nosniff"),
        ]

    def over_http1(self, *, close: bool) -> bytes:
        head = answer_head(self.status, self.phrase, self.headers, length=self.length, bodiless=False)
        own = b"X-Interlock: %b\r\n" % self.word + (b"Connection: close\r\n" if close else b"")
        return head[:-2] + own + b"\r\n" + self.body


def refusal(reason: Reason, request: OutgoingRequest | None) -> OwnAnswer:
    """For a request that did not pass, or whose site failed. `request` is None where the head could not be read."""
    status, phrase = _STATUS.get(reason, (403, b"Forbidden"))
    sentence = f"Answered by Interlock, not by the site: {_WORDS[reason]} ({reason})."
    page = request is not None and destination(request) in _PAGES
    body = _page(sentence) if page else sentence + "\n"
    return _own(status, phrase, body, reason.value, html=page, request=request)


def probe_answer(text: str, request: OutgoingRequest) -> OwnAnswer:
    return _own(200, b"OK", text, "path_proof", html=False, request=request)


def tunnel_refusal(reason: Reason) -> bytes:
    """For a CONNECT that is not taken: the browser shows the page no more than a failed connection."""
    return refusal(reason, None).over_http1(close=True)


def _own(status: int, phrase: bytes, text: str, word: str, *, html: bool, request: OutgoingRequest | None) -> OwnAnswer:
    body = text.encode("utf-8")
    kind = b"text/html; charset=utf-8" if html else b"text/plain; charset=utf-8"
    shown = b"" if request is not None and request.method == "HEAD" else body
    return OwnAnswer(status, phrase, kind, word.encode("ascii"), shown, len(body))


def _page(sentence: str) -> str:
    return (
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{OWN_TITLE}</title>"
        "<body style='font:16px/1.5 sans-serif;margin:3em;max-width:40em'>"
        f"<p>{escape(sentence)}</p></body></html>\n"
    )
