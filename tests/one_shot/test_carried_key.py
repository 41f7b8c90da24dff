"""The key on the outgoing request: there exactly once and readable in one way, or not there (B3, C3)."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from executor.one_shot.material import carried_key
from flows.effect import ClientKey
from flows.wire import OutgoingRequest

FORM, JSON = "application/x-www-form-urlencoded", "application/json"
VALUES = st.sampled_from(["il-1", "il-2", "", "il-1, il-2"])


def key(header: str | None = None, field: str | None = None) -> ClientKey:
    return ClientKey(header=header, field=field, scope="account", lifetime_s=3600, attempts=2, same_fields=())


def request(*headers: tuple[str, str], kind: str = "", body: str = "") -> OutgoingRequest:
    head = (("content-type", kind), *headers) if kind else headers
    return OutgoingRequest("POST", "https", "site.example", 443, "/items", head, body.encode())


@given(st.lists(VALUES, max_size=3))
def test_a_header_counts_when_it_is_there_once(values: list[str]) -> None:
    made = request(*(("idempotency-key", value) for value in values))
    assert carried_key(made, key(header="Idempotency-Key")) == (values[0] if len(values) == 1 else None)


@given(st.lists(st.sampled_from(["il-1", "il-2"]), max_size=3))
def test_a_field_of_a_form_counts_when_it_is_there_once(values: list[str]) -> None:
    made = request(kind=FORM, body="&".join(["title=T", *(f"key={value}" for value in values)]))
    assert carried_key(made, key(field="key")) == (values[0] if len(values) == 1 else None)


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ('{"key": "il-1", "title": "T"}', "il-1"),
        ('{"title": "T"}', None),
        ('{"key": 1}', None),
        ('{"key": null}', None),
        ('{"key": "il-1", "key": "il-1"}', None),
        ('["key"]', None),
        ("{", None),
    ],
)
def test_a_member_of_a_json_body(body: str, found: str | None) -> None:
    assert carried_key(request(kind=JSON, body=body), key(field="key")) == found
    assert carried_key(request(kind="application/vnd.site+json", body=body), key(field="key")) == found


def test_a_body_of_another_kind_carries_none() -> None:
    assert carried_key(request(kind="text/plain", body=json.dumps({"key": "il-1"})), key(field="key")) is None
    assert carried_key(request(), key(field="key")) is None
