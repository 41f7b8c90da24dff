"""The words of a flow author: destinations in one spelling, material in normal form, views, and what a rule fits."""

from __future__ import annotations

import hashlib
import inspect
import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from flows import flow as vocabulary
from flows.effect import (
    AbsenceGuarantee,
    Category,
    ClientKey,
    Contract,
    Effect,
    Meaning,
    Says,
    Undo,
    Write,
    one,
)
from flows.flow import Credentials, Flow, Identity, Intent, Payload, Submit, describe, view
from flows.observations import CouldNotLook, Found, Item, ItemState, NoLook, NotFound, Observation, Partial, Strength
from flows.pages import ComposerPage, ReadOnlyLocator, ReadOnlyPage
from flows.wire import OutgoingRequest, UnreadableBody


class Post(Payload):
    title: str
    tags: tuple[str, ...] = ()
    note: str = ""


def publishes(request: OutgoingRequest) -> bool:
    return request.form.get("status") == "publish"


EFFECT = Effect(name="post published", method="POST", path=r"/posts/\d+", matches=publishes, material=lambda _r: {})
AUTOSAVE = Write(
    name="autosave",
    method="POST",
    path=r"/posts/\d+",
    matches=lambda request: request.form.get("status") == "draft",
    may_cause_effect=False,
)
CONTRACT = Contract(
    read_answer=lambda _request, _answer: Meaning(says=Says.NOTHING, clause="nothing is documented"),
    category=Category.WRITE_WITHOUT_KEY,
    undo=Undo.REVERSIBLE_AT_A_COST,
    undo_instructions="Delete it in the list.",
)


class Cms(Flow[Post]):
    name = "cms"
    version = "1"
    action = "publish-post"
    summary = "Publishes a post."
    payload_model = Post
    immaterial = ("note",)
    unordered = ("tags",)
    effect = EFFECT
    supporting = (AUTOSAVE,)
    contract = CONTRACT
    session_cookies = ("sid",)

    async def prepare(self, page: ComposerPage, intent: Intent[Post]) -> Submit:
        raise NotImplementedError

    async def identify(self, page: ComposerPage, intent: Intent[Post]) -> Identity:
        raise NotImplementedError

    async def composed(self, page: ComposerPage, intent: Intent[Post]) -> dict[str, object]:
        raise NotImplementedError

    @view("published", opens=[r"/posts"], lists=True)
    async def published(self, page: ReadOnlyPage, intent: Intent[Post]) -> Observation:
        raise NotImplementedError

    @view("item", opens=[r"/posts/\d+"], fetches=[r"/api/posts/\d+"])
    async def item(self, page: ReadOnlyPage, intent: Intent[Post]) -> Observation:
        raise NotImplementedError


class Heir(Cms):
    @view("published", opens=[r"/archive"], lists=True)
    async def published(self, page: ReadOnlyPage, intent: Intent[Post]) -> Observation:
        raise NotImplementedError


class TestDestination:
    @pytest.mark.parametrize(
        "spelling",
        [
            "https://cms.example/blog",
            " https://cms.example/blog ",
            "HTTPS://CMS.Example/blog/",
            "https://cms.example:443/blog//",
            "https://cms.example./blog",
            "https://cms.example/blog?utm_source=x#top",
        ],
    )
    def test_one_spelling_for_one_place(self, spelling: str) -> None:
        assert Cms().canonical_destination(spelling) == "https://cms.example/blog"

    @pytest.mark.parametrize(
        "other",
        [
            "http://cms.example/blog",
            "https://cms.example:8443/blog",
            "https://cms.example/Blog",
            "https://www.cms.example/blog",
        ],
    )
    def test_another_place_stays_another(self, other: str) -> None:
        assert Cms().canonical_destination(other) != "https://cms.example/blog"

    @given(
        st.sampled_from(["http", "HTTPS"]),
        st.sampled_from(["cms.example", "CMS.example.", "127.0.0.1", "[::1]"]),
        st.sampled_from(["", ":80", ":443", ":8080"]),
        st.sampled_from(["", "/", "/a/", "/a/B//"]),
    )
    def test_the_form_is_stable(self, scheme: str, host: str, port: str, path: str) -> None:
        once = Cms().canonical_destination(f"{scheme}://{host}{port}{path}")
        assert Cms().canonical_destination(once) == once
        origin = Intent(
            task="t", action="a", destination=once, account="x", payload=Post(title=""), reference="op"
        ).origin
        assert once.startswith(origin)

    @pytest.mark.parametrize(
        "bad",
        [
            "",
            "cms.example",
            "/blog",
            "ftp://cms.example",
            "https://",
            "https://ada:pw@cms.example",
            "http://a:x",
            "http://a:0",
            # A browser reads these as other spellings of a host, and shows that one.
            "http://127.1",
            "http://2130706433",
            "http://0x7f000001",
            "http://127.0.0.01",
            "http://%31%32%37.0.0.1",
            "http://\uff11\uff12\uff17.0.0.1",
            "http://ex\u00e4mple.org",
            "http://[0:0::1]",
            "http://127.0.0.1\t.example",
            "http://cms..example",
        ],
    )
    def test_what_is_no_destination_is_refused_in_one_sentence(self, bad: str) -> None:
        with pytest.raises(ValueError, match="destination") as caught:
            Cms().canonical_destination(bad)
        assert "pw" not in str(caught.value)


