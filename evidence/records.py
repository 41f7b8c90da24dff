"""The words of this room: what a capture is made of. Frozen values, no I/O."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from evidence.redaction import Masked

INTERLOCK_NOTE = "answered by Interlock, not by the site"


class Point(StrEnum):
    """When a capture is taken (D1). A view adds its name as the capture's label."""

    OPEN = "open"
    COMPOSED = "composed"
    AFTER = "after"
    VIEW = "view"


class ItemKind(StrEnum):
    SCREENSHOT = "screenshot"
    DOM = "dom"
    ACCESSIBILITY = "accessibility"
    FACTS = "facts"
    WIRE_LOG = "wire_log"


class GapReason(StrEnum):
    """Why a step of a capture left nothing."""

    TIMED_OUT = "timed_out"
    PAGE_CLOSED = "page_closed"
    PAGE_CRASHED = "page_crashed"
    TOO_LARGE = "too_large"
    FAILED = "failed"


class Quality(StrEnum):
    """Can this capture be taken for what the site shows? Only `usable` can; D4 calls every other one "could not
    look".

    Order of precedence, the first that holds: `answered_by_interlock` (the gate answered in the site's place),
    `not_seen` (the page was closed, crashed or did not answer), `error_page` (the browser's own, or an HTTP status of
    400 or more), `half_loaded` (the document was still loading), `blank` (neither text nor anything to see).
    """

    USABLE = "usable"
    BLANK = "blank"
    ERROR_PAGE = "error_page"
    HALF_LOADED = "half_loaded"
    ANSWERED_BY_INTERLOCK = "answered_by_interlock"
    NOT_SEEN = "not_seen"


@dataclass(frozen=True)
class Rect:
    """CSS pixels from the top left of the viewport."""

    x: float
    y: float
    width: float
    height: float

    def clipped(self, by: Rect) -> Rect | None:
        left, top = max(self.x, by.x), max(self.y, by.y)
        right = min(self.x + self.width, by.x + by.width)
        bottom = min(self.y + self.height, by.y + by.height)
        return Rect(left, top, right - left, bottom - top) if right > left and bottom > top else None


@dataclass(frozen=True)
class Target:
    """The control that the one gesture will use: its box, and the point (CSS pixels of the viewport) if there is
    one."""

    box: Rect
    point: tuple[float, float] | None = None


@dataclass(frozen=True)
class Item:
    """One stored piece of evidence. `masked` says what was taken out before it was stored; `note` is for a person."""

    kind: ItemKind
    sha256: str
    size: int
    media_type: str
    masked: tuple[Masked, ...] = ()
    note: str = ""


@dataclass(frozen=True)
class Gap:
    """A step that left nothing, and why. `detail` is redacted."""

    step: str
    reason: GapReason
    detail: str


@dataclass(frozen=True)
class Capture:
    """What one look kept. `url` and `title` are redacted; `taken_at` is aware, `monotonic` in seconds orders one
    process's captures; both are of the start of the capture."""

    point: Point
    label: str
    url: str
    title: str
    taken_at: datetime
    monotonic: float
    items: tuple[Item, ...]
    gaps: tuple[Gap, ...]
    quality: Quality

    def item(self, kind: ItemKind) -> Item | None:
        return next((item for item in self.items if item.kind is kind), None)
