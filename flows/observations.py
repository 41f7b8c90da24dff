"""What a view may say. "Not there", "could not look" and "looked at part of it" are different answers (D4), and
every "found" says how strongly (D5). Pure values.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from flows.effect import Material


class Strength(StrEnum):
    """How much a finding carries, strongest first (D5). Only the first two may establish success."""

    PROVIDER_ID = "provider_id"
    """The item under the id that the provider gave, in a documented terminal state."""
    EXACT_ITEM = "exact_item"
    """In the account's own view: account, canonical id and material content all equal, and published or certainly on
    its way there. Only the state `published` makes a success of it; `queued` and `scheduled` are accepted."""
    PARTIAL = "partial"
    TITLE_ONLY = "title_only"
    URL_ONLY = "url_only"

    @property
    def establishes(self) -> bool:
        return self in (Strength.PROVIDER_ID, Strength.EXACT_ITEM)


class ItemState(StrEnum):
    PUBLISHED = "published"
    QUEUED = "queued"
    SCHEDULED = "scheduled"
    DRAFT = "draft"
    PRIVATE = "private"
    OTHER = "other"


@dataclass(frozen=True, kw_only=True)
class Item:
    """One item as a view shows it. `material` holds only the approved fields that this view can read."""

    id: str
    state: ItemState
    strength: Strength
    title: str | None = None
    url: str | None = None
    account: str | None = None
    material: Material | None = None


@dataclass(frozen=True, kw_only=True)
class Found:
    """At least one item that looks like the intent's. `listed` are the ids of everything that the view listed, drafts
    left out: before the claim they are the baseline, and the draft of this very run must not be in it."""

    items: tuple[Item, ...]
    listed: tuple[str, ...] = ()
    scope: str
    complete: bool


@dataclass(frozen=True, kw_only=True)
class NotFound:
    """Looked, and it is not there. `complete` is true only when the whole of `scope` was read."""

    scope: str
    complete: bool
    listed: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Partial:
    """Looked at part of it: `scope` says which part, `reason` why not the rest."""

    scope: str
    reason: str
    items: tuple[Item, ...] = ()
    listed: tuple[str, ...] = ()


class NoLook(StrEnum):
    """Why a view could not look."""

    SIGNED_OUT = "signed_out"
    ERROR_PAGE = "error_page"
    BLANK = "blank"
    NOT_LOADED = "not_loaded"
    WRONG_ACCOUNT = "wrong_account"
    WRONG_PAGE = "wrong_page"
    REFUSED_BY_GATE = "refused_by_gate"
    TIMED_OUT = "timed_out"
    BROWSER_LOST = "browser_lost"
    VIEW_FAILED = "view_failed"


@dataclass(frozen=True, kw_only=True)
class CouldNotLook:
    """Nothing can be concluded: a login page, an error page, a blank or half-loaded page."""

    reason: NoLook
    detail: str = ""


Observation = Found | NotFound | Partial | CouldNotLook