class TestMaterial:
    def test_is_everything_but_what_is_named_with_sets_sorted(self) -> None:
        post = Post(title="T", tags=("b", "a"), note="for us")
        assert Cms().material(post) == {"title": "T", "tags": ["a", "b"]} == Cms().common_material(post)

    @pytest.mark.parametrize("bad", [{"title": "T", "extra": 1}, {"title": None}, {}, {"title": "T", "tags": "x"}])
    def test_a_payload_has_the_fields_of_its_model_and_no_others(self, bad: dict[str, Any]) -> None:
        with pytest.raises(ValidationError):
            Post.model_validate(bad)

    def test_a_payload_keeps_its_blanks_and_does_not_change(self) -> None:
        post = Post(title=" T \n")
        assert post.title == " T \n"
        with pytest.raises(ValidationError):
            post.title = "other"  # type: ignore[misc] # that it is refused is what is tested


class TestViews:
    def test_are_found_in_the_order_in_which_they_are_written(self) -> None:
        assert [(one.name, one.opens, one.fetches, one.lists) for one in Cms.views()] == [
            ("published", (r"/posts",), (), True),
            ("item", (r"/posts/\d+",), (r"/api/posts/\d+",), False),
        ]

    def test_an_heir_replaces_what_it_writes_anew(self) -> None:
        assert [(one.name, one.opens) for one in Heir.views()] == [
            ("published", (r"/archive",)),
            ("item", (r"/posts/\d+",)),
        ]

    def test_an_address_that_is_no_expression_is_refused_at_once(self) -> None:
        with pytest.raises(re.error):
            view("broken", opens=["("])(Cms.published)


class TestRules:
    def request(self, body: bytes = b"status=publish", **changes: Any) -> OutgoingRequest:
        whole: dict[str, Any] = {"method": "POST", "scheme": "https", "host": "cms.example", "port": 443}
        whole |= {"target": "/posts/7", "headers": (("content-type", "application/x-www-form-urlencoded"),)}
        return OutgoingRequest(**{**whole, "body": body, **changes})

    def test_two_rules_for_one_address_are_told_apart_by_the_body(self) -> None:
        publish, draft = self.request(), self.request(b"status=draft")
        here = publish.origin
        assert (EFFECT.fits(publish, here), AUTOSAVE.fits(publish, here)) == (True, False)
        assert (EFFECT.fits(draft, here), AUTOSAVE.fits(draft, here)) == (False, True)

    @pytest.mark.parametrize(
        "changes",
        [
            {"method": "PUT"},
            {"method": "post"},
            {"scheme": "http", "port": 80},
            {"host": "other.example"},
            {"port": 8443},
            {"target": "/posts/7/x"},
            {"target": "/a/posts/7"},
            {"target": "/posts/7%2Fx"},
            {"target": "/Posts/7"},
        ],
    )
    def test_method_origin_and_the_whole_path_must_fit(self, changes: dict[str, Any]) -> None:
        assert not EFFECT.fits(self.request(**changes), "https://cms.example")

    def test_the_query_is_no_part_of_the_path(self) -> None:
        assert EFFECT.fits(self.request(target="/posts/7?x=/y"), "https://cms.example")

    def test_a_rule_for_another_origin_fits_there_only(self) -> None:
        away = Effect(
            name="e", method="POST", path=".*", matches=publishes, material=lambda _r: {}, origin="https://api.example"
        )
        assert away.fits(self.request(host="api.example"), "https://cms.example")
        assert not away.fits(self.request(), "https://cms.example")

    @pytest.mark.parametrize("body", [b"status=draft&status=publish", b"status=publish&status%5B%5D=draft"])
    def test_a_body_that_says_both_fits_neither(self, body: bytes) -> None:
        both = self.request(body)
        for rule in (EFFECT, AUTOSAVE):
            with pytest.raises(UnreadableBody):
                rule.fits(both, both.origin)

    def test_what_the_predicate_raises_reaches_the_gate(self) -> None:
        with pytest.raises(UnreadableBody):
            EFFECT.fits(self.request(headers=()), "https://cms.example")

    def test_one_effect_unless_the_author_counts(self) -> None:
        assert EFFECT.count(self.request()) == one(self.request()) == 1
        assert EFFECT.item(self.request()) is None


