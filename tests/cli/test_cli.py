"""The command line without a browser: real ledger, real files; for errors one clear sentence and the exit code."""

from __future__ import annotations

import errno
import getpass
import io
import json
import sqlite3
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from executor.cli.main import execute

FLOW = "playground-form"
SITE = "https://notes.example"
TITLE = "Harbour closed on Sunday"
BODY = "Boats may leave by the north channel only."


@dataclass(frozen=True)
class Said:
    exit: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Interlock = Callable[..., Said]


@pytest.fixture
def interlock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Interlock:
    """Runs a command in this process, in a home of its own: `interlock("list", "--json")`."""
    monkeypatch.setenv("INTERLOCK_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("INTERLOCK_KEY_FOLDER", str(tmp_path / "keys"))
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.delenv("INTERLOCK_PROPOSER", raising=False)
    monkeypatch.delenv("INTERLOCK_DEBUG", raising=False)

    def call(*arguments: str, stdin: str | None = None) -> Said:
        monkeypatch.setattr(sys, "stdin", io.StringIO(stdin or ""))
        capsys.readouterr()
        code = execute(arguments)
        captured = capsys.readouterr()
        return Said(code, captured.out, captured.err)

    return call


@pytest.fixture
def payload(tmp_path: Path) -> str:
    path = tmp_path / "payload.json"
    path.write_text(json.dumps({"title": TITLE, "body": BODY}), encoding="utf-8")
    return str(path)


def propose(interlock: Interlock, payload: str, task: str = "t1", *more: str, flow: str = FLOW) -> Said:
    return interlock(
        *("propose", flow, "--site", SITE, "--account", "editor", "--task", task, "--payload", payload, "--json"), *more
    )


def one_sentence(said: Said) -> str:
    """The error, which is one line on standard error and no traceback."""
    lines = said.err.strip().splitlines()
    assert len(lines) == 1, said.err
    assert lines[0].startswith("interlock: ")
    assert "Traceback" not in said.err
    return lines[0]


# -- intents ----------------------------------------------------------------------------------------------------------
def test_the_same_intent_is_the_same_operation(interlock: Interlock, payload: str) -> None:
    first, second = propose(interlock, payload), propose(interlock, payload)
    assert (first.exit, second.exit) == (0, 0)
    assert first.json["created"] is True
    assert second.json["created"] is False
    assert first.json["operation"] == second.json["operation"]
    assert TITLE not in first.out


def test_a_payload_comes_from_standard_input_too(interlock: Interlock) -> None:
    said = interlock(
        *("propose", FLOW, "--site", SITE, "--account", "editor", "--task", "t1", "--payload", "-"),
        stdin=json.dumps({"title": TITLE, "body": BODY}),
    )
    assert said.exit == 0
    assert "interlock approve op_" in said.out


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("{'title': 1}", "is not JSON: "),
        ('["title"]', "is not a JSON object"),
        ('{"title": "x"}', "body: Field required"),
        ('{"title": "x", "body": "y", "colour": "mauve"}', "colour: Extra inputs are not permitted"),
    ],
)
def test_an_unusable_payload_is_one_sentence_and_exit_2(
    interlock: Interlock, tmp_path: Path, content: str, says: str
) -> None:
    (tmp_path / "bad.json").write_text(content, encoding="utf-8")
    said = propose(interlock, str(tmp_path / "bad.json"))
    assert said.exit == 2
    assert says in one_sentence(said)
    assert "mauve" not in said.err
    assert said.json["exit"] == 2


def test_an_unreadable_payload_is_one_sentence_and_exit_2(interlock: Interlock, tmp_path: Path) -> None:
    (tmp_path / "latin.json").write_bytes(b'{"title": "H\xe4fen"}')
    assert "cannot be read: No such file" in one_sentence(propose(interlock, str(tmp_path / "absent.json")))
    assert "not UTF-8" in one_sentence(propose(interlock, str(tmp_path / "latin.json")))


def test_an_unknown_flow_suggests_the_near_one(interlock: Interlock, payload: str) -> None:
    said = propose(interlock, payload, flow="playground-from")
    assert said.exit == 2
    assert "Did you mean playground-form" in one_sentence(said)


