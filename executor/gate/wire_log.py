"""The wire log: what asked to leave a context, what was decided, and what did leave.

Append-only: entries are never removed or reordered, and a later fact (bytes left, an answer came) only fills a field
that was empty. Holds no header values but the content type, no bodies, and no cookies or credentials (A11).
"""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from urllib.parse import unquote_plus

from executor.gate.rules import Decision, Kind, Phase, Reason
from flows.wire import OutgoingRequest

WRITES = frozenset({Kind.SUPPORTING, Kind.TRAILING, Kind.LOGIN, Kind.WATCHED, Kind.EFFECT, Kind.WEBSOCKET})

_SECRET_NAME = re.compile(r"nonce|token|secret|passw|pwd|sig|auth|session|sid|key|code|state|csrf|jwt", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One request, or a marker (`mark` set, no method). `monotonic`, `left_from` and `left_until` are seconds of
    `time.monotonic()`; while bytes are still leaving, `left_from` is set and `left_until` is not."""

    sequence: int
    at: datetime
    monotonic: float
    phase: Phase
    method: str = ""
    url: str = ""
    kind: Kind | None = None
    reason: Reason | None = None
    write: str | None = None
    content_type: str = ""
    body_size: int = 0
    body_sha256: str = ""
    left_from: float | None = None
    left_until: float | None = None
    status: int | None = None
    complete: bool | None = None
    """Whether the answer came whole; None while there is none."""
    answered_by_gate: bool = False
    note: str = ""
    messages_out: int = 0
    """Over a WebSocket: whole messages of the page that left, and whole messages of the site that came."""
    messages_in: int = 0
    mark: str | None = None

    @property
    def bytes_out(self) -> bool:
        """Whether any byte may have left the machine."""
        return self.left_from is not None


class WireLog:
    """The log of one context, or of several that follow each other. Used on the event loop only."""

    def __init__(self) -> None:
        self._entries: list[Entry] = []
        self.safe_reads: Counter[Phase] = Counter()
        """Safe requests that passed, by phase; of these only documents have entries."""

    def __iter__(self) -> Iterator[Entry]:
        return iter(tuple(self._entries))

    def __len__(self) -> int:
        return len(self._entries)

    def __getitem__(self, sequence: int) -> Entry:
        return self._entries[sequence]

    @property
    def entries(self) -> tuple[Entry, ...]:
        return tuple(self._entries)

    def record(
        self,
        phase: Phase,
        request: OutgoingRequest,
        decision: Decision,
        *,
        body_size: int | None = None,
        body_sha256: str = "",
        note: str = "",
    ) -> int:
        """Append a decided request; gives back its sequence number. `body_size` and digest come from the spool."""
        return self._append(
            phase=phase,
            method=request.method,
            url=shown_url(request.url),
            kind=decision.kind,
            reason=decision.reason,
            write=decision.declared,
            content_type=request.content_type,
            body_size=len(request.body) if body_size is None else body_size,
            body_sha256=body_sha256,
            note=note,
        )

    def record_refused_head(self, phase: Phase, method: str, url: str, reason: Reason, note: str) -> int:
        """Append a request that was refused before it was one: malformed, or for another host."""
        return self._append(phase=phase, method=method, url=shown_url(url), kind=Kind.REFUSED, reason=reason, note=note)

    def record_refused_message(
        self, phase: Phase, connection: Entry, reason: Reason, note: str, *, size: int, sha256: str
    ) -> int:
        """Append a message of the page over an open WebSocket (its entry is `connection`) that was not let out."""
        return self._append(
            phase=phase,
            method="MESSAGE",
            url=connection.url,
            kind=Kind.REFUSED,
            reason=reason,
            write=connection.write,
            body_size=size,
            body_sha256=sha256,
            note=note,
        )

    def message_left(self, sequence: int) -> None:
        """A message of the page is about to be handed to the system."""
        if not self._entries[sequence].bytes_out:
            self.leaving(sequence)
        self._amend(sequence, messages_out=self._entries[sequence].messages_out + 1)

    def message_came(self, sequence: int) -> None:
        self._amend(sequence, messages_in=self._entries[sequence].messages_in + 1)

    def mark(self, name: str, phase: Phase) -> Entry:
        """Append a marker, for instance the gesture."""
        return self._entries[self._append(phase=phase, mark=name)]

    def decided_again(self, sequence: int, phase: Phase, decision: Decision) -> None:
        """The phase changed before a byte had left: the new decision is the one that counts."""
        earlier = self._entries[sequence]
        self._amend(
            sequence,
            phase=phase,
            kind=decision.kind,
            reason=decision.reason,
            write=decision.declared,
            note=f"decided again; was {earlier.kind} in phase {earlier.phase}",
        )

    def leaving(self, sequence: int) -> None:
        """Bytes are about to be handed to the system: from here on they may have left."""
        self._amend(sequence, left_from=time.monotonic())

    def left(self, sequence: int) -> None:
        self._amend(sequence, left_until=time.monotonic())

    def answered(self, sequence: int, status: int | None, *, complete: bool, by_gate: bool = False) -> None:
        self._amend(sequence, status=status, complete=complete, answered_by_gate=by_gate)

    def refused(self, sequence: int, reason: Reason, note: str = "") -> None:
        """It was let through by the rules and refused by the door, the caller or the network. `kind` stays what the
        rules said."""
        self._amend(sequence, reason=reason)
        if note:
            self.note(sequence, note)

    def note(self, sequence: int, text: str) -> None:
        earlier = self._entries[sequence].note
        self._amend(sequence, note=f"{earlier}; {text}" if earlier else text)

    def writes_left_since(self, *, monotonic: float) -> tuple[Entry, ...]:
        """Writes of which a byte left, or may have left, at or after a moment (the `monotonic` of a marker); one that
        had begun before and was still leaving counts."""
        return tuple(
            entry
            for entry in self._entries
            if entry.kind in WRITES
            and entry.left_from is not None
            and (entry.left_until is None or entry.left_until >= monotonic)
        )

    def as_json_lines(self) -> str:
        """One JSON object a line, in order; times in UTC."""
        return "".join(json.dumps(_shown(entry), sort_keys=True, ensure_ascii=False) + "\n" for entry in self._entries)

    def _append(self, **fields: object) -> int:
        sequence = len(self._entries)
        self._entries.append(
            Entry(sequence=sequence, at=datetime.now(UTC), monotonic=time.monotonic(), **fields)  # type: ignore[arg-type]
        )
        return sequence

    def _amend(self, sequence: int, **fields: object) -> None:
        self._entries[sequence] = replace(self._entries[sequence], **fields)  # type: ignore[arg-type]


def shown_url(url: str) -> str:
    """The URL without a user's name and password, and with the values masked that look like secrets by their names;
    the path and other values stay."""
    path, mark, query = url.partition("?")
    path = re.sub(r"^([^/]*//)?[^/]*@", r"\1[masked]@", path)
    parts = []
    for part in query.split("&"):
        name, equals, _ = part.partition("=")
        parts.append(f"{name}=[masked]" if equals and _SECRET_NAME.search(unquote_plus(name)) else part)
    return path + mark + "&".join(parts)


def _shown(entry: Entry) -> dict[str, object]:
    values: dict[str, object] = {"sequence": entry.sequence, "at": entry.at.isoformat(), "phase": entry.phase.value}
    if entry.mark is not None:
        return {**values, "mark": entry.mark}
    return {
        **values,
        "method": entry.method,
        "url": entry.url,
        "kind": entry.kind,
        "reason": entry.reason,
        "write": entry.write,
        "content_type": entry.content_type,
        "body_size": entry.body_size,
        "body_sha256": entry.body_sha256,
        "bytes_out": entry.bytes_out,
        "status": entry.status,
        "complete": entry.complete,
        "answered_by_gate": entry.answered_by_gate,
        "note": entry.note,
    } | ({"messages_out": entry.messages_out, "messages_in": entry.messages_in} if entry.kind is Kind.WEBSOCKET else {})
