"""What a run leaves behind: a record that tells the whole story by itself, before and after it dispatches anything, and
no secret in any byte that it wrote.
"""

from __future__ import annotations

import base64
import hashlib
import json
import logging
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

import pytest
from checks import ODD, nothing_dispatched, odd
from desk import PERSON, Desk

from evidence.manifest import Manifest
from evidence.records import ItemKind
from executor.errors import Exit, NotReady
from executor.ledger.projection import replay
from executor.model.admission import Refusal, refusal
from executor.model.operation import Actor, ActorKind, Operation, Policy
from executor.model.reasons import Halt
from executor.model.transitions import Dispatch, Outcome, Permission
from executor.one_shot.run import StepEvent
from executor.service import Executor
from flows.flow import Credentials
from playground.app import PASSWORD
from playground.faults import Fault
from playground.pages import csrf_of

pytestmark = pytest.mark.browser

AGENT = Actor(ActorKind.PROPOSER, "agent")
TITLE, BODY = "Canary title 7c1d", "Canary body 93f0, first line.\nCanary body 2ab8, second line."


async def proposed_by_an_agent(desk: Desk, executor: Executor, flow: str, task: str = "T-1") -> Operation:
    given = {"title": TITLE, "body": BODY}
    proposed = await executor.propose(
        flow=flow, destination=f"{desk.site}/", account="editor", payload=given, task=task, by=AGENT
    )
    operation = proposed.operation
    await executor.approve(operation.id, by=PERSON, fingerprint=operation.fingerprint, why="checked with the office")
    return await executor.operation(operation.id)


# The story


async def test_the_record_alone_tells_the_whole_story(desk: Desk) -> None:
    truth = desk.playground.truth
    async with desk.executor() as executor:
        operation = await proposed_by_an_agent(desk, executor, "playground-form")
        ended = await executor.run(operation.id, by=PERSON)
        assert ended.exit is Exit.SUCCEEDED

    # Another process, later, with nothing but the record.
    async with desk.executor() as executor:
        assert executor.recovered == ()
        events = await executor.events(operation.id)
        found = await executor.operation(operation.id)
        assert found == (await executor.operations())[0]
        assert (await executor.ledger.verify_all()).flaws == ()
    assert [event.kind for event in events] == [
        "proposed",
        "approved",
        "run_started",
        "evidence",
        "claimed",
        "gesture",
        "released",
        "answered",
        "closed",
        "seen_succeeded",
        "run_ended",
        "receipt",
    ]
    assert [event.sequence for event in events] == list(range(1, len(events) + 1))
    assert [event.at for event in events] == sorted(event.at for event in events)
    assert replay(events).state == found.state

    told = {event.kind: event for event in events}
    # Who: the agent proposed, the person approved and asked for the run, the run did the rest.
    run = told["run_started"].data["run"]
    assert told["proposed"].actor == AGENT
    assert told["approved"].actor == PERSON
    assert {str(told[kind].actor) for kind in ("run_started", "claimed", "released", "closed", "run_ended")} == {
        f"executor:{run}"
    }
    assert "tester" in told["run_started"].why
    # Why, in words.
    assert told["approved"].why == "checked with the office"
    assert all(told[kind].why for kind in ("run_started", "evidence", "closed", "seen_succeeded", "run_ended"))
    # What: the intent, the permission, the attempt, the request, its answer, the verdict and its evidence.
    assert told["proposed"].data["account"] == "editor"
    assert told["proposed"].data["destination"] == desk.site
    assert told["approved"].data["fingerprint"] == told["proposed"].data["fingerprint"] == operation.fingerprint
    assert told["claimed"].data["approval"] == told["approved"].data["approval"]
    assert told["claimed"].data["baseline"] == []
    for kind in ("gesture", "released", "answered", "closed"):
        assert told[kind].data["attempt"] == told["claimed"].data["attempt"]
    arrived = next(one for one in truth.requests(writes_only=True) if one.target == "/form/publish")
    assert told["released"].data["body_sha256"] == arrived.body_sha256
    item = str(truth.published()[0].id)
    assert told["answered"].data["reading"]["item"] == item
    assert told["seen_succeeded"].data["item"] == item
    assert told["seen_succeeded"].evidence
    assert told["run_ended"].data["item"] == item
    written = (desk.settings.receipts_folder / f"{operation.id}.json").read_bytes()
    assert told["receipt"].data["sha256"] == hashlib.sha256(written).hexdigest()


