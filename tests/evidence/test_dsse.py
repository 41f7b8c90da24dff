"""Envelopes: the encoding that is signed, and that nothing altered, retyped or re-spelled passes."""

from __future__ import annotations

import base64
import json

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from evidence.dsse import Envelope, EnvelopeUnreadable, NotSigned, opened, pre_authentication_encoding, signed
from evidence.store import EvidenceError

KIND = "application/vnd.in-toto+json"


class Key:
    def __init__(self, digit: str) -> None:
        self.key_id = digit * 64
        self.private = Ed25519PrivateKey.from_private_bytes(bytes([int(digit, 16)]) * 32)

    def sign(self, data: bytes) -> bytes:
        return self.private.sign(data)


OURS, OTHERS = Key("1"), Key("2")
KNOWN = {OURS.key_id: OURS.private.public_key()}


def test_what_is_signed_is_the_encoding_of_the_specification() -> None:
    encoded = pre_authentication_encoding("http://example.com/HelloWorld", b"hello world")
    assert encoded == b"DSSEv1 29 http://example.com/HelloWorld 11 hello world"


@given(st.binary(max_size=200))
def test_data_comes_back_as_it_was(data: bytes) -> None:
    envelope = Envelope.from_json(signed(data, KIND, [OURS, OTHERS]).to_json())
    assert opened(envelope, KIND, KNOWN) == (data, (OURS.key_id,))


def test_a_key_that_is_not_known_vouches_for_nothing() -> None:
    with pytest.raises(NotSigned, match="not known here"):
        opened(signed(b"data", KIND, [OTHERS]), KIND, KNOWN)


def test_another_type_is_not_opened() -> None:
    with pytest.raises(EnvelopeUnreadable):
        opened(signed(b"data", "text/plain", [OURS]), KIND, KNOWN)
    retyped = signed(b"data", "text/plain", [OURS]).model_copy(update={"payload_type": KIND})
    with pytest.raises(NotSigned, match="altered"):
        opened(retyped, KIND, KNOWN)


def test_every_byte_counts() -> None:
    """Any single change of the envelope is found, or gives the same data under the same signature."""
    data = b'{"subject": "an operation"}'
    raw = signed(data, KIND, [OURS]).to_json()
    refused = 0
    for at in range(len(raw)):
        for changed in {raw[at] ^ 1, raw[at] ^ 32}:
            damaged = raw[:at] + bytes([changed]) + raw[at + 1 :]
            try:
                found, _ = opened(Envelope.from_json(damaged), KIND, KNOWN)
            except EvidenceError:
                refused += 1
            else:
                assert found == data and json.loads(damaged) == json.loads(raw)
    assert refused > len(raw)


def test_a_second_spelling_of_the_same_bytes_is_refused() -> None:
    fields = json.loads(signed(b"data!", KIND, [OURS]).to_json())
    respelled = fields["payload"][:-2] + chr(ord(fields["payload"][-2]) + 1) + "="
    assert base64.b64decode(respelled) == b"data!"
    with pytest.raises(EnvelopeUnreadable, match="second spelling"):
        opened(Envelope.from_json(json.dumps({**fields, "payload": respelled}).encode()), KIND, KNOWN)


@pytest.mark.parametrize("raw", [b"", b"{}", b"[]", b'{"payload": "", "payloadType": "x", "signatures": []}', b"\xff"])
def test_what_is_no_envelope(raw: bytes) -> None:
    with pytest.raises(EnvelopeUnreadable):
        Envelope.from_json(raw)
