"""Canonical form, fingerprints and identities: what must not matter does not, and what may matter does (A3, A4)."""

from __future__ import annotations

import hashlib
from dataclasses import fields, replace
from typing import Any

import pytest
import rfc8785
from hypothesis import assume, given
from hypothesis import strategies as st
from model_builders import intent

from executor.model import fingerprint
from executor.model.fingerprint import NotCanonical, canonical, digest
from executor.model.operation import account_key

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
numbers = st.integers(-(2**53) + 1, 2**53 - 1) | st.floats(allow_nan=False, allow_infinity=False)
values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | numbers | text,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(text, inner, max_size=4),
    max_leaves=10,
)
materials = st.dictionaries(text, values, max_size=5)


def turned(value: Any) -> Any:
    """The same value with every object's members in the opposite order."""
    if isinstance(value, dict):
        return {key: turned(inner) for key, inner in reversed(value.items())}
    return [turned(inner) for inner in value] if isinstance(value, list) else value


@given(materials)
def test_the_order_of_members_does_not_matter(material: dict[str, Any]) -> None:
    assert canonical(turned(material)) == canonical(material)
    assert fingerprint.fingerprint(turned(material)) == fingerprint.fingerprint(material)


@given(materials, text, text, st.characters(exclude_categories=["Cs"]), st.integers(0, 20))
def test_one_changed_character_matters(material: dict[str, Any], key: str, old: str, char: str, at: int) -> None:
    new = old[:at] + char + old[at + 1 :]
    assume(new != old)
    before, after = {**material, key: old}, {**material, key: new}
    assert fingerprint.fingerprint(before) != fingerprint.fingerprint(after)


@given(materials, text)
def test_a_missing_field_is_not_an_empty_one(material: dict[str, Any], key: str) -> None:
    material.pop(key, None)
    without = fingerprint.fingerprint(material)
    assert len({without, *(fingerprint.fingerprint({**material, key: v}) for v in (None, "", [], False))}) == 5


@given(values)
def test_a_label_keeps_kinds_apart(value: Any) -> None:
    labels = ("material", "intent", "slot", "look-alike", "event", "provider-key", "intent/1\n")
    assert len({digest(label, value) for label in labels}) == len(labels)


def test_the_fingerprint_is_what_the_documents_say() -> None:
    known = hashlib.sha256(b'interlock/material/1\n{"a":1,"b":"\xc3\xa9"}').hexdigest()
    assert fingerprint.fingerprint({"b": "é", "a": 1.0}) == known


def test_the_examples_of_rfc_8785() -> None:
    numbers = [333333333.33333329, 1e30, 4.50, 2e-3, 0.000000000000000000000000001]
    assert canonical(numbers) == b"[333333333.3333333,1e+30,4.5,0.002,1e-27]"
    assert canonical({"\u20ac": 1, "\r": 2, "1": 3, "\U0001f600": 4, "\ufb33": 5}) == (
        '{"\\r":2,"1":3,"\u20ac":1,"\U0001f600":4,"\ufb33":5}'.encode()
    )


def test_unicode_is_not_normalised() -> None:
    assert fingerprint.fingerprint({"t": "\u00e9"}) != fingerprint.fingerprint({"t": "e\u0301"})


@pytest.mark.parametrize(
    "value",
    [float("nan"), float("inf"), 2**53, {1: "a"}, {"a": {1}}, b"bytes", "\ud800", {"\ud800": 1}, object()],
    ids=repr,
)
def test_what_has_no_canonical_form_is_refused(value: Any) -> None:
    with pytest.raises(NotCanonical, match="no canonical form"):
        canonical({"v": value})


IDENTITY = ("task", "action", "destination", "account")


class TestIdentity:
    @given(st.tuples(text, text, text, text), materials, st.tuples(text, text, text, text), materials)
    def test_the_same_five_parts_and_nothing_else(
        self, one: tuple[str, ...], material: dict[str, Any], other: tuple[str, ...], changed: dict[str, Any]
    ) -> None:
        first = intent(**dict(zip(IDENTITY, one, strict=True)), material=material)
        second = intent(**dict(zip(IDENTITY, other, strict=True)), material=changed)
        same = one == other and rfc8785.dumps(material) == rfc8785.dumps(changed)
        assert (first.identity == second.identity) == same
        assert (first.slot == second.slot) == (one == other)
        again = replace(first, flow="another", payload={"x": 1}, common={}, after=("op",))
        assert (again.identity, again.slot) == (first.identity, first.slot)

    @pytest.mark.parametrize("part", IDENTITY)
    def test_each_part_counts(self, part: str) -> None:
        assert intent(**{part: "changed"}).identity != intent().identity
        assert intent(**{part: "changed"}).slot != intent().slot

    def test_changed_material_is_another_intent_in_the_same_slot(self) -> None:
        changed = intent(material={"title": "Hello!", "body": "World"})
        assert changed.identity != intent().identity
        assert changed.slot == intent().slot

    def test_parts_do_not_run_into_each_other(self) -> None:
        assert intent(task="a", action="bc").identity != intent(task="ab", action="c").identity

    def test_a_look_alike_is_independent_of_task_flow_and_flow_specific_material(self) -> None:
        other = intent(task="task-2", flow="another", payload={}, material={"title": "Hello", "extra": 1}, after=("x",))
        assert other.look_alike == intent().look_alike
        assert other.identity != intent().identity

    @pytest.mark.parametrize(
        "changes", [{"action": "x"}, {"destination": "x"}, {"account": "x"}, {"common": {"title": "Hello"}}]
    )
    def test_a_look_alike_shares_action_place_account_and_common_material(self, changes: dict[str, Any]) -> None:
        assert intent(**changes).look_alike != intent().look_alike

    def test_no_part_of_an_intent_is_forgotten(self) -> None:
        outside = {"flow", "payload", "common", "after", "deadline"}
        assert {field.name for field in fields(intent())} == {*IDENTITY, "material", *outside}

    @given(text, text)
    def test_a_provider_key_tells_nothing_and_stays_the_same(self, one: str, other: str) -> None:
        first, second = intent(task=one).identity, intent(task=other).identity
        assert fingerprint.provider_key(first) == fingerprint.provider_key(intent(task=one).identity)
        assert (fingerprint.provider_key(first) == fingerprint.provider_key(second)) == (one == other)
        assert first[:8] not in fingerprint.provider_key(first)


@given(st.dictionaries(text, values), text)
def test_a_chain_depends_on_what_came_before(event: dict[str, Any], previous: str) -> None:
    assert fingerprint.chain(previous, event) == fingerprint.chain(previous, turned(event))
    assert fingerprint.chain(previous, event) != fingerprint.chain(previous + "x", event)


def test_an_account_is_leased_by_site() -> None:
    assert account_key("https://a.example/blog", "ada") == account_key("https://a.example/shop/x", "ada")
    assert account_key("https://a.example/blog", "ada") != account_key("https://a.example:8443/blog", "ada")
    assert account_key("https://a.example/blog", "ada") != account_key("http://a.example/blog", "ada")
    assert account_key("https://a.example/blog", "ada") != account_key("https://a.example/blog", "bob")
