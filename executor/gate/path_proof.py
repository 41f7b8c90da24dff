"""The path proof (C10): a one-time address on a host, which only a gate that the request passes through can answer.

A value object of one gate. Sends nothing; a probe never reaches the site.
"""

from __future__ import annotations

import secrets

from flows.wire import OutgoingRequest

PREFIX = "/.well-known/interlock/"


class PathProof:
    def __init__(self) -> None:
        self._expected: dict[str, str] = {}
        self._proved: set[str] = set()

    def expect(self, origin: str) -> str:
        """A new address on `origin` (128 random bits), good for one GET."""
        url = f"{origin}{PREFIX}{secrets.token_hex(16)}"
        self._expected[url] = secrets.token_hex(16)
        return url

    def answer_to(self, url: str) -> str | None:
        """The text that the gate will answer at an address that it expects; None when it expects none there."""
        return self._expected.get(url)

    def take(self, request: OutgoingRequest) -> str | None:
        """The answer to a probe, once; None for anything else."""
        text = self._expected.pop(request.url, None) if request.method == "GET" else None
        if text is not None:
            self._proved.add(request.origin)
        return text

    def proved(self, origin: str) -> bool:
        return origin in self._proved

    @staticmethod
    def is_probe(request: OutgoingRequest) -> bool:
        """Whether the request is for the path proof's place, expected or not: such a one is never forwarded."""
        return request.path.startswith(PREFIX)
