"""The tables of the ground truth and the values read from them. No I/O."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from playground.faults import Fault

SCHEMA = """
CREATE TABLE IF NOT EXISTS items(
    id INTEGER PRIMARY KEY AUTOINCREMENT, account TEXT NOT NULL, title TEXT NOT NULL, body TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('published', 'queued', 'draft', 'refused')), variant TEXT NOT NULL,
    created_at TEXT NOT NULL, published_at TEXT, commits INTEGER NOT NULL DEFAULT 0);
CREATE TABLE IF NOT EXISTS commits(
    seq INTEGER PRIMARY KEY AUTOINCREMENT, item_id INTEGER NOT NULL,
    kind TEXT NOT NULL CHECK (kind IN ('publish', 'draft', 'queue', 'refuse', 'delete')), request_seq INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS requests(
    seq INTEGER PRIMARY KEY AUTOINCREMENT, at TEXT NOT NULL, method TEXT NOT NULL, scheme TEXT NOT NULL,
    target TEXT NOT NULL, host TEXT NOT NULL, version TEXT NOT NULL, connection INTEGER NOT NULL,
    request_no_on_connection INTEGER NOT NULL, is_write INTEGER NOT NULL, body_sha256 TEXT NOT NULL,
    user TEXT, fault TEXT, hazard TEXT);
CREATE TABLE IF NOT EXISTS faults(
    id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL, method TEXT NOT NULL, path_prefix TEXT NOT NULL,
    commit_kind TEXT NOT NULL, remaining INTEGER NOT NULL, argument TEXT);
CREATE TABLE IF NOT EXISTS hazards(name TEXT NOT NULL, place TEXT NOT NULL, argument TEXT);
CREATE TABLE IF NOT EXISTS listings(page_size INTEGER, oldest_first INTEGER, looks INTEGER, seconds REAL);
CREATE TABLE IF NOT EXISTS unlisted(item_id INTEGER PRIMARY KEY, looks INTEGER NOT NULL, until TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS images(
    item_id INTEGER PRIMARY KEY, name TEXT NOT NULL, media_type TEXT NOT NULL, content BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS permissions(token TEXT PRIMARY KEY, account TEXT NOT NULL, right TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS sessions(token TEXT PRIMARY KEY, account TEXT NOT NULL);
"""


@dataclass(frozen=True)
class Item:
    """One stored item. Times are ISO 8601 in UTC; `commits` counts publish commits of this item."""

    id: int
    account: str
    title: str
    body: str
    state: str
    variant: str
    created_at: str
    published_at: str | None
    commits: int


@dataclass(frozen=True)
class Image:
    """The picture of an item."""

    name: str
    media_type: str
    content: bytes

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.content).hexdigest()


@dataclass(frozen=True)
class Listing:
    """One page of a list, and how many items and pages there are in all."""

    items: list[Item]
    total: int
    page: int
    pages: int


@dataclass(frozen=True)
class Commit:
    """One change of the store and the request that made it."""

    seq: int
    item_id: int
    kind: str
    request_seq: int


@dataclass(frozen=True)
class Arrival:
    """One request that was received whole. `connection` and its request number count from 1."""

    seq: int
    at: str
    method: str
    scheme: str
    target: str
    host: str
    version: str
    connection: int
    request_no_on_connection: int
    is_write: int
    body_sha256: str
    user: str | None
    fault: str | None
    hazard: str | None


@dataclass(frozen=True)
class HazardOrder:
    """The hazard that pages carry at present."""

    name: str
    place: str
    argument: str | None


@dataclass(frozen=True)
class Admission:
    """A recorded request and the fault taken from the queue for it, if any."""

    seq: int
    fault: Fault | None = None
    argument: str | None = None
