"""Each fault on a real socket: what the client sees, and what the record says was stored."""

from __future__ import annotations

import http.client
import json
import socket
import time

import pytest

from playground.faults import Fault
from playground.process import Playground
from playground.truth import Truth

STORED = {
    Fault.LATE,
    Fault.LOST,
    Fault.RESET_AFTER,
    Fault.CLOSE_AFTER,
    Fault.TRUNCATED,
    Fault.STATUS_408_AFTER,
    Fault.STATUS_500_AFTER,
    Fault.NO_CONTENT,
    Fault.STATUS_429_AFTER,
    Fault.STATUS_502_AFTER,
    Fault.ERROR_IN_200_AFTER,
    Fault.SHORTENED,
}


def wait_for_fault(truth: Truth) -> None:
    """Until the record names the fault; the client sees nothing that could be awaited."""
    deadline = time.monotonic() + 5
    while not any(r.fault for r in truth.requests(writes_only=True)):
        assert time.monotonic() < deadline, "the fault was never taken"
        time.sleep(0.01)


@pytest.mark.parametrize("fault", list(Fault))
def test_only_an_after_fault_stores_the_write(site: Playground, editor, fault: Fault) -> None:
    site.truth.inject(fault, path_prefix="/form/publish", argument="0.05" if fault is Fault.LATE else None)
    editor.send_form("/form/publish", title="T", body="B")
    if fault in (Fault.LOST, Fault.LOST_BEFORE):
        wait_for_fault(site.truth)
    else:
        try:
            editor.receive()
        except (ConnectionError, http.client.HTTPException):
            editor.connection.close()
    assert site.truth.publish_count("T") == (2 if fault is Fault.TWICE else int(fault in STORED))
    assert site.truth.pending_faults() == []
    assert [r.fault for r in site.truth.requests(writes_only=True)] == [fault.value]


def test_late_answers_after_the_commit(site: Playground, editor) -> None:
    site.truth.inject(Fault.LATE, path_prefix="/form", argument=0.4)
    began = time.monotonic()
    editor.send_form("/form/publish", title="T")
    wait_for_fault(site.truth)
    assert editor.receive().status == 302
    assert time.monotonic() - began >= 0.4


@pytest.mark.parametrize("fault", [Fault.LOST, Fault.LOST_BEFORE])
def test_lost_says_nothing_and_keeps_the_connection(site: Playground, editor, fault: Fault) -> None:
    site.truth.inject(fault, path_prefix="/form")
    editor.send_form("/form/publish", title="T")
    wait_for_fault(site.truth)
    editor.connection.sock.settimeout(0.3)
    with pytest.raises(TimeoutError):
        editor.connection.sock.recv(1)


@pytest.mark.parametrize("fault", [Fault.RESET_AFTER, Fault.RESET_BEFORE])
def test_reset_is_a_tcp_reset(site: Playground, editor, fault: Fault) -> None:
    site.truth.inject(fault, path_prefix="/form")
    editor.send_form("/form/publish", title="T")
    with pytest.raises(ConnectionResetError):
        editor.connection.sock.recv(1)


@pytest.mark.parametrize("fault", [Fault.CLOSE_AFTER, Fault.CLOSE_BEFORE])
def test_close_is_an_orderly_end_without_an_answer(site: Playground, editor, fault: Fault) -> None:
    site.truth.inject(fault, path_prefix="/form")
    editor.send_form("/form/publish", title="T")
    assert editor.connection.sock.recv(1) == b""


def test_truncated_announces_more_than_it_sends(site: Playground, editor) -> None:
    site.truth.inject(Fault.TRUNCATED, path_prefix="/api")
    with pytest.raises(http.client.IncompleteRead):
        editor.json("POST", "/api/items", title="T", body="", status="published")
    assert site.truth.publish_count() == 1


