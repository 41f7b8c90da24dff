"""Signed envelopes: bytes with the signatures of those who vouch for them (DSSE version 1, Ed25519).

What is signed are the bytes and their type, exactly; nothing is parsed before a signature was found good. Not checked
here: whether a key may be trusted, and what the bytes say.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from evidence.store import EvidenceError


class EnvelopeUnreadable(EvidenceError):
    """It is no envelope, or not in the one spelling that is accepted."""


class NotSigned(EvidenceError):
    """No signature in the envelope is good under a key that is known."""


class Signer(Protocol):
    """A private key somewhere."""

    @property
    def key_id(self) -> str:
        """Names the key in envelopes; see `evidence.signing_keys`."""

    def sign(self, data: bytes) -> bytes:
        """An Ed25519 signature (RFC 8032) over the data."""


class _Signature(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    keyid: str = Field(pattern=r"^[0-9a-f]{64}$")
    sig: str


class Envelope(BaseModel):
    """The JSON form of an envelope; `payload` and each `sig` in standard Base64."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    payload: str
    payload_type: str = Field(alias="payloadType", min_length=1)
    signatures: tuple[_Signature, ...] = Field(min_length=1)

    def to_json(self) -> bytes:
        return self.model_dump_json(by_alias=True).encode()

    @classmethod
    def from_json(cls, data: bytes) -> Envelope:
        """Raises `EnvelopeUnreadable`."""
        try:
            return cls.model_validate_json(data)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"])) or "it"
            raise EnvelopeUnreadable(f"this is no signed envelope: {where}: {first['msg']}.") from error


def signed(data: bytes, payload_type: str, signers: Sequence[Signer]) -> Envelope:
    """The data in an envelope with one signature of each signer."""
    encoded = pre_authentication_encoding(payload_type, data)
    signatures = [{"keyid": one.key_id, "sig": base64.b64encode(one.sign(encoded)).decode()} for one in signers]
    fields: dict[str, Any] = {
        "payload": base64.b64encode(data).decode(),
        "payloadType": payload_type,
        "signatures": signatures,
    }
    return Envelope.model_validate(fields)


def opened(
    envelope: Envelope, payload_type: str, keys: Mapping[str, Ed25519PublicKey]
) -> tuple[bytes, tuple[str, ...]]:
    """The data, and the ids of the keys whose signatures over it are good: at least one. A signature that is not good
    under the key that it names is an error whatever the others say; one by an unknown key does not count. Raises
    `NotSigned` and `EnvelopeUnreadable`."""
    if envelope.payload_type != payload_type:
        raise EnvelopeUnreadable(f"the envelope holds {envelope.payload_type}, where {payload_type} belongs.")
    data = _decoded(envelope.payload)
    encoded = pre_authentication_encoding(payload_type, data)
    good: list[str] = []
    for one in envelope.signatures:
        key = keys.get(one.keyid)
        if key is None:
            continue
        try:
            key.verify(_decoded(one.sig), encoded)
        except InvalidSignature as error:
            raise NotSigned(f"the signature by key {one.keyid[:16]} does not fit: the content was altered.") from error
        good.append(one.keyid)
    if not good:
        named = ", ".join(one.keyid[:16] for one in envelope.signatures)
        raise NotSigned(f"it is signed by a key that is not known here ({named}). Get the public key from its owner.")
    return data, tuple(good)


def pre_authentication_encoding(payload_type: str, data: bytes) -> bytes:
    """What is signed: type and data with their lengths, so that no other pair has the same bytes."""
    kind = payload_type.encode()
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(data), data)


def _decoded(text: str) -> bytes:
    """Base64 in the one spelling that encoding it again gives."""
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise EnvelopeUnreadable("the envelope holds text that is not Base64.") from error
    if base64.b64encode(data).decode() != text:
        raise EnvelopeUnreadable("the envelope holds Base64 in a second spelling.")
    return data
