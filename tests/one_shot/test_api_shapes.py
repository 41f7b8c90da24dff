"""Whole runs where what is sent differs: GraphQL, a picture, two requests for one publish. Held against the site."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from api_flows import GraphBatch, GraphGet, GraphInline, GraphStored, GraphTwo, PhotoShrunk, reference
from desk import PERSON, Desk
from fault_cases import absence_shown, honest

from executor.errors import Exit
from executor.model.ending import code
from executor.model.reasons import Halt, NotSent, Unsure
from executor.model.transitions import Transmission
from executor.service import Ended
from flows.playground_api import PlaygroundGraph
from playground.faults import Fault
from playground.hazards import Hazard

pytestmark = pytest.mark.browser

GRAPH, PHOTO, REVIEW = "playground-graph", "playground-photo", "playground-review"


def left(ended: Ended) -> list[str]:
    assert ended.ending is not None
    return [write.name for write in ended.ending.left]


class TestGraphql:
    async def test_published_once_with_queries_saves_and_reads_through_one_address(self, tls_desk: Desk) -> None:
        truth = tls_desk.playground.truth
        truth.arrange_lists(page_size=2)
        for number in range(3):
            truth.create(account="editor", title=f"Older {number}", body="", state="published", variant="test")
        before = truth.publish_count()
        ended = await tls_desk.publish(GRAPH)
        honest_but_for(before, ended, tls_desk)
        assert ended.exit is Exit.SUCCEEDED
        assert left(ended)[-1] == "notice published"
        assert set(left(ended)[:-1]) == {"query", "save draft"}
        assert ended.ending is not None
        # Both looks read both pages of the list by POSTs that the view declares.
        assert [(look.when, look.result, look.complete) for look in ended.ending.looks] == [
            ("before", "not_found", True),
            ("before", "not_found", True),
            ("after", "found", True),
            ("after", "found", True),
        ]
        assert ended.ending.reads >= 8

    async def test_a_double_submit_is_one_publish(self, desk: Desk) -> None:
        desk.playground.truth.set_hazard(Hazard.DOUBLE_SUBMIT)
        ended = await desk.publish(GRAPH)
        honest(ended, desk.playground.truth)
        assert ended.exit is Exit.SUCCEEDED

    @pytest.mark.parametrize(
        ("flow", "reason"),
        [
            (GraphTwo, NotSent.EFFECT_COUNT),
            (GraphBatch, NotSent.EFFECT_COUNT),
            (GraphInline, NotSent.MATERIAL_DIFFERS),
            (GraphGet, NotSent.EFFECT_OF_ANOTHER_SHAPE),
            (GraphStored, NotSent.EFFECT_OF_ANOTHER_SHAPE),
        ],
        ids=lambda value: value.name if isinstance(value, type) else "",
    )
    async def test_what_is_not_one_publish_of_the_approved_does_not_leave(
        self, flow: type[PlaygroundGraph], reason: NotSent, desk: Desk
    ) -> None:
        ended = await desk.publish(reference(flow))
        honest(ended, desk.playground.truth)
        assert ended.exit is Exit.NOT_SENT
        assert ended.ending is not None
        assert ended.ending.reason == code(reason)
        assert desk.playground.truth.publish_count() == 0
        assert "notice published" not in left(ended)

    @pytest.mark.parametrize(
        ("fault", "published", "exit", "reason"),
        [
            (Fault.RESET_AFTER, 1, Exit.SUCCEEDED, Unsure.NO_ANSWER),
            (Fault.ERROR_IN_200_AFTER, 1, Exit.SUCCEEDED, Unsure.ANSWER_SAYS_NOTHING),
            (Fault.ERROR_IN_200_BEFORE, 0, Exit.UNKNOWN, Unsure.ANSWER_SAYS_NOTHING),
            # By documented codes: nothing was stored.
            (Fault.STATUS_409, 0, Exit.REJECTED, None),
            (Fault.STALE_NONCE, 0, Exit.REJECTED, None),
        ],
    )
    async def test_fault(self, fault: Fault, published: int, exit: Exit, reason: Unsure | None, desk: Desk) -> None:
        truth = desk.playground.truth
        truth.inject(fault, path_prefix="/graphql")
        ended = await desk.publish(GRAPH)
        assert truth.pending_faults() == []
        assert truth.publish_count() == published
        honest(ended, truth)
        assert ended.exit is (Exit.REJECTED if exit is Exit.UNKNOWN and absence_shown(ended) else exit)
        assert ended.ending is not None
        assert ended.ending.reason == (code(reason) if reason else None)
        # The page that sends again by itself, with another nonce, asks in vain: one publish reached the site.
        assert [arrival.fault for arrival in truth.requests(writes_only=True) if arrival.fault] == [fault.value]
        assert left(ended).count("notice published") == 1


class TestPicture:
    async def test_published_once_as_approved_and_without_its_path(self, desk: Desk) -> None:
        folder = desk.folder / "somebody's private folder"
        folder.mkdir()
        content = b"\x89PNG\r\n" + os.urandom(9 * 1024 * 1024)  # more than the rules are given in one piece
        (folder / "Büro é.png").write_bytes(content)
        ended = await desk.publish(PHOTO, also={"image": {"path": str(folder / "Büro é.png")}})
        truth = desk.playground.truth
        honest(ended, truth)
        assert ended.exit is Exit.SUCCEEDED
        image = truth.image(truth.published()[0].id)
        assert image is not None
        assert (image.name, image.media_type, image.content == content) == ("Büro é.png", "image/png", True)
        assert ended.ending is not None
        assert ended.ending.effect is not None
        assert ended.ending.effect.from_page_only == ()
        assert ended.ending.effect.body_length > len(content)
        for written in (desk.settings.receipts_folder, desk.settings.evidence_folder, desk.settings.home):
            assert not [
                file for file in written.rglob("*") if file.is_file() and b"private folder" in file.read_bytes()
            ]

    async def test_another_picture_than_was_approved_does_not_leave(self, desk: Desk) -> None:
        (desk.folder / "a.png").write_bytes(b"\x89PNG" + bytes(1000))
        ended = await desk.publish(reference(PhotoShrunk), also={"image": {"path": "a.png"}})
        honest(ended, desk.playground.truth)
        assert ended.exit is Exit.NOT_SENT
        assert ended.ending is not None
        assert ended.ending.reason == code(NotSent.MATERIAL_DIFFERS)

    async def test_a_kept_file_that_was_changed_is_not_composed(self, desk: Desk) -> None:
        (desk.folder / "a.png").write_bytes(b"\x89PNG" + bytes(1000))
        async with desk.executor() as executor:
            operation = await desk.approved(executor, PHOTO, also={"image": {"path": "a.png"}})
            _change_kept(desk.settings.payload_files_folder)
            ended = await executor.run(operation.id, by=PERSON)
        assert ended.ending is not None
        assert ended.ending.reason == code(Halt.PREPARE_FAILED)
        assert desk.playground.truth.requests(writes_only=True) == []


def _change_kept(folder: Path) -> None:
    (kept,) = folder.iterdir()
    kept.write_bytes(b"\x89PNG" + bytes(999) + b"\x01")


class TestTwoPermissions:
    async def test_two_writes_and_one_publish(self, desk: Desk) -> None:
        ended = await desk.publish(REVIEW)
        truth = desk.playground.truth
        honest(ended, truth)
        assert ended.exit is Exit.SUCCEEDED
        assert left(ended) == ["ask for permission", "notice published"]
        assert [arrival.target for arrival in truth.requests(writes_only=True)] == [
            "/review/permission",
            "/review/publish",
        ]

    async def test_without_the_second_right_it_is_accepted_and_not_published(self, desk: Desk) -> None:
        desk.sign_in("second")
        ended = await desk.publish(REVIEW, account="second")
        truth = desk.playground.truth
        honest(ended, truth)
        assert (ended.exit, ended.operation.state.transmission) == (Exit.ACCEPTED, Transmission.ANSWERED)
        (waiting,) = truth.items(state="queued")
        assert "has not finished it" in ended.receipt_paths.text.read_text()
        truth.moderate(waiting.id, approve=True)
        assert truth.publish_count() == 1


def honest_but_for(before: int, ended: Ended, desk: Desk) -> None:
    assert desk.playground.truth.publish_count() == before + 1
    assert ended.operation.state.transmission is Transmission.ANSWERED