@pytest.mark.parametrize(
    ("fault", "status"),
    [
        (Fault.STATUS_408_AFTER, 408),
        (Fault.STATUS_500_AFTER, 500),
        (Fault.STATUS_500_BEFORE, 500),
        (Fault.NO_CONTENT, 204),
        (Fault.STATUS_409, 409),
        (Fault.STATUS_429_BEFORE, 429),
        (Fault.STATUS_429_AFTER, 429),
        (Fault.STATUS_502_BEFORE, 502),
        (Fault.STATUS_502_AFTER, 502),
        (Fault.ERROR_IN_200_BEFORE, 200),
        (Fault.ERROR_IN_200_AFTER, 200),
        (Fault.STALE_NONCE, 403),
    ],
)
def test_status_faults_answer_with_that_status(site: Playground, editor, fault: Fault, status: int) -> None:
    site.truth.inject(fault, path_prefix="/form")
    answer = editor.form("/form/publish", title="T")
    assert answer.status == status
    assert (answer.headers["Connection"] == "close") == (status == 408)
    assert (answer.headers["Retry-After"] == "3") == (status == 429)


def test_the_session_may_seem_to_have_ended(site: Playground, editor) -> None:
    site.truth.inject(Fault.REDIRECT_LOGIN, path_prefix="/form")
    answer = editor.form("/form/publish", title="T")
    assert (answer.status, answer.location) == (302, "/login")


def test_a_307_leads_to_another_place_that_commits(site: Playground, editor) -> None:
    site.truth.inject(Fault.REDIRECT_307, path_prefix="/form")
    answer = editor.form("/form/publish", title="T")
    assert (answer.status, answer.location) == (307, "/other-publish")
    assert site.truth.publish_count() == 0
    editor.form(answer.location, title="T")
    assert [item.variant for item in site.truth.published()] == ["other"]
    site.truth.inject(Fault.REDIRECT_307, path_prefix="/form", argument="/upload")
    assert editor.form("/form/publish", title="T").location == "/upload"


def test_queued_accepts_for_review(site: Playground, editor) -> None:
    site.truth.inject(Fault.QUEUED, path_prefix="/", times=2)
    answer = editor.form("/form/publish", title="T")
    assert answer.location.startswith("/form/queued?item=")
    assert "Queued for review" in editor.get(answer.location).text
    accepted = editor.json("POST", "/api/items", title="T", body="", status="published")
    assert accepted.status == 202
    assert '"state": "queued"' in accepted.text
    assert len(site.truth.items("queued")) == 2
    assert site.truth.publish_count() == 0
    assert len(site.truth.commits("queue")) == 2


@pytest.mark.parametrize("fault", [Fault.ERROR_IN_200_BEFORE, Fault.STALE_NONCE])
def test_a_script_is_told_in_json(site: Playground, editor, fault: Fault) -> None:
    site.truth.inject(fault, path_prefix="/api")
    answer = editor.json("POST", "/api/items", title="T", body="", status="published")
    assert json.loads(answer.body)["errors"]


def test_what_is_moderated_looks_published_to_whoever_sent_it(site: Playground, editor) -> None:
    site.truth.inject(Fault.MODERATED, path_prefix="/form", times=2)
    assert [editor.form("/form/publish", title=title).location[:11] for title in "AB"] == ["/form/done?"] * 2
    first, second = site.truth.items("queued")
    assert (site.truth.publish_count(), len(site.truth.commits("queue"))) == (0, 2)
    site.truth.moderate(first.id, approve=True)
    site.truth.moderate(second.id, approve=False)
    assert [(item.title, item.state) for item in site.truth.items()] == [("A", "published"), ("B", "refused")]
    assert site.truth.publish_count() == 1
    with pytest.raises(ValueError):
        site.truth.moderate(second.id, approve=True)
    assert "Refused" in editor.get("/mine").text


def test_twice_is_two_items_for_one_request(site: Playground, editor) -> None:
    site.truth.inject(Fault.TWICE, path_prefix="/form")
    assert editor.form("/form/publish", title="T").status == 302
    assert len(site.truth.published()) == 2
    assert len({commit.request_seq for commit in site.truth.commits()}) == 1


@pytest.mark.parametrize(("argument", "title"), [(None, "Off"), ("body", "Office")])
def test_shortened_stores_half(site: Playground, editor, argument: str | None, title: str) -> None:
    site.truth.inject(Fault.SHORTENED, path_prefix="/form", argument=argument)
    editor.form("/form/publish", title="Office", body="1234")
    assert [(item.title, item.body) for item in site.truth.published()] == [(title, "12")]


