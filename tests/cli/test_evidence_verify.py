"""`interlock evidence verify` on real files: whatever is altered, missing or in another's place is named, and what a
killed writer left half done is made whole by the next start and by nothing else."""

from __future__ import annotations

import asyncio
import base64
import dataclasses
import hashlib
import json
import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from evidence.attestation import PREDICATE_TYPE
from evidence.manifest import Manifest, save_manifest
from evidence.receipt_log import HEADS, LINES
from evidence.records import Capture, Item, ItemKind, Point, Quality
from evidence.signing_keys import SigningKeys
from evidence.store import FileStore
from executor.cli.main import execute
from executor.model.ending import Ending, EvidenceKept
from executor.model.operation import Actor, ActorKind
from executor.one_shot.last_step import LastStep
from executor.one_shot.recovery import RUN_ENDED
from executor.service import Executor
from executor.settings import Settings

SITE, SECRET = "https://notes.example", "canary-of-the-payload"
PERSON = Actor(ActorKind.PERSON, "tester")
NOW = datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC)


@dataclass(frozen=True)
class Home:
    """Two operations whose runs halted, each with evidence, a receipt, its signature and its line in the log."""

    settings: Settings
    operations: tuple[str, str]
    item: str

    @property
    def receipts(self) -> Path:
        return self.settings.receipts_folder

    def file(self, ending: str, number: int = 0) -> Path:
        return self.receipts / f"{self.operations[number]}{ending}"

    def manifest(self, number: int = 0) -> Path:
        return self.settings.evidence_folder / "operations" / self.operations[number] / "run_1" / "manifest.json"

    def sql(self, statement: str, number: int = 0) -> None:
        with closing(sqlite3.connect(self.settings.home / "ledger.sqlite")) as ledger, ledger:
            assert ledger.execute(statement, {"op": self.operations[number]}).rowcount > 0

    def with_executor(self, work: Callable[[Executor], Any]) -> Any:
        async def opened() -> Any:
            async with Executor(self.settings) as executor:
                return await work(executor)

        return asyncio.run(opened())


async def _written(executor: Executor, operation: str) -> str:
    """Step 17, for what the record holds."""
    return (await LastStep(executor.ledger, executor.settings, lambda _: None, None).write(operation))[1]