@pytest.mark.parametrize("flow", ["AsksFirst", "OneCharacterMore"])
async def test_what_did_not_happen_is_told_too(flow: str, desk: Desk) -> None:
    async with desk.executor() as executor:
        operation = await proposed_by_an_agent(desk, executor, odd(flow))
        ended = await executor.run(operation.id, by=PERSON)
        events = await executor.events(operation.id)
    dispatched = ["evidence", "claimed", "gesture", "closed"] if flow == "AsksFirst" else []
    waits = [] if dispatched else ["waits"]  # for a person: it would halt again
    assert [event.kind for event in events] == [
        "proposed", "approved", "run_started", *dispatched, "run_ended", *waits, "receipt",
    ]  # fmt: skip
    assert replay(events).state == ended.operation.state
    assert ended.ending is not None
    assert next(one for one in events if one.kind == "run_ended").data["reason"] == ended.ending.reason


# Before anything is dispatched


async def test_everything_is_in_the_record_before_anything_is_dispatched(desk: Desk) -> None:
    """Read at the moment of the claim and at that of the release from the file itself, as it would be after a power
    cut (A2, A6); the site's record is read at the same moments."""
    seen: dict[str, sqlite3.Row] = {}

    def look(event: StepEvent) -> None:
        moment = {(8, "done"): "claimed", (11, "connected"): "connected", (11, "released"): "released"}.get(
            (event.number, event.moment)
        )
        if moment is not None:
            assert desk.playground.truth.requests(writes_only=True) == []
            seen[moment] = _row(desk.settings.home / "ledger.sqlite")

    async with desk.executor(look) as executor:
        operation = await proposed_by_an_agent(desk, executor, "playground-keyed", task="T-2")
        ended = await executor.run(operation.id, by=PERSON)
        events = await executor.events(operation.id)
    assert ended.exit is Exit.SUCCEEDED
    assert desk.playground.truth.publish_count() == 1
    assert set(seen) == {"claimed", "connected", "released"}

    before = seen["claimed"]
    approval = operation.approval
    assert approval is not None
    intent = json.loads(before["intent"])
    assert (before["id"], before["task"], before["action"]) == (operation.id, "T-2", "publish-announcement")
    assert (before["destination"], before["account"]) == (desk.site, "editor")
    assert (intent["payload"]["title"], intent["payload"]["body"]) == (TITLE, BODY)
    assert before["fingerprint"] == operation.fingerprint
    assert (before["approval_id"], before["fingerprint_approved"]) == (approval.id, operation.fingerprint)
    assert before["expires_us"] == round(approval.expires.timestamp() * 1_000_000)
    assert before["attempt_id"] == ended.operation.attempts[0].id
    assert before["policy"] == Policy.IDEMPOTENT.value
    assert before["provider_key"] == operation.provider_key
    assert before["provider_key"]
    claimed = next(event for event in events if event.kind == "claimed")
    assert claimed.data["key"] == {
        "key": operation.provider_key,
        "header": "Idempotency-Key",
        "field": None,
        "scope": "the account",
        "lifetime_s": 86400,
        "margin_s": 60,
        "attempts": 5,
        "same_fields": ["title", "body"],
    }
    assert claimed.data["key_until"] is None  # nothing was ever sent under it
    assert (before["dispatch"], before["transmission"]) == (Dispatch.STARTED.value, "none_proven")
    assert seen["connected"]["released_us"] is None
    assert seen["released"]["released_us"] is not None
    assert seen["released"]["transmission"] == "possible"


