"""Uploads of 200 MB pass, byte for byte, and are not held in memory: neither a supporting write nor the effect."""

from __future__ import annotations

import asyncio
import gc
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from gate_origin import Origin
from gate_support import RecordingDoor, rules_for

from executor.gate.rules import Phase

MIB = 1024 * 1024
SCRIPT = Path(__file__).with_name("large_body_ends.py")


def resident() -> int:
    """Bytes of this process in memory (Linux)."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmRSS:"))
    return int(line.split()[1]) * 1024


class Ends:
    def __init__(self, process: asyncio.subprocess.Process, port: int) -> None:
        self._process = process
        self.origin = Origin()  # never entered: only its address is asked for
        self.origin.port = port

    async def send(self, **order: str) -> dict[str, Any]:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(order).encode() + b"\n")
        return json.loads(await self._process.stdout.readline())


@pytest.fixture
async def ends() -> AsyncIterator[Ends]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(SCRIPT), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdin is not None and process.stdout is not None
    yield Ends(process, int(await process.stdout.readline()))
    process.stdin.close()
    await process.wait()


@pytest.mark.parametrize(
    ("method", "path", "framing"),
    [("PUT", "/upload", "sized"), ("PUT", "/upload", "chunked"), ("POST", "/publish", "multipart")],
)
async def test_two_hundred_megabytes_pass_and_are_not_held(
    method: str, path: str, framing: str, ends: Ends, make_gate: Any
) -> None:
    door = RecordingDoor(60.0)
    phase = Phase.ARMED if framing == "multipart" else Phase.PREPARE
    gate = await make_gate(ends.origin, phase, rules=rules_for(ends.origin), door=door)
    await ends.send(gate=gate.address, method=method, path="/upload", mib="1", framing="sized")  # what all need once
    gc.collect()
    before, most, done = resident(), 0, asyncio.Event()

    async def watch() -> None:
        nonlocal most
        while not done.is_set():
            most = max(most, resident())
            await asyncio.sleep(0.01)

    watching = asyncio.ensure_future(watch())
    said = await ends.send(gate=gate.address, method=method, path=path, mib="199", framing=framing)
    done.set()
    await watching
    sent, arrived = said["sent"], said["arrived"]
    assert sent["status"] == "200", [entry.reason for entry in gate.log]
    assert [(one["size"], one["sha256"], one["missing"]) for one in arrived] == [(sent["size"], sent["sha256"], 0)]
    assert sent["size"] > 199 * MIB - 1
    assert len(door.candidates) == (1 if framing == "multipart" else 0)
    assert most - before < 32 * MIB, f"the gate grew by {(most - before) / MIB:.0f} MiB"