async def _ended(executor: Executor, number: int) -> tuple[str, str]:
    """An operation whose run has ended: (its id, the hash of its one item)."""
    settings = executor.settings
    made = await executor.propose(
        flow="playground-form",
        destination=SITE,
        account=f"editor{number}",
        payload={"title": f"{SECRET} {number}", "body": "Boats may leave."},
        task=f"t{number}",
        by=PERSON,
    )
    operation = made.operation.id
    blob = FileStore(settings.evidence_folder).put(b"a page, %d" % number, media_type="text/plain")
    item = Item(ItemKind.ACCESSIBILITY, blob.sha256, blob.size, "text/plain")
    capture = Capture(Point.COMPOSED, "", SITE, "", NOW, 1.0, (item,), (), Quality.USABLE)
    manifest = Manifest(operation_id=operation).with_capture(capture)
    folder = settings.evidence_folder / "operations" / operation / "run_1"
    place = save_manifest(folder, manifest).relative_to(settings.home)
    kept = EvidenceKept(manifest=str(place), manifest_sha256=manifest.digest(), pictures=(), items=1, gaps=())
    ending = Ending(
        run="run_1",
        attempt=None,
        started_at=NOW,
        ended_at=NOW,
        step=6,
        reason="halt:prepare_failed",
        transmission=None,
        evidence=kept,
    )
    data = ending.model_dump(mode="json")
    await executor.ledger.note(operation, kind=RUN_ENDED, by=PERSON, why="it halted", data=data)
    return operation, blob.sha256


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    monkeypatch.setenv("INTERLOCK_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("INTERLOCK_KEY_FOLDER", str(tmp_path / "keys"))
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.delenv("INTERLOCK_PROPOSER", raising=False)
    empty = Home(Settings(home=tmp_path / "home", key_folder=tmp_path / "keys"), ("", ""), "")

    async def fill(executor: Executor) -> tuple[tuple[str, str], ...]:
        both = (await _ended(executor, 0), await _ended(executor, 1))
        for operation, _ in both:
            assert await _written(executor, operation) == ""
        return both

    (one, item), (two, _) = empty.with_executor(fill)
    return dataclasses.replace(empty, operations=(one, two), item=item)


Verify = Callable[..., tuple[int, Any]]


@pytest.fixture
def verify(capsys: pytest.CaptureFixture[str]) -> Verify:
    """The exit code and the document of `interlock evidence verify`."""

    def call(*arguments: str) -> tuple[int, Any]:
        capsys.readouterr()
        code = execute(["evidence", "verify", *arguments, "--json"])
        return code, json.loads(capsys.readouterr().out)

    return call


def flaws(said: Any) -> str:
    whole = said["whole"] or {"flaws": []}
    return "\n".join([*(flaw for one in said["operations"] for flaw in one["flaws"]), *whole["flaws"]])


# -- sound ------------------------------------------------------------------------------------------------------------
def test_what_was_kept_is_sound_and_what_was_checked_is_said(home: Home, verify: Verify) -> None:
    one = home.operations[0]
    code, said = verify(one)
    assert (code, said["sound"], flaws(said)) == (0, True, "")
    checked = "\n".join(said["operations"][0]["checked"])
    for part in ("signature by", f"receipt {one}.json", f"receipt {one}.txt", "log: line 1 of 2", "manifest", "1 of 1"):
        assert part in checked
    assert said["operations"][0]["later_events"] == 1  # the note of the receipt itself
    assert any("whose the key is" in line for line in said["never_checked"])
    code, said = verify("--all")
    assert (code, flaws(said), len(said["operations"])) == (0, "", 2)


def test_it_is_a_statement_that_other_tools_read(home: Home) -> None:
    envelope = json.loads(home.file(".dsse.json").read_bytes())
    assert envelope["payloadType"] == "application/vnd.in-toto+json"
    statement = json.loads(base64.b64decode(envelope["payload"]))
    assert statement["_type"] == "https://in-toto.io/Statement/v1"
    assert statement["predicateType"] == PREDICATE_TYPE
    digests = {one["name"]: one["digest"]["sha256"] for one in statement["subject"]}
    assert digests[f"{home.operations[0]}.json"] == hashlib.sha256(home.file(".json").read_bytes()).hexdigest()
    assert digests["manifest"] == hashlib.sha256(home.manifest().read_bytes()).hexdigest()
    receipt = json.loads(home.file(".json").read_bytes())
    assert (digests["events"], statement["predicate"]["events"]) == (
        receipt["record"]["chain_head"],
        receipt["record"]["version"],
    )


def test_nothing_of_the_payload_and_no_key_is_in_what_is_signed_or_logged(home: Home) -> None:
    secrets = [SECRET.encode(), b"Boats may leave", b"PRIVATE KEY"]
    for place in home.receipts.iterdir():
        data = place.read_bytes()
        if place.name.endswith((".dsse.json", HEADS)):
            data += b"".join(base64.b64decode(json.loads(line)["payload"]) for line in data.splitlines())
        assert [one for one in secrets if one in data] == []
        assert place.stat().st_mode & 0o077 == 0


def test_a_rotated_key_still_verifies_and_another_installation_can_believe_it(
    home: Home, verify: Verify, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = SigningKeys(home.settings.key_folder / "signing").signer().key_id
    assert execute(["keys", "rotate"]) == 0
    home.with_executor(lambda executor: _written(executor, home.operations[1]))
    code, said = verify("--all")
    assert (code, flaws(said)) == (0, "")
    signed_by = {one["operation"]: one["signed_by"] for one in said["operations"]}
    assert signed_by[home.operations[0]] == [first] != signed_by[home.operations[1]]

    keys = {first, signed_by[home.operations[1]][0]}
    for key in keys:
        capsys.readouterr()
        assert execute(["keys", "export", key[:12]]) == 0
        (tmp_path / f"{key}.pem").write_text(capsys.readouterr().out)
    monkeypatch.setenv("INTERLOCK_KEY_FOLDER", str(tmp_path / "of an auditor"))
    code, said = verify(home.operations[0])
    assert code == 60
    assert "key that is not known here" in flaws(said)
    for key in keys:
        assert execute(["keys", "believe", str(tmp_path / f"{key}.pem"), "--name", "the office"]) == 0
    assert verify("--all")[0] == 0
    capsys.readouterr()
    assert execute(["keys", "list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert {(one["key_id"], one["own"], one["name"]) for one in listed} == {(key, False, "the office") for key in keys}


def test_a_proposer_changes_no_keys(home: Home, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("INTERLOCK_PROPOSER", "agent")
    assert execute(["keys", "rotate"]) == 40
    assert execute(["keys", "believe", str(tmp_path / "any.pem"), "--name", "me"]) == 40


def test_without_a_ledger_the_rest_is_checked_and_that_is_said(home: Home, verify: Verify) -> None:
    (home.settings.home / "ledger.sqlite").rename(home.settings.home / "elsewhere")
    code, said = verify(home.operations[0])
    assert (code, flaws(said)) == (0, "")
    assert any("no ledger" in line for line in said["operations"][0]["not_checked"])
    assert any("none here" in line for line in verify("--all")[1]["whole"]["not_checked"])
    assert not (home.settings.home / "ledger.sqlite").exists()


def test_misuse_is_exit_2_and_items_are_listed(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["evidence", "verify"]) == execute(["evidence", "verify", "op_x", "--all"]) == 2
    assert execute(["evidence", "verify", "op_00000000"]) == 2
    capsys.readouterr()
    assert execute(["evidence", "list", home.operations[0], "--json"]) == 0
    assert [one["sha256"] for one in json.loads(capsys.readouterr().out)["items"]] == [home.item]
    assert execute(["evidence", "list", home.operations[0]]) == 0
    assert execute(["evidence", "verify", home.operations[0]]) == 0
    assert f"{home.operations[0]}: sound" in capsys.readouterr().out


# -- altered ----------------------------------------------------------------------------------------------------------
def _flip(place: Path) -> None:
    data = bytearray(place.read_bytes())
    data[len(data) // 2] ^= 1
    place.write_bytes(data)


def _cut(place: Path) -> None:
    place.write_bytes(place.read_bytes()[:-7])


def _drop(place: Path) -> None:
    place.unlink()


def _swap(place: Path, other: Path) -> None:
    one, two = place.read_bytes(), other.read_bytes()
    place.write_bytes(two)
    other.write_bytes(one)


PLACES: dict[str, tuple[Callable[[Home, int], Path], str]] = {
    "receipt": (lambda home, n: home.file(".json", n), "receipt: "),
    "text": (lambda home, n: home.file(".txt", n), "receipt: "),
    "envelope": (lambda home, n: home.file(".dsse.json", n), "signature: "),
    "manifest": (lambda home, n: home.manifest(n), "manifest: "),
}


@pytest.mark.parametrize("how", [_flip, _cut, _drop, _swap], ids=lambda how: how.__name__[1:])
@pytest.mark.parametrize("what", PLACES)
def test_a_file_that_is_not_what_was_signed_is_named(
    home: Home, verify: Verify, what: str, how: Callable[..., None]
) -> None:
    place, says = PLACES[what]
    how(*(place(home, number) for number in ((0, 1) if how is _swap else (0,))))
    code, said = verify(home.operations[0])
    assert code == 60
    assert says in flaws(said)
    if how is not _drop:  # no start makes good what was tampered with
        home.with_executor(lambda executor: executor.operations())
        assert verify(home.operations[0])[0] == 60


@pytest.mark.parametrize("how", [_flip, _cut, _drop], ids=lambda how: how.__name__[1:])
def test_an_item_that_is_altered_or_missing_is_named(home: Home, verify: Verify, how: Callable[[Path], None]) -> None:
    how(FileStore(home.settings.evidence_folder).path(home.item))
    code, said = verify(home.operations[0])
    assert (code, "evidence: accessibility " + home.item in flaws(said)) == (60, True)
    assert verify(home.operations[1])[0] == 0


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE events SET why = 'otherwise' WHERE subject = :op AND sequence = 2",
        "DELETE FROM events WHERE subject = :op AND sequence = 2",
        "DELETE FROM events WHERE subject = :op AND sequence = 3",
        "UPDATE events SET sequence = -sequence WHERE subject = :op AND sequence > 1;"
        "UPDATE events SET sequence = 5 + sequence WHERE subject = :op AND sequence < 0",
    ],
    ids=["changed", "dropped", "tail cut", "reordered"],
)
def test_an_event_that_is_altered_is_named(home: Home, verify: Verify, statement: str) -> None:
    for one in statement.split(";"):
        home.sql(one)
    code, said = verify(home.operations[0])
    assert code == 60
    assert "record: " in flaws(said)
    assert verify(home.operations[1])[0] == 0


def test_a_tail_that_is_cut_off_with_its_rows_put_right_is_noticed(home: Home, verify: Verify) -> None:
    home.sql("DELETE FROM events WHERE subject = :op AND sequence > 1")
    home.sql("UPDATE operations SET version = 1, head = (SELECT hash FROM events WHERE subject = :op) WHERE id = :op")
    assert "of the 2 signed events are gone" in flaws(verify(home.operations[0])[1])
    assert f"the record of {home.operations[0]} is not the one" in flaws(verify("--all")[1])


def _lines(place: Path, change: Callable[[list[bytes]], list[bytes]]) -> None:
    place.write_bytes(b"".join(line + b"\n" for line in change(place.read_bytes().splitlines())))


@pytest.mark.parametrize("name", [LINES, HEADS])
@pytest.mark.parametrize("how", ["flip", "cut", "drop", "swap"])
def test_a_log_that_is_altered_is_named(home: Home, verify: Verify, name: str, how: str) -> None:
    place = home.receipts / name
    if how == "flip":
        _flip(place)
    elif how == "cut":
        _cut(place)
    else:
        _lines(place, lambda lines: lines[1:] if how == "drop" and name == LINES else lines[::-1])
        if how == "drop" and name == HEADS:
            place.write_bytes(b"")
    code, said = verify("--all")
    assert code == 60
    assert "log: " in "\n".join(said["whole"]["flaws"])
    before = place.read_bytes()
    problem = home.with_executor(lambda executor: _written(executor, home.operations[1]))
    if name == HEADS and how in ("cut", "swap"):  # the newest head counts all but one, as after a kill: a new one may
        assert problem == ""
        assert verify("--all")[0] == (60 if how == "swap" else 0)
    else:
        assert "not signed and logged" in problem  # no new head vouches for what was altered
        assert place.read_bytes() == before


# -- missing ----------------------------------------------------------------------------------------------------------
def test_an_operation_that_was_taken_out_of_the_ledger_is_noticed(home: Home, verify: Verify) -> None:
    home.sql("DELETE FROM events WHERE subject = :op")
    home.sql("DELETE FROM operations WHERE id = :op")
    code, said = verify("--all")
    assert code == 60
    assert f"{home.operations[0]} is in the log of receipts and not in the ledger" in flaws(said)


def test_a_receipt_that_was_taken_out_everywhere_is_noticed(home: Home, verify: Verify) -> None:
    for place in home.receipts.glob(f"{home.operations[0]}*"):
        place.unlink()
    code, said = verify("--all")
    assert code == 60
    assert "signature: " in flaws(said)
    _lines(home.receipts / LINES, lambda lines: lines[1:])
    (home.receipts / HEADS).unlink()
    said = verify("--all")[1]
    assert f"the receipt that the record of {home.operations[0]} names is in no line" in flaws(said)


def test_an_older_receipt_that_was_put_back_is_noticed(home: Home, verify: Verify) -> None:
    older = {place: place.read_bytes() for place in home.receipts.glob(f"{home.operations[0]}*")}
    home.with_executor(lambda executor: _written(executor, home.operations[0]))
    assert verify(home.operations[0])[0] == 0
    for place, data in older.items():
        place.write_bytes(data)
    assert "an older one was put back" in flaws(verify(home.operations[0])[1])


# -- killed, and unable to sign ---------------------------------------------------------------------------------------
class Killed(BaseException):
    """The process ends here."""


@pytest.mark.parametrize("at", ["attested", "ReceiptLog"])
def test_killed_between_receipt_envelope_and_log_it_is_made_whole_by_the_next_start(
    home: Home, verify: Verify, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    def killed(*_: object) -> None:
        raise Killed

    async def lost(executor: Executor) -> str:
        operation, _ = await _ended(executor, 2)
        with monkeypatch.context() as patched:
            patched.setattr(f"executor.one_shot.vouching.{at}", killed)
            with pytest.raises(Killed):
                await _written(executor, operation)
        return operation

    operation = home.with_executor(lost)
    assert (home.receipts / f"{operation}.json").exists()
    assert (home.receipts / f"{operation}.dsse.json").exists() is (at == "ReceiptLog")
    assert verify(operation)[0] == 60
    home.with_executor(lambda executor: executor.operations())
    code, said = verify("--all")
    assert (code, flaws(said), len(said["operations"])) == (0, "", 3)
    before = {place: place.read_bytes() for place in home.receipts.iterdir()}
    home.with_executor(lambda executor: executor.operations())
    assert {place: place.read_bytes() for place in home.receipts.iterdir()} == before  # once is enough


def test_a_receipt_that_cannot_be_signed_is_written_and_says_so(home: Home, verify: Verify) -> None:
    signing = home.settings.key_folder / "signing"
    sound = (signing / "keys.json").read_bytes()
    (signing / "keys.json").write_bytes(b"{")

    async def work(executor: Executor) -> tuple[str, str, dict[str, Any]]:
        operation, _ = await _ended(executor, 2)
        problem = await _written(executor, operation)
        return operation, problem, dict((await executor.events(operation))[-1].data)

    operation, problem, note = home.with_executor(work)
    assert "not signed and logged" in problem
    assert note["signed"] is False
    assert note["sha256"] == hashlib.sha256((home.receipts / f"{operation}.json").read_bytes()).hexdigest()
    home.with_executor(lambda executor: executor.operations())  # no better now, and no note more
    (signing / "keys.json").write_bytes(sound)
    assert verify(operation)[0] == 60
    home.with_executor(lambda executor: executor.operations())
    assert verify("--all")[0] == 0


def test_several_processes_write_receipts_side_by_side(home: Home, verify: Verify) -> None:
    async def write(executor: Executor) -> list[str]:
        other = LastStep(executor.ledger, executor.settings, lambda _: None, None)
        return [problem for _, problem in await asyncio.gather(*(other.write(home.operations[0]) for _ in range(8)))]

    children = []
    for _ in range(2):
        child = os.fork()
        if child == 0:
            os._exit(0 if home.with_executor(write) == [""] * 8 else 1)
        children.append(child)
    assert [os.waitpid(child, 0)[1] for child in children] == [0, 0]
    code, said = verify("--all")
    assert (code, flaws(said)) == (0, "")
    assert said["whole"]["checked"][0].startswith("log: 18 lines")