def _row(file: Path) -> sqlite3.Row:
    with closing(sqlite3.connect(file)) as ledger:
        ledger.row_factory = sqlite3.Row
        return ledger.execute(  # type: ignore[no-any-return]
            "SELECT operations.*, approvals.fingerprint AS fingerprint_approved, approvals.expires_us,"
            " attempts.id AS attempt_id, attempts.approval_id, attempts.released_us"
            " FROM operations JOIN attempts ON attempts.operation_id = operations.id"
            " JOIN approvals ON approvals.id = attempts.approval_id"
        ).fetchone()


# What must not be in it


async def test_no_secret_is_in_any_byte_that_was_written(
    desk: Desk, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    """Two sign-ins (one refused), a run that publishes, one that halts and one that is proven not sent."""
    caplog.set_level(logging.DEBUG)
    truth = desk.playground.truth
    wrong = "canary-password-8412"
    shown: list[str] = []

    def listen(event: StepEvent) -> None:
        shown.append(event.detail)

    async with desk.executor(listen) as executor:
        with pytest.raises(NotReady) as raised:
            await _sign_in(desk, executor, wrong)
        shown.append(f"{raised.value} {raised.value.__cause__}")
        await _sign_in(desk, executor, PASSWORD)
        for number, flow in enumerate(("playground-spa", odd("OneCharacterMore"), odd("ChangesOneCharacter"))):
            # Each says that it is meant: the first is out by then.
            operation = await proposed_by_an_agent(desk, executor, flow, task=f"T-{number}")
            await executor.approve(operation.id, by=PERSON, fingerprint=operation.fingerprint, meant=True)
            ended = await executor.run(operation.id, by=PERSON)
            shown.append(str(ended.receipt))
            assert ended.exit is (Exit.SUCCEEDED, Exit.REFUSED, Exit.NOT_SENT)[number]
        manifests = [
            Manifest.model_validate_json(path.read_bytes())
            for path in executor.settings.evidence_folder.rglob("manifest.json")
        ]
        assert (await executor.ledger.verify_all()).flaws == ()
    assert truth.publish_count() == 1

    with closing(sqlite3.connect(truth.path)) as record:
        tokens = [str(row[0]) for row in record.execute("SELECT token FROM sessions")]
    assert len(tokens) >= 2
    secrets = [wrong, *tokens, *(csrf_of(token) for token in tokens)]
    texts = {"logs": caplog.text, "output": "".join(capfd.readouterr()), "steps and errors": "\n".join(shown)}
    for where, data in _everything_under(desk.settings.home, desk.settings.key_folder):
        for secret in secrets:
            for form in _forms(secret):
                assert form not in data, f"a secret is in {where}"
    for name, text in texts.items():
        assert not [secret for secret in secrets if secret in text], f"a secret is in {name}"

    # Payload: on pages, where it is to be seen, and in the one column that is made for it.
    on_pages = {
        item.sha256
        for manifest in manifests
        for entry in manifest.entries
        for item in entry.items
        if item.kind is not ItemKind.WIRE_LOG
    }
    titles = {entry.title for manifest in manifests for entry in manifest.entries}
    payload = [TITLE, *BODY.splitlines()]
    for where, data in _everything_under(desk.settings.home):
        if where.name in on_pages or where.name.startswith("ledger.sqlite"):
            continue
        if where.name == "manifest.json":  # names the pages by their titles, and holds nothing else of them
            for title in titles:
                data = data.replace(json.dumps(title, ensure_ascii=False).encode(), b"")
        for value in payload:
            assert not [form for form in _forms(value) if form in data], f"payload is in {where}"
    for name, text in texts.items():
        assert not [value for value in payload if value in text], f"payload is in {name}"
    for table, column, value in _cells(desk.settings.home / "ledger.sqlite"):
        if (table, column) != ("operations", "intent"):
            assert not [one for one in payload if one in value], f"payload is in {table}.{column}"


async def _sign_in(desk: Desk, executor: Executor, password: str) -> None:
    await executor.login(
        flow="playground-form",
        destination=desk.site,
        account="editor",
        credentials=Credentials(user="editor", password=password),
        by=PERSON,
    )


def _everything_under(*folders: Path) -> Iterator[tuple[Path, bytes]]:
    for folder in folders:
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                yield path, path.read_bytes()


def _forms(text: str) -> tuple[bytes, ...]:
    plain = text.encode()
    return (plain, quote(text).encode(), quote(text, safe="").replace("%20", "+").encode(), base64.b64encode(plain))


def _cells(file: Path) -> Iterator[tuple[str, str, str]]:
    with closing(sqlite3.connect(file)) as ledger:
        tables = [row[0] for row in ledger.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for table in tables:
            cursor = ledger.execute(f"SELECT * FROM {table}")
            names = [column[0] for column in cursor.description]
            for row in cursor:
                yield from ((table, name, str(value)) for name, value in zip(names, row, strict=True))


# What is left behind


async def test_drafts_that_a_halted_run_leaves_are_named(desk: Desk) -> None:
    truth = desk.playground.truth
    async with desk.executor() as executor:
        operation = await desk.approved(executor, odd("DraftThenOneCharacterMore"))
        ended = await executor.run(operation.id, by=PERSON)
        await nothing_dispatched(executor, ended, truth, Halt.COMPOSED_DIFFERS, exit=Exit.REFUSED)
    drafts = truth.drafts()
    assert len(drafts) == 1
    assert {(write.kind, write.item) for write in ended.receipt.attempted.left} == {("supporting", str(drafts[0].id))}
    assert ended.receipt.attempted.left[0].url == f"{desk.site}/api/drafts"
    assert any("create draft" in open_question for open_question in ended.receipt.unknown)
    assert str(drafts[0].id) in ended.receipt_paths.text.read_text(encoding="utf-8")


# After an unknown


async def test_an_unknown_stops_the_flow_on_that_account_until_a_person_has_looked(desk: Desk) -> None:
    truth = desk.playground.truth
    flow = odd("NothingGuaranteed")
    truth.inject(Fault.RESET_BEFORE, path_prefix="/")
    async with desk.executor() as executor:
        first = await desk.approved(executor, flow, title="One", body="One.")
        unknown = await executor.run(first.id, by=PERSON)
        assert truth.pending_faults() == []
        assert (unknown.exit, unknown.operation.state.outcome) == (Exit.UNKNOWN, Outcome.UNKNOWN)
        handoff = next(event for event in await executor.events(first.id) if event.kind == "handoff")
        assert handoff.data["owner"]
        assert unknown.receipt.ownership.owner == handoff.data["owner"]

    async with desk.executor() as executor:  # it holds across a restart
        (stop,) = await executor.stops()
        assert (stop.flow, stop.account_key, stop.by.kind) == (
            f"{ODD}NothingGuaranteed", first.account_key, ActorKind.EXECUTOR,
        )  # fmt: skip
        assert first.id in stop.why
        second = await desk.approved(executor, flow, title="Two", body="Two.")
        held = await executor.run(second.id, by=PERSON)
        await nothing_dispatched(executor, held, truth, Refusal.STOPPED, exit=Exit.REFUSED)
        assert held.receipt.reason is not None
        assert held.receipt.reason.because == (stop.id,)
        # Neither another flow nor another account is held by it.
        others = [
            await desk.approved(executor, "playground-spa", title="Three", body="Three."),
            await desk.approved(executor, flow, title="Four", body="Four.", account="second"),
        ]
        for other in others:
            assert refusal(await executor.ledger.admission(other.id, other.flow)) is None

        await executor.lift(stop.id, by=PERSON, why="looked at the list: it is not there")
        assert (await executor.run(second.id, by=PERSON)).exit is Exit.SUCCEEDED
        assert truth.publish_count() == 1
        # Looking and lifting settled nothing about the first one: it stays what it is, and is not run again.
        again = await executor.run(first.id, by=PERSON)
        assert (again.exit, again.operation.state.outcome) == (Exit.REFUSED, Outcome.UNKNOWN)
        assert again.operation.state.permission is Permission.AUTHORIZED
        assert truth.publish_count() == 1
        assert (await executor.ledger.verify_all()).flaws == ()
