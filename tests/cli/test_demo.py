"""The demo and single runs from the command line: a real browser, a real site, and the site's own record."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from playground.faults import Fault
from playground.process import Playground
from playground.truth import Truth

pytestmark = pytest.mark.browser
FLOW = "playground-form"


def environ_of(home: Path, site: Playground | None, **environment: str) -> dict[str, str]:
    """The environment of a call that is to see nothing of this machine's own settings."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("INTERLOCK_")}
    environ |= {"INTERLOCK_HOME": str(home), "INTERLOCK_KEY_FOLDER": str(home.parent / "keys"), **environment}
    if "INTERLOCK_BROWSER" in os.environ:
        environ["INTERLOCK_BROWSER"] = os.environ["INTERLOCK_BROWSER"]
    if site is not None:
        environ["INTERLOCK_TRUST"] = json.dumps([str(site.ca)])
    return environ


COMMAND = (sys.executable, "-c", "from executor.cli.main import main; main()")


def interlock(home: Path, *arguments: str, site: Playground | None = None, **environment: str) -> Any:
    """The installed command in a process of its own, as a person runs it."""
    return subprocess.run(
        [*COMMAND, *arguments],
        env=environ_of(home, site, **environment),
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )


def approved(home: Path, site: Playground) -> str:
    """Signed in, proposed and approved by the command; gives the operation's id."""
    payload = home.parent / "payload.json"
    payload.write_text(json.dumps({"title": "Tide tables", "body": "They hang at the gate."}), encoding="utf-8")
    where = ("--site", site.tls, "--account", "editor")
    signed_in = interlock(
        home, "login", FLOW, *where, site=site, INTERLOCK_USER="editor", INTERLOCK_PASSWORD="playground"
    )
    assert signed_in.returncode == 0, signed_in.stderr
    proposed = interlock(home, "propose", FLOW, *where, "--task", "t1", "--payload", str(payload), "--json", site=site)
    operation: str = json.loads(proposed.stdout)["operation"]
    assert interlock(home, "approve", operation, "--yes", site=site).returncode == 0
    return operation


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Playground]:
    with Playground.start(tmp_path / "site") as running:
        yield running


def test_the_demo_ends_as_it_should_and_its_record_agrees_with_the_sites(tmp_path: Path) -> None:
    done = interlock(tmp_path / "unused", "demo", "--keep", str(tmp_path / "demo"), "--json")
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["as_it_should"] is True
    assert [(act["standing"], act["exit"]) for act in said["acts"]] == [
        ("succeeded", 0),
        ("unknown", 20),
        ("halted", 40),
    ]
    assert said["acts"][1]["second_run_exit"] == 40

    truth = Truth(tmp_path / "demo" / "site" / "truth.sqlite")
    assert len(truth.commits()) == 2
    assert {item.account for item in truth.published()} == {"editor"}

    for act in said["acts"]:
        receipt = json.loads(Path(act["receipt"]).read_text(encoding="utf-8"))
        assert receipt["standing"] == act["standing"]
        assert act["evidence"]["pictures"]
        for picture in act["evidence"]["pictures"]:
            assert (tmp_path / "demo" / "home" / picture["path"]).is_file()
        text = Path(act["receipt"]).with_suffix(".txt").read_text(encoding="utf-8")
        for item in truth.published():
            assert item.title not in text
            assert item.title not in json.dumps(receipt)
    assert not (tmp_path / "unused").exists()


def test_a_run_from_sign_in_to_receipt_and_a_second_run_that_submits_nothing(site: Playground, tmp_path: Path) -> None:
    home = tmp_path / "home"
    operation = approved(home, site)

    first = interlock(home, "run", operation, site=site)
    assert first.returncode == 0, first.stdout + first.stderr
    assert first.stdout.startswith("SUCCEEDED — it was published.")
    lines = [line.split()[:3] for line in first.stderr.splitlines()]
    assert ["✓", "8", "claim"] in lines
    assert ["✓", "16", "verdict"] in lines

    second = interlock(home, "run", operation, "--json", site=site)
    assert second.returncode == 40
    assert second.stderr == ""
    assert json.loads(second.stdout)["receipt"]["standing"] == "succeeded"
    assert site.truth.publish_count("Tide tables") == 1
    listed = json.loads(interlock(home, "list", "--json", site=site).stdout)
    assert [(one["dispatch"], one["transmission"], one["outcome"]) for one in listed] == [
        ("completed", "answered", "succeeded")
    ]


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_after_the_gesture_waits_for_the_answer_and_prints_the_receipt(
    sent: signal.Signals, site: Playground, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    operation = approved(home, site)
    site.truth.inject(Fault.LATE, path_prefix="/", argument=4)
    running = subprocess.Popen(
        [*COMMAND, "run", operation],
        env=environ_of(home, site),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with running:
        assert running.stderr is not None
        heard = next((line for line in running.stderr if line.split()[1:3] == ["11", "release"]), None)
        assert heard is not None, "the run ended before its release"
        running.send_signal(sent)
        running.send_signal(sent)  # a second one, from an impatient person, tears nothing either
        said, _ = running.communicate(timeout=120)
    assert running.returncode == 0
    assert said.startswith("SUCCEEDED — it was published.")
    assert site.truth.publish_count("Tide tables") == 1


def test_a_signal_before_the_claim_halts_and_says_so(site: Playground, tmp_path: Path) -> None:
    home = tmp_path / "home"
    operation = approved(home, site)
    running = subprocess.Popen(
        [*COMMAND, "run", operation],
        env=environ_of(home, site),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with running:
        assert running.stderr is not None
        assert any(line.split()[1:3] == ["3", "open"] for line in running.stderr)
        running.send_signal(signal.SIGTERM)
        said, _ = running.communicate(timeout=120)
    assert running.returncode == 70
    assert said.startswith("HALTED — nothing was submitted.")
    assert site.truth.publish_count() == 0


def test_a_wrong_password_is_one_sentence_without_the_password(site: Playground, tmp_path: Path) -> None:
    done = interlock(
        tmp_path / "home",
        *("login", FLOW, "--site", site.tls, "--account", "editor"),
        site=site,
        INTERLOCK_PASSWORD="hunter-2-hunter",
    )
    assert done.returncode == 70
    assert len(done.stderr.strip().splitlines()) == 1
    assert "hunter" not in done.stderr + done.stdout
