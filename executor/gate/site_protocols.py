"""What the gate has learnt about sites on the way: which of them are spoken to in HTTP/2.

Known from connections that were needed anyway; nothing is dialled to find out, and nothing rests on it but speed.
"""

from __future__ import annotations


class SiteProtocols:
    """One for all gates whose connections take the same routes."""

    def __init__(self) -> None:
        self._http2: set[tuple[str, int]] = set()

    def learn(self, host: str, port: int, *, http2: bool) -> None:
        """What the latest connection for reads agreed on. HTTP/2 is offered to distant sites only, so that one that
        took it is both."""
        if http2:
            self._http2.add((host, port))
        else:
            self._http2.discard((host, port))

    def speaks_http2(self, host: str, port: int) -> bool:
        """Whether the browser should be offered it as well."""
        return (host, port) in self._http2
