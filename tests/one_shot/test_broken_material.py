"""Which saves show what the effect publishes (C3): those of its own item, in the order in which the site may have
applied them."""

from __future__ import annotations

from collections.abc import Mapping

from executor.gate.state import Carried
from executor.one_shot.material import differences, on_the_wire
from flows.effect import Effect, Write
from flows.wire import Answer, OutgoingRequest

APPROVED = {"title": "T", "body": "B"}


def _request(target: str, body: str = "") -> OutgoingRequest:
    head = (("content-type", "application/x-www-form-urlencoded"),)
    return OutgoingRequest("POST", "http", "site.example", 80, target, head, body.encode())


def _fields(request: OutgoingRequest, _answer: Answer | None = None) -> Mapping[str, str]:
    return {name: value for name, value in request.form.fields if name in APPROVED}


EFFECT = Effect(
    name="published",
    method="POST",
    path=r"/publish/\d+",
    matches=lambda _request: True,
    material=_fields,
    item=lambda request: request.path.rpartition("/")[2],
)
SAVE = Write(
    name="save",
    method="POST",
    path=r"/save/\d+",
    matches=lambda _request: True,
    may_cause_effect=False,
    material=_fields,
    item=lambda request, _answer: request.path.rpartition("/")[2],
)


def _saved(item: str, body: str, *, at: float) -> Carried:
    return Carried(
        sequence=int(at),
        write=SAVE,
        request=_request(f"/save/{item}", body),
        answer=Answer(200, (), b"", True),
        left_at=at,
        answered_at=at + 0.5,
    )


def test_a_save_of_another_item_shows_nothing_of_this_one() -> None:
    shown = on_the_wire(EFFECT, _request("/publish/7"), [_saved("8", "title=T&body=B", at=1)], APPROVED)
    assert (dict(shown.shown), shown.differs, shown.unseen) == ({}, (), ("body", "title"))


def test_a_later_save_of_another_item_hides_no_difference() -> None:
    saves = [_saved("7", "title=T&body=other", at=1), _saved("8", "title=T&body=B", at=2)]
    assert on_the_wire(EFFECT, _request("/publish/7"), saves, APPROVED).differs == ("body",)


def test_the_last_save_of_the_item_counts() -> None:
    saves = [_saved("7", "title=T&body=other", at=1), _saved("7", "title=T&body=B", at=2)]
    shown = on_the_wire(EFFECT, _request("/publish/7"), saves, APPROVED)
    assert (shown.differs, shown.unseen) == ((), ())


def test_a_field_that_nobody_approved_is_a_difference() -> None:
    assert on_the_wire(EFFECT, _request("/publish/7", "title=T&body=B"), [], {"title": "T"}).differs == ("body",)
    assert differences({"title": "T"}, APPROVED) == ("body",)


def test_a_field_that_was_not_read_is_a_difference_on_the_page() -> None:
    assert differences(APPROVED, {"title": "T"}) == ("body",)
