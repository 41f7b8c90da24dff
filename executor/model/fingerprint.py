"""Canonical form, fingerprint and identity of an intent.

The fingerprint is SHA-256 over RFC 8785 canonical JSON (A3), with a label in front that says what was hashed, so that
no digest of one kind can pass for another. Pure functions.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import rfc8785


class NotCanonical(ValueError):
    """The value has no canonical JSON form (a number out of range, a key that is not text, a lone surrogate)."""


def canonical(value: Any) -> bytes:
    """RFC 8785 bytes of a JSON value. Raises `NotCanonical`."""
    try:
        return rfc8785.dumps(value)
    except (rfc8785.CanonicalizationError, UnicodeEncodeError, TypeError) as error:
        raise NotCanonical(f"this value has no canonical form: {error}") from error


def digest(label: str, value: Any) -> str:
    """Hexadecimal SHA-256 over a label and the canonical form of a value."""
    return hashlib.sha256(b"interlock/" + label.encode() + b"/1\n" + canonical(value)).hexdigest()


def fingerprint(material: Mapping[str, Any]) -> str:
    """The fingerprint of approved material: what an approval binds and a receipt shows (A3, B1)."""
    return digest("material", dict(material))


def intent_identity(*, task: str, action: str, destination: str, account: str, material_fingerprint: str) -> str:
    """One name for one intent (A4): the same five parts are the same operation, whoever proposes them, however often
    and through whichever flow."""
    return digest("intent", [task, action, destination, account, material_fingerprint])


def slot(*, task: str, action: str, destination: str, account: str) -> str:
    """The intent without its material. Two operations in one slot are a changed mind, not a repetition (A4)."""
    return digest("slot", [task, action, destination, account])


def look_alike_key(*, action: str, destination: str, account: str, common: Mapping[str, Any]) -> str:
    """The intent without its task, over the projection that all flows with this action share (A4)."""
    return digest("look-alike", [action, destination, account, dict(common)])


def provider_key(identity: str) -> str:
    """The idempotency key for a provider that honours one: from the identity, so that every attempt carries the same.
    It tells the provider nothing about the intent."""
    return "il-" + digest("provider-key", identity)[:40]


def chain(previous: str, event: Mapping[str, Any]) -> str:
    """The hash of an event in its operation's chain (A8). `previous` is the hash before it, empty for the first."""
    return digest("event", [previous, dict(event)])
