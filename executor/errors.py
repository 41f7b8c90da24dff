"""Errors that a person meets, by the phase in which they happen. Each carries its exit code and one clear sentence
that says what to do next. Anything else that escapes is a defect (exit 70).
"""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    """Exit codes of the command; stable."""

    SUCCEEDED = 0
    USAGE = 2
    ACCEPTED = 10
    UNKNOWN = 20
    REJECTED = 30
    REFUSED = 40
    NOT_SENT = 50
    ALTERED = 60
    DEFECT = 70


class InterlockError(Exception):
    """Base of every error that is meant for a person."""

    exit = Exit.DEFECT


class BadInput(InterlockError):
    """Something given by the caller cannot be used: an unknown flow, an unreadable payload, a bad address."""

    exit = Exit.USAGE


class NotAllowed(InterlockError):
    """What was asked is refused by policy; nothing was dispatched."""

    exit = Exit.REFUSED


class NotReady(InterlockError):
    """The surroundings are not fit: no browser, no ledger, no space. Nothing was dispatched."""

    exit = Exit.DEFECT
