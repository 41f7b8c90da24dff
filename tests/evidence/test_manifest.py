from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from evidence.manifest import (
    Manifest,
    ManifestUnreadable,
    get_manifest,
    load_manifest,
    put_manifest,
    save_manifest,
)
from evidence.records import Capture, Gap, GapReason, Item, ItemKind, Point, Quality
from evidence.redaction import Kind, Masked, Redactor
from evidence.store import FileStore
from evidence.verification import verify
from evidence.wire_log import store_wire_log


def _item(store: FileStore, data: bytes, kind: ItemKind = ItemKind.DOM) -> Item:
    blob = store.put(data, media_type="text/html")
    return Item(kind, blob.sha256, blob.size, blob.media_type, (Masked(Kind.TOKEN, "query token", 2),), "a note")


def _capture(*items: Item) -> Capture:
    return Capture(
        point=Point.VIEW,
        label="published",
        url="http://h/",
        title="T",
        taken_at=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
        monotonic=12.5,
        items=items,
        gaps=(Gap("screenshot", GapReason.TIMED_OUT, "nothing came within 5.0 s"),),
        quality=Quality.USABLE,
    )


@pytest.fixture
def manifest(store: FileStore) -> Manifest:
    first = Manifest(operation_id="op-1", attempt_id="at-1").with_capture(_capture(_item(store, b"one")))
    second = first.with_capture(_capture(_item(store, b"two"), _item(store, b"three", ItemKind.ACCESSIBILITY)))
    return second.with_wire_log(_item(store, b"{}\n", ItemKind.WIRE_LOG))


def test_it_grows_by_making_a_new_one(store: FileStore) -> None:
    empty = Manifest(operation_id="op-1")
    grown = empty.with_capture(_capture(_item(store, b"one")))
    assert empty.entries == ()
    assert len(grown.entries) == 1
    assert grown.digest() != empty.digest()


def test_saved_loaded_and_put_it_is_the_same(manifest: Manifest, store: FileStore, tmp_path: Path) -> None:
    place = save_manifest(tmp_path / "op-1", manifest)
    assert place.stat().st_mode & 0o777 == 0o600
    assert [file.name for file in place.parent.iterdir()] == ["manifest.json"]
    assert load_manifest(place.parent) == manifest
    assert load_manifest(place.parent).digest() == manifest.digest()
    blob = put_manifest(store, manifest)
    assert blob.sha256 == manifest.digest()
    assert get_manifest(store, blob.sha256) == manifest


def test_the_canonical_form_is_the_documented_one(manifest: Manifest) -> None:
    text = manifest.canonical().decode()
    assert json.loads(text)["entries"][0]["taken_at"] == "2026-01-02T03:04:05Z"
    assert ": " not in text.replace("nothing came", "")
    assert list(json.loads(text)) == sorted(json.loads(text))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"schema_version": 2}, "use a newer Interlock"),
        ({"surprise": 1}, "surprise"),
        ({"entries": [{}]}, "entries.0"),
    ],
)
def test_one_that_cannot_be_read_says_why(
    manifest: Manifest, tmp_path: Path, change: dict[str, Any], says: str
) -> None:
    place = save_manifest(tmp_path, manifest)
    place.write_text(json.dumps(json.loads(place.read_text()) | change))
    with pytest.raises(ManifestUnreadable, match=says):
        load_manifest(tmp_path)


def test_a_missing_one_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ManifestUnreadable, match="cannot read"):
        load_manifest(tmp_path)


def test_intact_evidence_is_sound(manifest: Manifest, store: FileStore) -> None:
    report = verify(manifest, store, digest=manifest.digest())
    assert report.sound
    assert report.checked == tuple(item.sha256 for item in manifest.items())
    assert report.manifest_matches is True
    assert verify(manifest, store).manifest_matches is None
    assert not verify(manifest, store, digest="0" * 64).sound


def test_altered_cut_missing_and_unreadable_items_are_told_apart(manifest: Manifest, store: FileStore) -> None:
    one, two, three, log = (item.sha256 for item in manifest.items())
    store.path(one).write_bytes(b"0ne")
    store.path(two).unlink()
    store.path(three).write_bytes(b"thre")
    place = store.path(log)
    place.unlink()
    place.mkdir()
    report = verify(manifest, store)
    assert not report.sound
    assert report.altered == (one, three)
    assert report.missing == (two,)
    assert [sha256 for sha256, _ in report.not_checked] == [log]
    assert report.checked == ()


def test_swapped_items_are_found(manifest: Manifest, store: FileStore) -> None:
    one, two, *_ = (store.path(item.sha256) for item in manifest.items())
    a, b = one.read_bytes(), two.read_bytes()
    one.write_bytes(b)
    two.write_bytes(a)
    assert len(verify(manifest, store).altered) == 2


def test_the_wire_log_is_stored_line_by_line_without_secrets(store: FileStore) -> None:
    lines = [
        {"seq": 1, "method": "GET", "url": "http://h/?token=canary-1", "headers": [["Cookie", "s=canary-2"]]},
        {
            "seq": 2,
            "method": "POST",
            "url": "http://h/publish",
            "headers": [["Authorization", "Basic canary-3"], ["Content-Type", "application/x-www-form-urlencoded"]],
            "body": "title=Hello&csrf=canary-4&note=canary+five",
            "body_hex": b"title=Hello&csrf=canary-4&note=canary+five".hex(),
            "answer": {"status": 302, "headers": [["Set-Cookie", "s=canary-6; Path=/"]]},
            "released": True,
        },
    ]
    item = store_wire_log(lines, store, Redactor(secrets=frozenset({"canary five"})))
    data = store.get(item.sha256).decode()
    assert item.kind is ItemKind.WIRE_LOG
    assert "canary" not in data
    stored = [json.loads(line) for line in data.splitlines()]
    assert [line["seq"] for line in stored] == [1, 2]
    assert stored[1]["body"].startswith("title=Hello&csrf=[masked:token]")
    assert "canary" not in bytes.fromhex(stored[1]["body_hex"]).decode()
    assert stored[1]["released"] is True
    assert {entry.what for entry in item.masked} == {Kind.TOKEN, Kind.COOKIE, Kind.AUTHORIZATION, Kind.SECRET}


def test_a_wire_log_value_that_is_no_json_is_an_error(store: FileStore) -> None:
    with pytest.raises(ValueError, match="JSON cannot"):
        store_wire_log([{"seq": float("nan")}], store, Redactor())