class TestDescription:
    def test_is_plain_json_and_names_what_a_person_needs(self) -> None:
        shown = describe(Cms)
        assert json.loads(json.dumps(shown)) == shown
        assert shown["material"] == ["title", "tags"]
        assert shown["contract"]["undo"] == "reversible_at_a_cost"  # type: ignore[index] # a JSON object
        assert shown["contract"]["absence"] is None  # type: ignore[index] # a JSON object

    def test_shows_key_and_absence_where_the_contract_has_them(self) -> None:
        class Keyed(Cms):
            contract = Contract(
                read_answer=CONTRACT.read_answer,
                category=Category.WRITE_WITH_KEY,
                undo=Undo.IRREVERSIBLE,
                undo_instructions="None.",
                absence=AbsenceGuarantee(view="published", consistency_window_s=5, statement="Lists all at once."),
                key=ClientKey(
                    header="idempotency-key",
                    field=None,
                    scope="account",
                    lifetime_s=60,
                    attempts=2,
                    same_fields=(),
                    margin_s=5,
                ),
            )

        contract: Any = describe(Keyed)["contract"]
        assert (contract["absence"], contract["policy"]) == ("Lists all at once.", "absolute")
        assert contract["client_key"] == {
            "carried_in": "header idempotency-key",
            "scope": "account",
            "lifetime_s": 60,
            "margin_s": 5,
            "attempts": 2,
            "same_fields": [],
        }

    def test_the_code_digest_covers_the_flow_and_not_the_vocabulary(self) -> None:
        source = inspect.getsource(inspect.getmodule(Cms))  # type: ignore[arg-type] # a module of ours
        assert Cms.code_digest() == hashlib.sha256(b"Cms\0" + source.encode() + b"\0").hexdigest()
        assert Heir.code_digest() != Cms.code_digest()
        assert vocabulary.__name__ not in {klass.__module__ for klass in Cms.__mro__[:1]}

    def test_credentials_do_not_show_their_password(self) -> None:
        credentials = Credentials(user="ada", password="hunter2")
        assert "hunter2" not in f"{credentials!r} {credentials}"


class TestObservations:
    def test_only_the_two_strongest_establish(self) -> None:
        assert [one for one in Strength if one.establishes] == [Strength.PROVIDER_ID, Strength.EXACT_ITEM]
        assert list(Strength)[:2] == [Strength.PROVIDER_ID, Strength.EXACT_ITEM]

    def test_not_there_could_not_look_and_in_part_are_different(self) -> None:
        nothing: list[Observation] = [
            Found(items=(), scope="all", complete=True),
            NotFound(scope="all", complete=True),
            Partial(scope="all", reason="ten pages"),
            CouldNotLook(reason=NoLook.BLANK),
        ]
        assert all(one != other for one in nothing for other in nothing if one is not other)

    def test_an_item_does_not_change(self) -> None:
        with pytest.raises(AttributeError):
            Item(id="1", state=ItemState.DRAFT, strength=Strength.PARTIAL).state = ItemState.PUBLISHED  # type: ignore[misc] # frozen


class TestPages:
    ACTS = ("click", "dblclick", "tap", "check", "fill", "type", "press", "hover", "focus", "drag_to", "evaluate")

    def test_a_composer_page_has_no_way_around_its_gate(self) -> None:
        for name in ("request", "route", "context", "expose_function", "add_init_script", "on", "screenshot"):
            assert not hasattr(ComposerPage, name)

    @pytest.mark.parametrize("kind", [ReadOnlyPage, ReadOnlyLocator])
    def test_a_read_only_page_has_no_way_to_act(self, kind: type) -> None:
        for name in (
            *self.ACTS,
            "request",
            "route",
            "context",
            "goto",
            "keyboard",
            "mouse",
            "screenshot",
            "set_content",
        ):
            assert not hasattr(kind, name)
