"""The composer with a client key: the site remembers which notice a key made, and makes no second one for it.

It refuses other fields under a key that it remembers, and forgets a key when its lifetime is over. A test may shorten
the lifetime, or let the site only claim that it honours keys. What is kept about keys lies beside the record, in the
same file.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from playground.composers import NO_TITLE, Composers
from playground.hazards import Place
from playground.messages import CommitKind, Plan, Request, Response, json_response
from playground.pages import Pages
from playground.records import Item
from playground.truth import Truth

HEADER = "idempotency-key"
LIFETIME_S = 24 * 3600.0

_SCHEMA = """
CREATE TABLE IF NOT EXISTS keys(
    seq INTEGER PRIMARY KEY AUTOINCREMENT, account TEXT NOT NULL, key TEXT NOT NULL, fields_sha256 TEXT NOT NULL,
    item_id INTEGER NOT NULL, since REAL NOT NULL);
CREATE TABLE IF NOT EXISTS key_terms(only_row INTEGER PRIMARY KEY, lifetime_s REAL NOT NULL, honours INTEGER NOT NULL);
"""


@dataclass(frozen=True)
class Terms:
    """How the site treats keys. With `honours` false it takes every request for a new one, whatever its key says."""

    lifetime_s: float = LIFETIME_S
    honours: bool = True


@dataclass(frozen=True)
class Remembered:
    """What the site knows of a key; `since` in seconds since the epoch."""

    item_id: int
    fields_sha256: str
    since: float


class Keys:
    """The site's memory of keys, in the file at `path`. Safe to use from several processes."""

    def __init__(self, path: Path | str) -> None:
        self._path = path
        with closing(self._connect()) as db:
            db.executescript(_SCHEMA)

    def _connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self._path, timeout=10, isolation_level=None)

    def terms(self) -> Terms:
        with closing(self._connect()) as db:
            row = db.execute("SELECT lifetime_s, honours FROM key_terms").fetchone()
        return Terms(row[0], bool(row[1])) if row else Terms()

    def arrange(self, terms: Terms) -> None:
        """Let these terms hold from now on, for keys that are remembered already as well."""
        with closing(self._connect()) as db:
            values = (terms.lifetime_s, terms.honours)
            db.execute("INSERT OR REPLACE INTO key_terms(only_row, lifetime_s, honours) VALUES (1, ?, ?)", values)

    def forget_all(self) -> None:
        """Forget every key and every arrangement."""
        with closing(self._connect()) as db:
            db.execute("DELETE FROM keys")
            db.execute("DELETE FROM key_terms")

    def last(self, account: str, key: str) -> Remembered | None:
        """What this key last made, whether its lifetime is over or not."""
        with closing(self._connect()) as db:
            row = db.execute(
                "SELECT item_id, fields_sha256, since FROM keys WHERE account = ? AND key = ? ORDER BY seq DESC",
                (account, key),
            ).fetchone()
        return Remembered(*row) if row else None

    def held(self, account: str, key: str) -> Remembered | None:
        """What the site goes by when the key comes again; None makes a new notice."""
        terms, found = self.terms(), self.last(account, key)
        if found is None or not terms.honours or time.time() >= found.since + terms.lifetime_s:
            return None
        return found

    def keep(self, account: str, key: str, fields_sha256: str, item_id: int) -> None:
        with closing(self._connect()) as db:
            db.execute(
                "INSERT INTO keys(account, key, fields_sha256, item_id, since) VALUES (?, ?, ?, ?, ?)",
                (account, key, fields_sha256, item_id, time.time()),
            )


class Keyed(Composers):
    """Plans for the page, the write and the look-up by key."""

    def __init__(self, truth: Truth, pages: Pages) -> None:
        super().__init__(truth, pages)
        self._keys = Keys(truth.path)

    def routes(self) -> Iterator[tuple[str, str, Callable[..., Plan]]]:
        yield "GET", "/keyed/new", self.keyed_composer
        yield "GET", "/keyed/find", self.keyed_find
        yield "POST", "/keyed/items", self.keyed_publish

    def keyed_composer(self, request: Request) -> Plan:
        """Each page comes with a fresh key, as sites do that mean to catch a double click."""
        shown = self._pages.render(
            request,
            "keyed.html",
            place=Place.COMPOSER,
            item=None,
            error="",
            title="",
            body="",
            heading="Client key",
            key=secrets.token_hex(16),
        )
        return Plan.of(shown)

    def keyed_find(self, request: Request) -> Plan:
        """The account's notice of a key, or that there is none."""
        key = request.query.get("key", "")
        found = self._keys.last(request.account or "", key)
        item = self._own(request, found.item_id) if found is not None else None
        return Plan.of(self._pages.render(request, "keyed_found.html", place=Place.LIST, key=key, item=item))

    def keyed_publish(self, request: Request) -> Plan:
        fields, key, account = request.json(), request.header(HEADER), request.account or ""
        title, body = str(fields.get("title", "")).strip(), str(fields.get("body", ""))
        if not 1 <= len(key) <= 200:
            return Plan.of(json_response({"error": f"Send a key in the header {HEADER}."}, 400))
        if not title:
            return Plan.of(json_response({"error": NO_TITLE}, 422))
        digest = hashlib.sha256(json.dumps([title, body]).encode()).hexdigest()
        held = self._keys.held(account, key)
        if held is not None:
            return Plan.of(self._again(request, held, digest))

        def answer(item: Item) -> Response:
            self._keys.keep(account, key, digest, item.id)
            return json_response(_told(item), 202 if item.state == "queued" else 201)

        return self._create(request, "keyed", CommitKind.PUBLISH, title, body, answer)

    def _again(self, request: Request, held: Remembered, digest: str) -> Response:
        """The first answer once more, and nothing stored."""
        if held.fields_sha256 != digest:
            return json_response({"error": "This key was used for another notice."}, 409)
        item = self._own(request, held.item_id)
        if item is None:
            return json_response({"error": "The notice of this key has been deleted."}, 410)
        return json_response(_told(item), 202 if item.state == "queued" else 200)


def _told(item: Item) -> dict[str, object]:
    return {"id": item.id, "state": item.state, "url": f"/items/{item.id}"}
