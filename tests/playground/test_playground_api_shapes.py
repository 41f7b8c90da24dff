"""GraphQL, a form with a picture, two permissions: what the site stores for what it is sent."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

import pytest

from playground.faults import Fault
from playground.messages import CommitKind

SAVE = "mutation Save($title: String!) { saved: saveDraft(title: $title) { id } }"
PUBLISH = "mutation Publish($id: Int!) { publishNotice(id: $id) { id state url } }"


def graph(visitor: Any, value: Any, nonce: str | None = None) -> Any:
    headers = {"Content-Type": "application/json", "X-Nonce": visitor.csrf if nonce is None else nonce}
    visitor.send("POST", "/graphql", json.dumps(value).encode(), headers)
    return visitor.receive()


def draft(visitor: Any, title: str = "T") -> int:
    saved = graph(visitor, {"query": SAVE, "variables": {"title": title}})
    return int(json.loads(saved.body)["data"]["saved"]["id"])


class TestGraphql:
    def test_saves_publishes_and_lists(self, site, editor) -> None:
        number = draft(editor)
        done = json.loads(graph(editor, {"query": PUBLISH, "variables": {"id": number}}).body)
        expected = {"id": number, "state": "published", "url": f"/items/{number}"}
        assert done == {"data": {"publishNotice": expected}}
        notices = json.loads(graph(editor, {"query": "{ notices { total items { id } } }"}).body)["data"]["notices"]
        assert (notices["total"], notices["items"][0]["title"]) == (1, "T")
        assert [commit.kind for commit in site.truth.commits(None)] == ["draft", "publish"]

    @pytest.mark.parametrize(
        "query",
        [
            "mutation { a: publishNotice(id: ID) { id } b: publishNotice(id: ID) { id } }",
            "mutation { ...P ...P } fragment P on Mutation { publishNotice(id: ID) { id } }",
            "query mutation { me { name } } mutation Two { publishNotice(id: ID) publishNotice(id: ID) }",
        ],
    )
    def test_carries_out_every_mutation_of_a_document(self, site, editor, query: str) -> None:
        text = query.replace("ID", str(draft(editor)))
        graph(editor, {"query": text, "operationName": "Two" if "Two" in text else None})
        assert site.truth.publish_count() == 2

    def test_carries_out_every_call_of_a_batch(self, site, editor) -> None:
        call = {"query": PUBLISH, "variables": {"id": draft(editor)}}
        assert len(json.loads(graph(editor, [call, call]).body)) == 2
        assert site.truth.publish_count() == 2

    def test_takes_a_mutation_by_get(self, site, editor) -> None:
        text = quote(f"mutation {{ publishNotice(id: {draft(editor)}) }}")
        editor.send("GET", f"/graphql?query={text}", None, {"X-Nonce": editor.csrf})
        assert editor.receive().status == 200
        assert site.truth.publish_count() == 1

    def test_reads_no_mutation_in_a_comment_or_a_text(self, site, editor) -> None:
        query = '# mutation { publishNotice(id: 1) }\n{ me(a: "mutation { publishNotice }") { name } }'
        assert json.loads(graph(editor, {"query": query}).body) == {"data": {"me": {"name": "editor"}}}

    def test_refuses_with_a_code(self, site, editor) -> None:
        stale = graph(editor, {"query": SAVE, "variables": {"title": "T"}}, nonce="old")
        assert (stale.status, json.loads(stale.body)["errors"][0]["extensions"]["code"]) == (403, "STALE_NONCE")
        for query, code in (
            ("mutation { publishNotice(id: 99) }", "NOT_FOUND"),
            (f'mutation {{ publishNotice(id: {draft(editor)}, title: " ") }}', "TITLE_NEEDED"),
            ("mutation { deleteEverything }", "UNKNOWN_FIELD"),
        ):
            assert json.loads(graph(editor, {"query": query}).body)["errors"][0]["extensions"]["code"] == code
        assert site.truth.publish_count() == 0
        assert editor.get("/graph/nonce").text == editor.csrf

    @pytest.mark.parametrize("body", [{}, {"query": "}"}, {"query": "mutation"}, [1], {"query": PUBLISH[:30]}])
    def test_what_is_no_graphql_is_not_understood(self, site, editor, body: Any) -> None:
        assert graph(editor, body).status == 400

    def test_faults_wait_for_the_publish(self, site, editor) -> None:
        site.truth.inject(Fault.QUEUED, path_prefix="/graphql")
        number = draft(editor)
        done = json.loads(graph(editor, {"query": PUBLISH, "variables": {"id": number}}).body)
        assert done["data"]["publishNotice"]["state"] == "queued"
        assert site.truth.pending_faults() == []


def send_picture(visitor: Any, title: str, *, name: str = "a.png", content: bytes = b"\x89PNG\r\n\r\n\n--b") -> Any:
    parts = [
        f'--bb\r\nContent-Disposition: form-data; name="csrf"\r\n\r\n{visitor.csrf}\r\n'.encode(),
        f'--bb\r\nContent-Disposition: form-data; name="title"\r\n\r\n{title}\r\n'.encode(),
        f'--bb\r\nContent-Disposition: form-data; name="image"; filename="{name}"\r\n'.encode(),
        b"Content-Type: image/png\r\n\r\n" + content + b"\r\n--bb--\r\n",
    ]
    visitor.send("POST", "/photo/publish", b"".join(parts), {"Content-Type": "multipart/form-data; boundary=bb"})
    return visitor.receive()


class TestPicture:
    def test_is_stored_byte_by_byte_and_shown(self, site, editor) -> None:
        item = int(send_picture(editor, "T").location.rpartition("=")[2])
        image = site.truth.image(item)
        assert (image.name, image.media_type, image.content) == ("a.png", "image/png", b"\x89PNG\r\n\r\n\n--b")
        assert f'data-image-sha256="{image.sha256}"' in editor.get(f"/items/{item}").text
        assert editor.get(f"/items/{item}/image").body == image.content
        assert editor.get("/items/999/image").status == 404

    def test_is_asked_for(self, site, editor) -> None:
        assert "Choose a picture." in send_picture(editor, "T", name="").text
        assert "Give your notice a title." in send_picture(editor, "").text
        assert site.truth.publish_count() == 0


class TestPermissions:
    @staticmethod
    def token(visitor: Any, consent: Any = True) -> Any:
        visitor.send(
            "POST",
            "/review/permission",
            json.dumps({"consent": consent}).encode(),
            {"Content-Type": "application/json"},
        )
        return visitor.receive()

    def test_is_good_once_and_for_its_account(self, site, editor) -> None:
        token = json.loads(self.token(editor).body)["token"]
        fields = {"token": token, "title": "T", "body": "B"}
        assert editor.json("POST", "/review/publish", **fields).status == 201
        assert editor.json("POST", "/review/publish", **fields).status == 409
        foreign = site.truth.grant("second", "publisher")
        assert editor.json("POST", "/review/publish", token=foreign, title="T", body="").status == 409
        assert self.token(editor, consent="yes").status == 422
        assert site.truth.publish_count() == 1

    def test_of_an_author_waits_for_a_publisher(self, site, editor) -> None:
        editor.session = site.truth.open_session("second")
        token = json.loads(self.token(editor).body)["token"]
        answer = editor.json("POST", "/review/publish", token=token, title="T", body="B")
        assert (answer.status, json.loads(answer.body)["state"]) == (202, "queued")
        assert [commit.kind for commit in site.truth.commits(None)] == [CommitKind.QUEUE]
