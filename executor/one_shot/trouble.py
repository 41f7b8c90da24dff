"""What a site says about itself while a run reads: that it is overloaded or down, and when to come again (B6).

Heard from the browser, beside everything else. It decides nothing about the run that hears it; the time until the next
one rests on it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from playwright.async_api import Response

from executor.gate.rules import Reason

OVERLOADED_OR_DOWN = frozenset({429, 502, 503, 504})
"""RFC 6585 section 4, RFC 9110 section 15.6: the request may be answered later."""
_NOT_REACHED = frozenset({Reason.HOST_UNREACHABLE.value, Reason.TLS_FAILED.value, Reason.UPSTREAM_FAILED.value})
_READS = frozenset({"document", "fetch", "xhr"})
LONGEST_RETRY_AFTER_S = 24 * 3600.0
"""A site that asks for more is asked again after a day: somebody should have looked by then."""


@dataclass
class SiteTrouble:
    """Of one run. `hear` is a listener for the browser's answers."""

    unavailable: bool = False
    retry_after_s: float | None = None

    def hear(self, response: Response) -> None:
        if response.status not in OVERLOADED_OR_DOWN or response.request.resource_type not in _READS:
            return
        headers = response.headers
        by_gate = headers.get("x-interlock")
        if by_gate is not None and by_gate not in _NOT_REACHED:
            return
        self.unavailable = True
        asked = retry_after(headers.get("retry-after", ""), now=datetime.now(UTC))
        if asked is not None:
            self.retry_after_s = max(asked, self.retry_after_s or 0.0)


def retry_after(value: str, *, now: datetime) -> float | None:
    """Seconds until the time that a `Retry-After` names (RFC 9110 section 10.2.3: a date, or seconds), at most a day;
    None for one that names no time to come."""
    text = value.strip()
    if text.isascii() and text.isdecimal():
        seconds = float(text[:9])
    else:
        try:
            when = parsedate_to_datetime(text)
        except ValueError:
            return None
        seconds = (when.replace(tzinfo=when.tzinfo or UTC) - now).total_seconds()
    return min(seconds, LONGEST_RETRY_AFTER_S) if seconds > 0 else None