def test_lists_may_lag_by_looks(site: Playground, editor) -> None:
    site.truth.arrange_lists(lag_looks=2)
    item = editor.form("/form/publish", title="Late notice").location.rpartition("=")[2]
    assert editor.get(f"/items/{item}").status == 200
    assert ["Late notice" in editor.get("/mine").text for _ in range(3)] == [False, False, True]
    assert "Late notice" in editor.get("/").text


def test_lists_may_lag_by_time(site: Playground, editor) -> None:
    site.truth.arrange_lists(lag_seconds=60)
    editor.form("/form/publish", title="Late notice")
    site.truth.arrange_lists()
    editor.form("/form/publish", title="Prompt notice")
    mine = editor.get("/mine").text
    assert "Prompt notice" in mine
    assert "Late notice" not in mine


def test_lists_may_have_pages(site: Playground, editor) -> None:
    site.truth.arrange_lists(page_size=2)
    for title in ("first", "second", "third"):
        editor.form("/form/publish", title=f"The {title}")
    for path in ("/", "/mine"):
        pages = [editor.get(path).text, editor.get(f"{path}?page=2").text]
        assert ["The first" in page for page in pages] == [False, True]
        assert [f'rel="next" href="{path}?page=2"' in page for page in pages] == [True, False]
        assert editor.get(f"{path}?page=3").status == 404
    site.truth.arrange_lists(page_size=2, oldest_first=True)
    assert "The third" in editor.get("/mine?page=2").text


def test_a_fault_waits_for_a_publish_unless_told_otherwise(site: Playground, editor) -> None:
    site.truth.inject(Fault.STATUS_500_BEFORE, path_prefix="/autosave")
    address = editor.get("/autosave/new").location
    assert editor.form(address, title="T").status == 200
    assert editor.form(address, title="T", **{"action-publish": "Publish"}).status == 500
    site.truth.inject(Fault.STATUS_500_BEFORE, path_prefix="/autosave", commit="any")
    assert editor.form(address, title="T").status == 500
    site.truth.inject(Fault.STATUS_500_BEFORE, path_prefix="/upload", commit="any")
    editor.send("POST", "/upload", b"x")
    assert editor.receive().status == 500


def test_faults_are_taken_in_order_for_the_matching_method_and_path(site: Playground, editor) -> None:
    site.truth.inject(Fault.STATUS_500_BEFORE, path_prefix="/api/items", method="PUT")
    site.truth.inject(Fault.NO_CONTENT, path_prefix="/form", method="any", times=2)
    assert editor.json("POST", "/api/items", title="T", body="", status="published").status == 201
    assert [editor.form("/form/publish", title="T").status for _ in range(3)] == [204, 204, 302]
    assert site.truth.pending_faults() == [("status_500_before", 1)]
    site.truth.clear_faults()
    assert site.truth.pending_faults() == []


def test_a_fault_for_reused_connections_spares_the_first_request(site: Playground, editor) -> None:
    site.truth.inject(Fault.RESET_AFTER, path_prefix="/form", argument="reused")
    assert editor.form("/form/publish", title="T").status == 302
    with pytest.raises(ConnectionResetError):
        editor.form("/form/publish", title="T")
    assert site.truth.publish_count() == 2


@pytest.mark.parametrize(
    "wrong",
    [{"fault": "nonsense"}, {"commit": "nonsense"}, {"times": 0}, {"fault": "late", "argument": "soon"}],
)
def test_a_fault_that_means_nothing_is_refused(site: Playground, wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError):
        site.truth.inject(**{"fault": "lost", "path_prefix": "/", **wrong})


def test_what_is_not_http_ends_the_connection_and_nothing_else(site: Playground, editor) -> None:
    port = int(site.plain.rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port), timeout=5) as raw:
        raw.sendall(b"\x00\x01 not http\r\n\r\n")
        with pytest.raises(ConnectionResetError):
            raw.recv(1)
    assert editor.get("/").status == 200
