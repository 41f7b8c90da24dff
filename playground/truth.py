"""Ground truth: what really arrived and what was really stored, and the faults and hazards to come.

One SQLite file, read and written by the server and by tests at the same time. Each write is one short
transaction. The record is the provider's own; nothing that the client claims is stored as a fact.
"""

from __future__ import annotations

import hashlib
import secrets
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

from playground.faults import REUSED, Fault, delay_of
from playground.hazards import Hazard, Place
from playground.messages import CommitKind, Request
from playground.records import SCHEMA, Admission, Arrival, Commit, HazardOrder, Image, Item, Listing

ANY = "any"
_KIND_OF_STATE = {
    "published": CommitKind.PUBLISH,
    "queued": CommitKind.QUEUE,
    "draft": CommitKind.DRAFT,
}


class Truth:
    """The record at `path`, made when absent. Safe to use from several threads and processes.

    With `keep_open` one connection serves every call (the server, one thread); without it each call opens
    and closes its own, so there is nothing to close and the record can be read after the server has ended.
    """

    def __init__(self, path: Path | str, *, keep_open: bool = False) -> None:
        self.path = Path(path)
        self._kept = self._connect() if keep_open else None
        with self._connection() as db:
            db.executescript(SCHEMA)

    def _connect(self) -> sqlite3.Connection:
        db = sqlite3.connect(self.path, timeout=10, isolation_level=None)
        db.row_factory = sqlite3.Row
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("PRAGMA synchronous=OFF")  # a power cut is not among the faults played here
        return db

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        if self._kept is not None:
            yield self._kept
            return
        db = self._connect()
        try:
            yield db
        finally:
            db.close()

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._connection() as db:
            db.execute("BEGIN IMMEDIATE")
            try:
                yield db
            except BaseException:
                db.execute("ROLLBACK")
                raise
            db.execute("COMMIT")

    def _rows(self, sql: str, values: tuple[object, ...] = ()) -> list[sqlite3.Row]:
        with self._connection() as db:
            return db.execute(sql, values).fetchall()

    def close(self) -> None:
        """Close the kept connection; a record opened without `keep_open` needs no closing."""
        if self._kept is not None:
            self._kept.close()
            self._kept = None

    # Reading

    def items(self, state: str | None = None, title: str | None = None, account: str | None = None) -> list[Item]:
        """Items in the order of their making, narrowed by exact state, title and account."""
        rows = self._rows(
            "SELECT * FROM items WHERE state = coalesce(?, state) AND title = coalesce(?, title)"
            " AND account = coalesce(?, account) ORDER BY id",
            (state, title, account),
        )
        return [Item(**row) for row in rows]

    def item(self, item_id: int) -> Item | None:
        rows = self._rows("SELECT * FROM items WHERE id = ?", (item_id,))
        return Item(**rows[0]) if rows else None

    def image(self, item_id: int) -> Image | None:
        rows = self._rows("SELECT name, media_type, content FROM images WHERE item_id = ?", (item_id,))
        return Image(**rows[0]) if rows else None

    def permission(self, token: str, account: str) -> str | None:
        """The right of an unused token of this account."""
        rows = self._rows("SELECT right FROM permissions WHERE token = ? AND account = ?", (token, account))
        return str(rows[0][0]) if rows else None

    def published(self) -> list[Item]:
        return self.items("published")

    def listing(self, page: int, *, account: str | None = None, page_size: int | None = None) -> Listing:
        """One page of a list, newest first: what is published, or everything of one account. `page_size` counts where
        nothing else is arranged; None puts all on one page. Asking for the first page is one look at the list."""
        where, order = ("state = 'published'", "published_at DESC, id DESC")
        if account is not None:
            where, order = ("account = ?", "id DESC")
        shown = f"{where} AND id NOT IN (SELECT item_id FROM unlisted WHERE looks > 0 OR until > ?)"
        values = (*(() if account is None else (account,)), _now())
        with self._transaction() as db:
            arranged = db.execute("SELECT page_size, oldest_first FROM listings").fetchone()
            size = arranged["page_size"] if arranged and arranged["page_size"] else page_size
            if arranged and arranged["oldest_first"]:
                order = order.replace("DESC", "ASC")
            total = db.execute(f"SELECT count(*) FROM items WHERE {shown}", values).fetchone()[0]
            limits = (-1, 0) if size is None else (size, (page - 1) * size)
            rows = db.execute(
                f"SELECT * FROM items WHERE {shown} ORDER BY {order} LIMIT ? OFFSET ?", (*values, *limits)
            ).fetchall()
            if page == 1:
                db.execute("UPDATE unlisted SET looks = looks - 1 WHERE looks > 0")
        pages = 1 if size is None else max(-(-total // size), 1)
        return Listing([Item(**row) for row in rows], total, page, pages)

    def drafts(self) -> list[Item]:
        return self.items("draft")

    def commits(self, kind: str | None = "publish") -> list[Commit]:
        """Commits of one kind, in order; None gives all kinds."""
        rows = self._rows("SELECT * FROM commits WHERE kind = coalesce(?, kind) ORDER BY seq", (kind,))
        return [Commit(**row) for row in rows]

    def publish_count(self, title: str | None = None) -> int:
        """How many publish commits there were, in all or for items with this exact title."""
        if title is None:
            return len(self.commits())
        rows = self._rows(
            "SELECT count(*) FROM commits JOIN items ON items.id = commits.item_id"
            " WHERE kind = 'publish' AND title = ?",
            (title,),
        )
        return int(rows[0][0])

    def requests(self, writes_only: bool = False, path_prefix: str | None = None, since: int = 0) -> list[Arrival]:
        """Requests in the order of arrival; `since` leaves out those up to that seq."""
        prefix = path_prefix or ""
        rows = self._rows(
            "SELECT * FROM requests WHERE is_write >= ? AND substr(target, 1, ?) = ? AND seq > ? ORDER BY seq",
            (int(writes_only), len(prefix), prefix, since),
        )
        return [Arrival(**row) for row in rows]

    def hazard_hits(self, name: str | None = None) -> list[Arrival]:
        """Requests to hazard targets that arrived, of every hazard or of one."""
        return [r for r in self.requests() if r.hazard is not None and name in (None, r.hazard)]

    # Arranging

    def inject(
        self,
        fault: Fault | str,
        *,
        method: str = "POST|PUT",
        path_prefix: str,
        commit: str = CommitKind.PUBLISH,
        times: int = 1,
        argument: str | float | None = None,
    ) -> None:
        """Queue a fault for the next `times` matching writes (first in, first taken, one per request).

        `method` is one or more methods joined by "|", or "any". `commit` narrows to writes that would leave
        that kind of commit, so that an autosave to the same URL is not struck in place of the publish; "any"
        takes every write. `argument` is seconds for `late`, a URL for `redirect_307`, or "reused" for any
        fault that shall only strike a request that is not the first on its connection.

        Raises ValueError for an unknown fault, kind or delay, or a `times` below 1.
        """
        fault = Fault(fault)
        kind = commit if commit == ANY else CommitKind(commit).value
        text = None if argument is None else str(argument)
        if times < 1:
            raise ValueError("times must be at least 1")
        if fault is Fault.LATE:
            delay_of(text)
        with self._transaction() as db:
            db.execute(
                "INSERT INTO faults(name, method, path_prefix, commit_kind, remaining, argument)"
                " VALUES (?, ?, ?, ?, ?, ?)",
                (fault.value, method.upper(), path_prefix, kind, times, text),
            )

    def pending_faults(self) -> list[tuple[str, int]]:
        """Faults still queued, as (name, times left)."""
        return [tuple(row) for row in self._rows("SELECT name, remaining FROM faults ORDER BY id")]

    def clear_faults(self) -> None:
        with self._transaction() as db:
            db.execute("DELETE FROM faults")

    def set_hazard(
        self, name: Hazard | str | None, where: Place | str = "composer", argument: str | None = None
    ) -> None:
        """Let pages of that place carry this hazard in place of any other; None takes it away.

        `argument` is the UDP port on 127.0.0.1 for `webrtc`; the others take none.
        Raises ValueError for an unknown hazard or place, or `webrtc` without its port.
        """
        if name == Hazard.WEBRTC and not (argument or "").isdecimal():
            raise ValueError("webrtc needs a UDP port as its argument")
        values = None if name is None else (Hazard(name).value, Place(where).value, argument)
        with self._transaction() as db:
            db.execute("DELETE FROM hazards")
            if values is not None:
                db.execute("INSERT INTO hazards VALUES (?, ?, ?)", values)

    def hazard(self) -> HazardOrder | None:
        rows = self._rows("SELECT * FROM hazards")
        return HazardOrder(**rows[0]) if rows else None

    def arrange_lists(
        self, *, page_size: int | None = None, oldest_first: bool = False, lag_looks: int = 0, lag_seconds: float = 0.0
    ) -> None:
        """Let lists be cut into pages of this size, the oldest items first where asked for, and let what is published
        or queued from now on appear in them only after so many looks and so many seconds. Its own page is there at
        once. Without arguments, as at first."""
        with self._transaction() as db:
            db.execute("DELETE FROM listings")
            db.execute(
                "INSERT INTO listings VALUES (?, ?, ?, ?)", (page_size, int(oldest_first), lag_looks, lag_seconds)
            )

    def moderate(self, item_id: int, *, approve: bool) -> None:
        """What a moderator does with a queued item. Raises ValueError for one that is not queued."""
        state, kind = ("published", CommitKind.PUBLISH) if approve else ("refused", CommitKind.REFUSE)
        with self._transaction() as db:
            cursor = db.execute(
                "UPDATE items SET state = :state, commits = commits + (:state = 'published'),"
                " published_at = CASE WHEN :state = 'published' THEN :now END WHERE id = :id AND state = 'queued'",
                {"state": state, "now": _now(), "id": item_id},
            )
            if cursor.rowcount != 1:
                raise ValueError(f"item {item_id} is not queued")
            _commit(db, item_id, kind, 0)

    def reset(self) -> None:
        """Forget items, commits, requests, faults, hazards and how lists are arranged. Sessions stay, and numbers are
        not used again."""
        with self._transaction() as db:
            for table in (
                "items",
                "commits",
                "requests",
                "faults",
                "hazards",
                "listings",
                "unlisted",
                "images",
                "permissions",
            ):
                db.execute(f"DELETE FROM {table}")

    # Sessions

    def open_session(self, account: str) -> str:
        """Sign an account in and return the value for the session cookie."""
        token = secrets.token_urlsafe(24)
        with self._transaction() as db:
            db.execute("INSERT INTO sessions VALUES (?, ?)", (token, account))
        return token

    def session_account(self, token: str) -> str | None:
        rows = self._rows("SELECT account FROM sessions WHERE token = ?", (token,)) if token else []
        return str(rows[0][0]) if rows else None

    def end_session(self, token: str) -> None:
        with self._transaction() as db:
            db.execute("DELETE FROM sessions WHERE token = ?", (token,))

    # Writing, as the server does

    def last_connection(self) -> int:
        return int(self._rows("SELECT coalesce(max(connection), 0) FROM requests")[0][0])

    def admit(
        self,
        request: Request,
        *,
        connection: int,
        number: int,
        hazard: str | None = None,
        commit: CommitKind | None = None,
    ) -> Admission:
        """Record a request and take the first fault that matches it, in one transaction."""
        with self._transaction() as db:
            # A GET that publishes is a write by what it does.
            fault = self._take_fault(db, request, number, commit) if request.is_write or commit else None
            cursor = db.execute(
                "INSERT INTO requests(at, method, scheme, target, host, version, connection,"
                " request_no_on_connection, is_write, body_sha256, user, fault, hazard)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    _now(),
                    request.method,
                    request.scheme,
                    request.target,
                    request.header("host"),
                    request.version,
                    connection,
                    number,
                    int(request.is_write),
                    hashlib.sha256(request.body).hexdigest(),
                    request.account,
                    fault["name"] if fault else None,
                    hazard,
                ),
            )
        seq = cursor.lastrowid or 0
        return Admission(seq, Fault(fault["name"]), fault["argument"]) if fault else Admission(seq)

    @staticmethod
    def _take_fault(
        db: sqlite3.Connection, request: Request, number: int, commit: CommitKind | None
    ) -> sqlite3.Row | None:
        for row in db.execute("SELECT * FROM faults ORDER BY id").fetchall():
            methods = row["method"].split("|")
            if (
                (request.method in methods or ANY.upper() in methods)
                and request.path.startswith(row["path_prefix"])
                and row["commit_kind"] in (ANY, commit)
                and not (row["argument"] == REUSED and number < 2)
            ):
                db.execute("UPDATE faults SET remaining = remaining - 1 WHERE id = ?", (row["id"],))
                db.execute("DELETE FROM faults WHERE remaining < 1")
                return row  # type: ignore[no-any-return]
        return None

    def create(self, *, account: str, title: str, body: str, state: str, variant: str, request_seq: int = 0) -> Item:
        """Store a new item; `request_seq` 0 marks one that a test arranged."""
        kind = _KIND_OF_STATE[state]
        with self._transaction() as db:
            cursor = db.execute(
                "INSERT INTO items(account, title, body, state, variant, created_at, published_at, commits)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?) RETURNING *",
                (
                    account,
                    title,
                    body,
                    state,
                    variant,
                    now := _now(),
                    now if state == "published" else None,
                    int(state == "published"),
                ),
            )
            item = Item(**cursor.fetchone())
            _commit(db, item.id, kind, request_seq)
        return item

    def change(
        self, item_id: int, *, state: str, request_seq: int, title: str | None = None, body: str | None = None
    ) -> Item:
        """Save, queue or publish an existing item; None keeps its title or body.

        Saving a draft of an item that is already out leaves what the public sees as it is.
        """
        kind = _KIND_OF_STATE[state]
        with self._transaction() as db:
            db.execute(
                "UPDATE items SET title = coalesce(:title, title), body = coalesce(:body, body), state = :state,"
                " commits = commits + (:state = 'published'),"
                " published_at = CASE WHEN :state = 'published' THEN :now ELSE published_at END"
                " WHERE id = :id AND NOT (:state = 'draft' AND state <> 'draft')",
                {"title": title, "body": body, "state": state, "now": _now(), "id": item_id},
            )
            _commit(db, item_id, kind, request_seq)
            row = db.execute("SELECT * FROM items WHERE id = ?", (item_id,)).fetchone()
        return Item(**row)

    def hold_back(self, request_seq: int) -> None:
        """Make what a request published wait for a moderator, as if it had never been out."""
        with self._transaction() as db:
            db.execute(
                "UPDATE items SET state = 'queued', published_at = NULL, commits = commits - 1"
                " WHERE id IN (SELECT item_id FROM commits WHERE request_seq = ? AND kind = 'publish')",
                (request_seq,),
            )
            db.execute("UPDATE commits SET kind = 'queue' WHERE request_seq = ? AND kind = 'publish'", (request_seq,))

    def shorten(self, request_seq: int, *, title: bool) -> None:
        """Cut what a request stored: half of the body and, with `title`, half of the title."""
        with self._transaction() as db:
            db.execute(
                "UPDATE items SET body = substr(body, 1, length(body) / 2),"
                " title = CASE WHEN ? THEN substr(title, 1, max(length(title) / 2, 1)) ELSE title END"
                " WHERE id IN (SELECT item_id FROM commits WHERE request_seq = ?)",
                (title, request_seq),
            )

    def attach(self, item_id: int, name: str, media_type: str, content: bytes) -> None:
        with self._transaction() as db:
            db.execute("INSERT INTO images VALUES (?, ?, ?, ?)", (item_id, name, media_type, content))

    def grant(self, account: str, right: str) -> str:
        """A token that is good for one publish with this right."""
        token = secrets.token_urlsafe(24)
        with self._transaction() as db:
            db.execute("INSERT INTO permissions VALUES (?, ?, ?)", (token, account, right))
        return token

    def use_permission(self, token: str) -> None:
        with self._transaction() as db:
            db.execute("DELETE FROM permissions WHERE token = ?", (token,))

    def delete(self, item_id: int, request_seq: int) -> None:
        with self._transaction() as db:
            db.execute("DELETE FROM items WHERE id = ?", (item_id,))
            _commit(db, item_id, CommitKind.DELETE, request_seq)


def _commit(db: sqlite3.Connection, item_id: int, kind: CommitKind, request_seq: int) -> None:
    db.execute("INSERT INTO commits(item_id, kind, request_seq) VALUES (?, ?, ?)", (item_id, kind.value, request_seq))
    if kind not in (CommitKind.PUBLISH, CommitKind.QUEUE):
        return
    arranged = db.execute("SELECT looks, seconds FROM listings WHERE looks > 0 OR seconds > 0").fetchone()
    if arranged is not None:
        until = datetime.now(UTC) + timedelta(seconds=arranged["seconds"])
        db.execute("INSERT OR REPLACE INTO unlisted VALUES (?, ?, ?)", (item_id, arranged["looks"], _as_text(until)))


def _now() -> str:
    return _as_text(datetime.now(UTC))


def _as_text(moment: datetime) -> str:
    return moment.isoformat(timespec="microseconds")
