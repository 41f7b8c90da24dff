"""What the gate has learnt about sites on the way: which of them are spoken to in HTTP/2.

Known from connections that were needed anyway; nothing is dialled to find out, and nothing rests on it but speed.
"""

from __future__ import annotations

import math

from executor.gate.dialling import HTTP_1, HTTP_2, Dialled, Site
from executor.gate.limits import Limits


class SiteProtocols:
    """One for a gate, or shared by gates whose connections take the same routes."""

    def __init__(self) -> None:
        self._http2: set[Site] = set()

    def learn(self, site: Site, dialled: Dialled) -> None:
        """HTTP/2 is offered to distant sites only, so one that took it is both."""
        if dialled.protocol == HTTP_2[0]:
            self._http2.add(site)
        else:
            self._http2.discard(site)

    def speaks_http2(self, site: Site) -> bool:
        """Whether the latest connection for reads speaks it: then the browser is offered it too."""
        return site in self._http2


def offer_for_reads(round_trip_s: float | None, limits: Limits) -> tuple[str, ...]:
    """What to offer a site at such a distance; one whose distance is not known counts as far."""
    near = round_trip_s is not None and round_trip_s < limits.http2_beyond_s
    return HTTP_1 if near or limits.http2_beyond_s == math.inf else HTTP_2
