"""The log of receipts in real files: damage to what was signed is found, and a killed writer leaves no half line."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from evidence.merkle import leaf_hash, verify_inclusion
from evidence.receipt_log import HEADS, LINES, Entry, LogUnreadable, ReceiptLog
from evidence.signing_keys import SigningKeys

WHEN = datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC)


def entry(number: int) -> Entry:
    return Entry(
        operation_id=f"op_{number}", events=number + 1, head=f"{number:064x}", receipt=f"{number:064x}", at=WHEN
    )


@pytest.fixture
def keys(tmp_path: Path) -> SigningKeys:
    return SigningKeys(tmp_path / "keys")


@pytest.fixture
def log(tmp_path: Path, keys: SigningKeys) -> ReceiptLog:
    made = ReceiptLog(tmp_path / "log")
    for number in range(6):
        made.append(entry(number), [keys.signer()])
    return made


def test_what_was_appended_is_there_and_sound(log: ReceiptLog, keys: SigningKeys) -> None:
    assert log.entries() == tuple(entry(number) for number in range(6))
    report = log.check(keys.known())
    assert (report.entries, report.heads, report.flaws) == (6, 6, ())


def test_an_entry_can_be_shown_to_be_in_it(log: ReceiptLog, keys: SigningKeys) -> None:
    found = log.position("op_2", f"{2:064x}", keys.known())
    assert found is not None
    leaf = leaf_hash(entry(2).line())
    assert verify_inclusion(leaf, found.index, found.head.size, found.path, bytes.fromhex(found.head.root))
    assert log.position("op_2", f"{3:064x}", keys.known()) is None


def test_heads_of_a_retired_key_still_count(log: ReceiptLog, keys: SigningKeys) -> None:
    log.append(entry(6), [keys.rotate()])
    assert log.check(keys.known()).sound
    assert not log.check({key_id: key for key_id, key in keys.known().items() if key_id == keys.signer().key_id}).sound


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_every_damage_to_the_lines_is_found(
    log: ReceiptLog, keys: SigningKeys, tmp_path: Path, data: st.DataObject
) -> None:
    place = tmp_path / "log" / LINES
    sound = place.read_bytes()
    lines = sound.split(b"\n")[:-1]
    kind = data.draw(st.sampled_from(["flip", "drop", "swap", "repeat", "cut", "insert"]))
    at = data.draw(st.integers(0, len(lines) - 1))
    if kind == "flip":
        spot = data.draw(st.integers(0, len(sound) - 1))
        damaged = sound[:spot] + bytes([sound[spot] ^ data.draw(st.integers(1, 255))]) + sound[spot + 1 :]
    elif kind == "cut":
        damaged = sound[: data.draw(st.integers(0, len(sound) - 1))]
    else:
        other = (at + data.draw(st.integers(1, len(lines) - 1))) % len(lines)
        changed = list(lines)
        if kind == "drop":
            del changed[at]
        elif kind == "swap":
            changed[at], changed[other] = changed[other], changed[at]
        elif kind == "repeat":
            changed.insert(at, lines[at])
        else:
            changed.insert(at, entry(99).line())
        damaged = b"\n".join(changed) + b"\n"
    place.write_bytes(damaged)
    try:
        assert not log.check(keys.known()).sound
    finally:
        place.write_bytes(sound)


def test_damage_to_the_heads_is_found(log: ReceiptLog, keys: SigningKeys, tmp_path: Path) -> None:
    place = tmp_path / "log" / HEADS
    heads = place.read_bytes().split(b"\n")[:-1]
    for damaged in (heads[:-1], [*heads[:2], b"{}", *heads[3:]], [*heads, heads[0]], []):
        place.write_bytes(b"".join(line + b"\n" for line in damaged))
        assert not log.check(keys.known()).sound


def test_a_log_that_another_key_signed_anew_is_not_believed(log: ReceiptLog, keys: SigningKeys, tmp_path: Path) -> None:
    forged = ReceiptLog(tmp_path / "forged")
    for number in (0, 1, 3, 4, 5):
        forged.append(entry(number), [SigningKeys(tmp_path / "other keys").signer()])
    assert not forged.check(keys.known()).sound


def test_what_is_no_entry_is_said(log: ReceiptLog, tmp_path: Path) -> None:
    with (tmp_path / "log" / LINES).open("ab") as file:
        file.write(b"no entry\n")
    with pytest.raises(LogUnreadable, match="line 7"):
        log.entries()


WRITER = """
import sys
from datetime import UTC, datetime
from pathlib import Path
from evidence.receipt_log import Entry, ReceiptLog
from evidence.signing_keys import SigningKeys
log, keys = ReceiptLog(Path(sys.argv[1])), SigningKeys(Path(sys.argv[2]))
for number in range(int(sys.argv[3])):
    log.append(Entry(operation_id=f"op_{sys.argv[4]}_{number}", events=1, head="0" * 64, receipt="1" * 64,
                     at=datetime.now(UTC)), [keys.signer()])
    sys.stdout.write(f"{number}\\n")
    sys.stdout.flush()
"""


def writer(folder: Path, count: int, name: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", WRITER, str(folder / "log"), str(folder / "keys"), str(count), name]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def test_writers_side_by_side_lose_nothing(tmp_path: Path, keys: SigningKeys) -> None:
    started = [writer(tmp_path, 15, str(number)) for number in range(3)]
    for process in started:
        process.communicate(timeout=120)
    log = ReceiptLog(tmp_path / "log")
    assert {one.operation_id for one in log.entries()} == {f"op_{who}_{n}" for who in range(3) for n in range(15)}
    assert log.check(keys.known()).sound


@pytest.mark.parametrize("after", [1, 4, 9])
def test_a_killed_writer_leaves_no_half_line(after: int, tmp_path: Path, keys: SigningKeys) -> None:
    process = writer(tmp_path, 10_000, "killed")
    assert process.stdout is not None
    told = 0
    for _ in range(after):
        told = int(process.stdout.readline()) + 1
    time.sleep(0.001 * after)  # somewhere in the middle of the next one
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    log = ReceiptLog(tmp_path / "log")
    with (tmp_path / "log" / LINES).open("ab") as file:
        file.write(b'{"half a li')  # as a write that power loss cut
    assert len(log.entries()) >= told
    log.append(entry(1), [keys.signer()])
    assert log.entries()[-1] == entry(1)
    assert log.check(keys.known()).sound
