"""The anchor: how far the ledger had come, kept outside of it, so that a ledger that went back in time is noticed (C8).

A small file beside the evidence holds the ledger's id, its number of events and the running head at that number. It is
replaced as a whole and synced before anything that follows it may leave the machine.

What it does not notice: events lost since it was last advanced (it is advanced by every claim and release, and where it
can be by every stop and revocation); an older ledger restored together with an older anchor; an anchor that was
removed, which looks like a ledger that is new to this place.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from enum import StrEnum
from pathlib import Path

from executor.ledger.ledger import AnchorUnreadable, LedgerIdentity, NotAPerson
from executor.model.operation import Actor, ActorKind


class AnchorState(StrEnum):
    """How a ledger stands to its anchor."""

    FRESH = "fresh"
    """There is no anchor yet."""
    AGREES = "agrees"
    AHEAD = "ahead"
    """The ledger has what the anchor saw, and more."""
    BEHIND = "behind"
    """The ledger lacks events that the anchor saw, or has others in their place."""
    OTHER_LEDGER = "other_ledger"

    @property
    def may_claim(self) -> bool:
        return self in (AnchorState.FRESH, AnchorState.AGREES, AnchorState.AHEAD)


@dataclass(frozen=True, slots=True, kw_only=True)
class Acceptance:
    """A person's word that the ledger may go on as it is, and where ledger and anchor stood then."""

    by: str
    why: str
    at: str
    ledger: str
    events: int
    expected_ledger: str
    expected_events: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Anchored:
    """What the file holds."""

    id: str
    events: int
    head: str
    accepted: tuple[Acceptance, ...] = ()


class Anchor:
    """One anchor file. Safe to use from several processes."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> Anchored | None:
        """What was last kept, None when nothing was. Raises `AnchorUnreadable`."""
        try:
            stored = json.loads(self._path.read_text(encoding="utf-8"))
            return Anchored(
                id=str(stored["id"]),
                events=int(stored["events"]),
                head=str(stored["head"]),
                accepted=tuple(Acceptance(**entry) for entry in stored["accepted"]),
            )
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise AnchorUnreadable(
                f"the ledger's anchor {self._path} cannot be read ({type(error).__name__}). Restore it; without "
                "it nobody can tell whether the ledger is a restored copy."
            ) from error

    def check(self, identity: LedgerIdentity, head_at: Callable[[int], str | None]) -> AnchorState:
        """How the ledger stands to its anchor. `head_at` gives the ledger's running head after its n-th event."""
        return compare(self.read(), identity, head_at)

    def advance(self, identity: LedgerIdentity) -> None:
        """Keep that the ledger has come this far. Never goes back and never changes ledgers: another process may have
        been faster. The caller has checked the ledger against the anchor in the transaction that it committed."""
        with self._locked():
            kept = self.read()
            if kept is None:
                self._write(Anchored(id=identity.id, events=identity.events, head=identity.head))
            elif kept.id == identity.id and kept.events < identity.events:
                self._write(replace(kept, events=identity.events, head=identity.head))

    def accept(self, identity: LedgerIdentity, *, by: Actor, why: str, at: datetime) -> Acceptance:
        """Record a person's word that this ledger may go on although it is not what the anchor saw; from then on the
        anchor follows it. What the ledger lost stays lost: whatever ran in the gap must be taken as unknown."""
        if by.kind is not ActorKind.PERSON:
            raise NotAPerson(f"{by} is not a person, and only a person may accept a restored ledger.")
        with self._locked():
            kept = self.read()
            acceptance = Acceptance(
                by=str(by),
                why=why,
                at=at.isoformat(),
                ledger=identity.id,
                events=identity.events,
                expected_ledger=kept.id if kept else identity.id,
                expected_events=kept.events if kept else 0,
            )
            self._write(
                Anchored(
                    id=identity.id,
                    events=identity.events,
                    head=identity.head,
                    accepted=(*(kept.accepted if kept else ()), acceptance),
                )
            )
        return acceptance

    @contextmanager
    def _locked(self) -> Iterator[None]:
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(self._path.with_name(self._path.name + ".lock"), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)

    def _write(self, kept: Anchored) -> None:
        partial = self._path.with_name(f".{self._path.name}.{secrets.token_hex(8)}")
        try:
            with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
                json.dump(asdict(kept), file, indent=1)
                file.flush()
                os.fsync(file.fileno())
            partial.replace(self._path)
        finally:
            partial.unlink(missing_ok=True)
        folder = os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def compare(kept: Anchored | None, identity: LedgerIdentity, head_at: Callable[[int], str | None]) -> AnchorState:
    """Pure: how a ledger stands to what was kept. A count alone would not do: a restored copy soon has more events
    than the anchor saw, but not the same."""
    if kept is None:
        return AnchorState.FRESH
    if kept.id != identity.id:
        return AnchorState.OTHER_LEDGER
    if kept.events > identity.events or (kept.events and head_at(kept.events) != kept.head):
        return AnchorState.BEHIND
    return AnchorState.AGREES if kept.events == identity.events else AnchorState.AHEAD
