"""What is signed about a receipt: an in-toto Statement (version 1) in a DSSE envelope.

It names the receipt's files, the manifest of the evidence and the chain of the record's events by their SHA-256, and
says of which operation they are. Pure: whoever asks brings the digests. What the digests are of is for others to read,
and whether a key may be trusted too.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Literal

import rfc8785
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError

from evidence.dsse import Envelope, EnvelopeUnreadable, Signer, opened, signed

PAYLOAD_TYPE = "application/vnd.in-toto+json"
STATEMENT_TYPE: Literal["https://in-toto.io/Statement/v1"] = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE: Literal["urn:interlock:receipt:1"] = "urn:interlock:receipt:1"
"""The number goes up when a field changes its meaning or goes."""

MANIFEST, EVENTS = "manifest", "events"
"""Names of the subjects that are not a receipt's file."""


class Digest(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")


class Subject(BaseModel):
    """Something by its digest: `OPERATION.json` and `OPERATION.txt` (of the file's bytes), `manifest` (of its canonical
    form) and `events` (the hash of the last event that is counted, which rests on all before it)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(min_length=1)
    digest: Digest


class Made(BaseModel):
    """By which program."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    version: str


class Predicate(BaseModel):
    """`events` is how many events of the operation the receipt was made from; `attempt` is None where none was made."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    operation: str = Field(min_length=1)
    attempt: str | None
    events: int = Field(ge=1)
    at: AwareDatetime
    program: Made


class Statement(BaseModel):
    """See the in-toto Attestation Framework, Statement v1."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    type: Literal["https://in-toto.io/Statement/v1"] = Field(default=STATEMENT_TYPE, alias="_type")
    subject: tuple[Subject, ...] = Field(min_length=1)
    predicate_type: Literal["urn:interlock:receipt:1"] = Field(default=PREDICATE_TYPE, alias="predicateType")
    predicate: Predicate

    def canonical(self) -> bytes:
        """Its one spelling (RFC 8785), which is what is signed."""
        return rfc8785.dumps(self.model_dump(mode="json", by_alias=True))

    def digest_of(self, name: str) -> str | None:
        """SHA-256, lower-case hex, of the subject of that name; None where it is not among them."""
        return next((one.digest.sha256 for one in self.subject if one.name == name), None)


def statement(predicate: Predicate, *, files: Mapping[str, bytes], manifest: str | None, head: str) -> Statement:
    """`files` are the receipt's, by name; `manifest` its digest; `head` the hash of the last event that is counted."""
    digests = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
    if manifest is not None:
        digests[MANIFEST] = manifest
    digests[EVENTS] = head
    subjects = tuple(Subject(name=name, digest=Digest(sha256=sha256)) for name, sha256 in digests.items())
    return Statement(subject=subjects, predicate=predicate)


def attested(made: Statement, signers: Sequence[Signer]) -> Envelope:
    return signed(made.canonical(), PAYLOAD_TYPE, signers)


def read_statement(envelope: Envelope, keys: Mapping[str, Ed25519PublicKey]) -> tuple[Statement, tuple[str, ...]]:
    """The statement, and the ids of the keys that signed it. Raises `NotSigned`, and `EnvelopeUnreadable` for what is
    signed and is no statement of this kind in its one spelling, or names one subject twice."""
    data, by = opened(envelope, PAYLOAD_TYPE, keys)
    try:
        found = Statement.model_validate_json(data)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "it"
        raise EnvelopeUnreadable(
            f"what is signed is no statement that this program reads: {where}: {first['msg']}. A newer one may."
        ) from error
    if found.canonical() != data or len({one.name for one in found.subject}) != len(found.subject):
        raise EnvelopeUnreadable("what is signed is a statement in a second spelling.")
    return found, by
