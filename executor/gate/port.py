"""The one door of the gate, as a type: what the gate hands over when a request matches the effect, and what it gets
back. The gate classifies and carries; whether a candidate leaves is decided on the other side of this port, in
`executor.one_shot.release`. Types only.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from executor.gate.rules import Reason
from flows.wire import Answer, OutgoingRequest


class ConnectStage(StrEnum):
    RESOLVE = "resolve"
    CONNECT = "connect"
    PROXY = "proxy"
    """Reaching the proxy of the settings, or its answer: finding the site's address is its task then."""
    TLS = "tls"


class ConnectFailed(Exception):
    """The connection was not made: no byte of the request was written. The message names the host, the stage and the
    error."""

    def __init__(self, message: str, *, stage: ConnectStage) -> None:
        super().__init__(message)
        self.stage = stage


class WriteFailed(Exception):
    """Writing the effect request failed. `nothing_written` is true only when not one byte was handed to the system,
    which is a proof that nothing left; in every other case the request may have arrived."""

    def __init__(self, message: str, *, nothing_written: bool) -> None:
        super().__init__(message)
        self.nothing_written = nothing_written


class Connection(Protocol):
    """A fresh connection to the effect's host, TLS finished, nothing written yet. Used for one request, then closed."""

    async def write(self) -> None:
        """Write the whole spooled request. Raises `WriteFailed`; also, with nothing written, when the gate's phase
        changed since the candidate was decided."""

    async def read_answer(self, deadline_s: float) -> Answer | None:
        """The answer, skipping 1xx; `complete` is false when it was cut, ill-framed, too large, or ended only by the
        end of the connection (as a truncated one does); None when the connection ended or the deadline passed
        without a status line. Never raises for what the other side does."""

    def close(self) -> None: ...


class Candidate(Protocol):
    """One request that matches the effect, wholly spooled: no more bytes are needed from the browser."""

    @property
    def request(self) -> OutgoingRequest: ...

    @property
    def sequence(self) -> int:
        """Its number in the wire log."""

    async def connect(self) -> Connection:
        """Open a connection that nothing else has used or will use. Raises `ConnectFailed`."""


@dataclass(frozen=True)
class Relay:
    """The answer goes on to the browser as it came."""

    answer: Answer


@dataclass(frozen=True)
class Refuse:
    """Nothing left. The gate answers the browser itself, with `X-Interlock: <reason>`."""

    reason: Reason


@dataclass(frozen=True)
class Hang:
    """It may have left and there is no answer to relay: the browser's request stays open until the gate lets go, so
    that the page neither re-sends nor shows a failure that nobody knows of."""


class EffectDoor(Protocol):
    """Called once for every candidate, in order of arrival, as its own task. The budget must be taken before the
    first await."""

    async def __call__(self, candidate: Candidate) -> Relay | Refuse | Hang: ...