@pytest.mark.parametrize(
    ("option", "value", "says"),
    [
        ("--site", "notes.example", "is not an absolute http or https address"),
        ("--deadline", "tomorrow", "is no ISO 8601 time"),
        ("--deadline", "2030-01-31T12:00:00", "needs a time zone"),
        ("--account", " ", "needs an account and a task"),
        ("--after", "op_00000000000000000000", "op_00000000000000000000"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_2(
    interlock: Interlock, payload: str, option: str, value: str, says: str
) -> None:
    said = propose(interlock, payload, "t1", option, value)
    assert said.exit == 2
    assert says in one_sentence(said)


def test_usage_errors_are_one_sentence_and_exit_2(interlock: Interlock) -> None:
    for arguments in (
        ("propose", FLOW),
        ("nonsense",),
        ("list", "--colour"),
        ("stop",),
        ("receipt", "x", "--format", "pdf"),
    ):
        said = interlock(*arguments)
        assert said.exit == 2
        one_sentence(said)


# -- permission -------------------------------------------------------------------------------------------------------
def test_approving_shows_what_is_approved_and_asks(interlock: Interlock, payload: str) -> None:
    operation = propose(interlock, payload).json["operation"]
    no = interlock("approve", operation, stdin="n\n")
    assert no.exit == 40
    assert "Nothing was approved" in no.err
    yes = interlock("approve", operation, stdin="y\n")
    assert yes.exit == 0
    for shown in (TITLE, BODY, "editor", SITE, "publish-announcement", "fingerprint"):
        assert shown in yes.err
    assert interlock("show", operation, "--json").json["permission"] == "authorized"


def test_no_answer_is_no_approval(interlock: Interlock, payload: str) -> None:
    operation = propose(interlock, payload).json["operation"]
    said = interlock("approve", operation, "--json", stdin="")
    assert said.exit == 40
    assert said.json["exit"] == 40
    assert interlock("show", operation, "--json").json["permission"] == "pending"


def test_yes_is_for_a_persons_scripts_and_never_for_a_proposer(
    interlock: Interlock, payload: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    operation = propose(interlock, payload).json["operation"]
    monkeypatch.setenv("INTERLOCK_PROPOSER", "agent-7")
    said = interlock("approve", operation, "--yes")
    assert said.exit == 40
    assert "proposer:agent-7 may not approve" in one_sentence(said)
    assert interlock("show", operation, "--json").json["permission"] == "pending"
    monkeypatch.delenv("INTERLOCK_PROPOSER")
    approval = interlock("approve", operation, "--yes", "--json")
    assert approval.exit == 0
    assert approval.json["by"] == f"person:{getpass.getuser()}"


def test_a_proposer_may_not_lift_a_stop_or_sign_in(interlock: Interlock, monkeypatch: pytest.MonkeyPatch) -> None:
    stop = interlock("stop", "--all", "--json").json["id"]
    monkeypatch.setenv("INTERLOCK_PROPOSER", "agent-7")
    assert interlock("stop", "--lift", stop).exit == 40
    assert interlock("login", FLOW, "--site", SITE, "--account", "editor").exit == 40
    assert [one["id"] for one in interlock("stop", "--list", "--json").json] == [stop]


def test_what_a_proposer_writes_cannot_deceive_the_person_who_approves(interlock: Interlock, tmp_path: Path) -> None:
    path = tmp_path / "nasty.json"
    path.write_text(json.dumps({"title": "fine\u202etxet", "body": "a [bold]c[/bold]"}), encoding="utf-8")
    refused = propose(interlock, str(path), "task\x1b[2K")
    assert refused.exit == 2
    assert "one line of text" in one_sentence(refused)
    assert "\x1b" not in refused.err
    operation = propose(interlock, str(path)).json["operation"]
    shown = interlock("approve", operation, "--yes").err
    assert "\u202e" not in shown
    assert r"fine\u202etxet" in shown
    assert "a [bold]c[/bold]" in shown
    assert "\u202e" not in interlock("list").out + interlock("show", operation).out


def test_a_file_is_taken_in_and_the_person_is_told_where_to_look_at_it(interlock: Interlock, tmp_path: Path) -> None:
    folder = tmp_path / "somebody's folder"
    folder.mkdir()
    (folder / "a.png").write_bytes(b"\x89PNG not really")
    given = {"title": "T", "body": "B", "image": {"path": "a.png"}}
    (folder / "notice.json").write_text(json.dumps(given), encoding="utf-8")
    said = propose(interlock, str(folder / "notice.json"), flow="playground-photo")
    approved = interlock("approve", said.json["operation"], "--yes").err.replace("\n", "").replace(" ", "")
    (kept,) = (tmp_path / "home" / "payload-files").iterdir()
    assert f"lookatimage{kept}" in approved
    assert (kept.read_bytes(), kept.name in approved) == (b"\x89PNG not really", True)
    assert "somebody'sfolder" not in approved
    (folder / "a.png").unlink()
    missing = propose(interlock, str(folder / "notice.json"), "t2", flow="playground-photo")
    assert (missing.exit, "a.png" in missing.err) == (2, True)


def test_an_approval_can_be_revoked_and_the_receipt_says_what_to_do(interlock: Interlock, payload: str) -> None:
    operation = propose(interlock, payload).json["operation"]
    interlock("approve", operation, "--yes")
    assert interlock("revoke", operation, "--why", "not today", "--json").json["permission"] == "revoked"
    receipt = interlock("receipt", operation)
    assert receipt.exit == 0
    assert receipt.out.startswith("NOT RUN — nothing was submitted.")
    assert f"interlock approve {operation}" in receipt.out


# -- runs that are refused before a browser is opened -----------------------------------------------------------------
def test_a_run_without_approval_is_refused_with_a_receipt(interlock: Interlock, payload: str, tmp_path: Path) -> None:
    operation = propose(interlock, payload).json["operation"]
    said = interlock("run", operation)
    assert said.exit == 40
    assert said.out.startswith("REFUSED — nothing was submitted.")
    text = (tmp_path / "home" / "receipts" / f"{operation}.txt").read_text(encoding="utf-8")
    assert text in said.out
    as_json = interlock("run", operation, "--json")
    assert as_json.json["receipt"]["reason"]["code"] == "refusal:not_authorized"
    assert (as_json.exit, as_json.json["exit"], as_json.err) == (40, 40, "")


def test_an_expired_approval_is_refused(interlock: Interlock, payload: str) -> None:
    operation = propose(interlock, payload).json["operation"]
    interlock("approve", operation, "--yes", "--valid-for", "0.001")
    said = interlock("run", operation, "--json")
    assert said.exit == 40
    assert said.json["receipt"]["reason"]["code"] == "refusal:approval_expired"
    assert interlock("approve", operation, "--yes", "--valid-for", "-1").exit == 2


def test_a_stop_refuses_runs_until_it_is_lifted(interlock: Interlock, payload: str) -> None:
    operation = propose(interlock, payload).json["operation"]
    interlock("approve", operation, "--yes")
    assert interlock("resume", operation).exit == 2, "it does not wait"
    stop = interlock("stop", "--site", SITE, "--account", "editor", "--why", "looking", "--json").json
    said = interlock("run", operation, "--json")
    assert said.exit == 40
    assert said.json["receipt"]["reason"]["because"] == [stop["id"]]
    assert f"interlock stop --lift {stop['id']}" in interlock("receipt", operation).out
    assert stop["id"] in interlock("stop", "--list").out
    assert interlock("stop", "--lift", stop["id"]).exit == 0
    assert "No stop is in force" in interlock("stop", "--list").out


def test_a_missing_browser_is_one_sentence_and_nothing_is_lost(
    interlock: Interlock, payload: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    operation = propose(interlock, payload).json["operation"]
    interlock("approve", operation, "--yes")
    monkeypatch.setenv("INTERLOCK_BROWSER", str(tmp_path / "no-browser"))
    said = interlock("run", operation, "--json")
    assert said.exit == 70
    assert "no-browser" in one_sentence(said)
    assert interlock("show", operation, "--json").json["dispatch"] == "not_started"


# -- reading ----------------------------------------------------------------------------------------------------------
def test_list_and_show_keep_the_dimensions_apart(interlock: Interlock, payload: str) -> None:
    assert "no operation yet" in interlock("list").out
    operation = propose(interlock, payload).json["operation"]
    listed = interlock("list")
    assert operation in listed.out
    assert "not_started (no attempt)" in listed.out
    assert "Nothing is unresolved" in interlock("list", "--unresolved").out
    assert interlock("list", "--json").json[0]["transmission"] is None
    shown = interlock("show", operation[:14])
    for word in ("pending", "not_started (no attempt)", "unobserved", "proposed"):
        assert word in shown.out
    assert [one["kind"] for one in interlock("show", operation, "--json").json["events"]] == ["proposed"]


def test_reading_shows_nothing_of_the_payload(interlock: Interlock, payload: str) -> None:
    operation = propose(interlock, payload).json["operation"]
    for arguments in (
        ("list",),
        ("list", "--json"),
        ("show", operation),
        ("show", operation, "--json"),
        ("receipt", operation),
        ("receipt", operation, "--format", "json"),
    ):
        said = interlock(*arguments)
        assert said.exit == 0
        assert TITLE not in said.out
        assert BODY not in said.out


def test_an_unknown_operation_is_exit_2(interlock: Interlock) -> None:
    for command in ("show", "receipt", "run", "approve", "revoke"):
        said = interlock(command, "op_zzzzzzzzzzzzzzzzzzzz")
        assert said.exit == 2
        assert "op_zzzzzzzzzzzzzzzzzzzz" in one_sentence(said)


def test_a_newer_schema_is_left_alone(interlock: Interlock, payload: str, tmp_path: Path) -> None:
    propose(interlock, payload)
    ledger = tmp_path / "home" / "ledger.sqlite"
    with sqlite3.connect(ledger) as database:
        database.execute("UPDATE alembic_version SET version_num = 'from_the_future'")
    database.close()
    before = ledger.read_bytes()
    said = interlock("list")
    assert said.exit == 70
    assert "newer" in one_sentence(said)
    assert ledger.read_bytes() == before


def test_an_unusable_ledger_is_one_sentence_and_exit_70(interlock: Interlock, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "ledger.sqlite").write_bytes(b"this is no database" * 100)
    said = interlock("list")
    assert said.exit == 70
    one_sentence(said)


def test_unusable_settings_are_one_sentence_and_exit_2(interlock: Interlock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INTERLOCK_LEASE_S", "soon")
    said = interlock("list")
    assert said.exit == 2
    assert "lease_s" in one_sentence(said)


def test_home_is_an_option_too(interlock: Interlock, tmp_path: Path) -> None:
    other = tmp_path / "other"
    assert interlock("--home", str(other), "list").exit == 0
    assert (other / "ledger.sqlite").exists()


# -- flows, doctor ----------------------------------------------------------------------------------------------------
def test_flows_are_listed_and_shown(interlock: Interlock) -> None:
    listed = interlock("flows", "list", "--json")
    assert {"wordpress", FLOW} <= {one["name"] for one in listed.json}
    assert all(one["problem"] is None for one in listed.json)
    assert FLOW in interlock("flows", "list").out
    shown = interlock("flows", "show", FLOW)
    for word in ("effect path", "/form/publish", "contract category", "write_without_key", "contract undo"):
        assert word in shown.out
    assert 'a file: {"path": "NAME"}' in interlock("flows", "show", "playground-photo").out
    assert interlock("flows", "show", FLOW, "--json").json["effect"]["method"] == "POST"
    assert interlock("flows", "show", "wordpres").exit == 2


def test_doctor_checks_without_a_home_and_with_one(interlock: Interlock, payload: str, tmp_path: Path) -> None:
    fresh = interlock("doctor", "--quick", "--json")
    assert fresh.exit == 0
    assert not (tmp_path / "home").exists()
    propose(interlock, payload)
    said = interlock("doctor", "--quick", "--json")
    found = {one["name"]: one for one in said.json["checks"]}
    assert said.json["fit"] is True
    assert found["ledger"]["says"].endswith("1 events")
    assert "at most 1" in found["submits"]["says"]
    assert found["packages"]["fitness"] == "good"
    assert found["durable"]["fitness"] == "good"
    assert "Ready." in interlock("doctor", "--quick").out


def test_doctor_says_what_is_missing(interlock: Interlock, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("INTERLOCK_BROWSER", str(tmp_path / "no-browser"))
    monkeypatch.setenv("INTERLOCK_MINIMUM_FREE_BYTES", str(10**18))
    said = interlock("doctor", "--quick", "--json")
    assert said.exit == 70
    assert {one["name"] for one in said.json["checks"] if one["fitness"] == "missing"} == {"browser", "disk"}


def test_doctor_notices_a_table_that_no_flow_goes_by(interlock: Interlock, tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    tables = '[flow."wordpress"]\nlook_s = 50.0\n[flow."wordpres"]\nlook_s = 50.0\n'
    (tmp_path / "home" / "settings.toml").write_text(tables, encoding="utf-8")
    checks = {one["name"]: one for one in interlock("doctor", "--quick", "--json").json["checks"]}
    assert checks["tables"]["fitness"] == "note"
    assert '[flow."wordpres"];' in checks["tables"]["says"]
    assert '[flow."wordpress"]' not in checks["tables"]["says"]


def test_doctor_says_where_no_evidence_can_be_kept(interlock: Interlock, monkeypatch: pytest.MonkeyPatch) -> None:
    def link(*_: object, **__: object) -> None:  # as a FAT file system and some network shares have it
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr("evidence.store.os.link", link)
    said = interlock("doctor", "--quick", "--json")
    disk = next(one for one in said.json["checks"] if one["name"] == "disk")
    assert said.exit == 70
    assert disk["fitness"] == "missing"
    assert "synced, locked and linked" in disk["says"]


def test_doctor_notices_folders_that_others_may_read(interlock: Interlock, payload: str, tmp_path: Path) -> None:
    propose(interlock, payload)
    (tmp_path / "home").chmod(0o755)
    checks = {one["name"]: one for one in interlock("doctor", "--quick", "--json").json["checks"]}
    assert checks["folders"]["fitness"] == "note"
    assert "chmod 700" in checks["folders"]["says"]


def test_a_folder_with_an_earlier_demo_is_not_used_again(interlock: Interlock, tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    said = interlock("demo", "--keep", str(tmp_path))
    assert said.exit == 2
    assert "earlier demo" in one_sentence(said)


# -- the last place ---------------------------------------------------------------------------------------------------
def test_a_defect_is_one_sentence_unless_debugging(interlock: Interlock, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        raise ZeroDivisionError("of all things")

    monkeypatch.setattr("executor.cli.reading.executor", broken)
    said = interlock("list", "--json")
    assert said.exit == 70
    assert "This is a defect: ZeroDivisionError" in one_sentence(said)
    assert said.json["exit"] == 70
    monkeypatch.setenv("INTERLOCK_DEBUG", "1")
    with pytest.raises(ZeroDivisionError):
        interlock("list")


def test_help_and_version_answer(interlock: Interlock) -> None:
    assert "Exit codes" in interlock("--help").out
    assert interlock() == interlock("--help")
    assert interlock("--version").out.startswith("interlock ")
    assert interlock("stop", "--help").exit == 0


def test_doctor_sees_a_ledger_that_went_back_in_time(interlock: Interlock, payload: str, tmp_path: Path) -> None:
    ledger = tmp_path / "home" / "ledger.sqlite"
    operation = propose(interlock, payload).json["operation"]
    interlock("stop", "--all")  # the anchor follows stops, claims and releases
    older = sqlite3.connect(ledger)
    with sqlite3.connect(tmp_path / "backup.sqlite") as backup:
        older.backup(backup)
    older.close()
    backup.close()
    interlock("stop", "--all", "--why", "another")
    for file in (tmp_path / "home").glob("ledger.sqlite*"):
        file.unlink()
    (tmp_path / "backup.sqlite").rename(ledger)
    checks = {check["name"]: check for check in interlock("doctor", "--quick", "--json").json["checks"]}
    assert checks["anchor"]["fitness"] == "missing"
    assert "restored backup" in checks["anchor"]["says"]
    assert interlock("show", operation).exit == 0
