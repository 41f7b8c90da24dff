from __future__ import annotations

import asyncio
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from evidence import worker

_PARENT = """
import asyncio, time
from evidence import worker

async def main():
    print(await worker.run(worker.process_id), flush=True)
    time.sleep(600)

if __name__ == "__main__":
    asyncio.run(main())
"""


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="needs pidfd (Linux)")
def test_the_worker_ends_with_a_killed_parent(tmp_path: Path) -> None:
    script = tmp_path / "parent.py"
    script.write_text(_PARENT)
    environment = os.environ | {"PYTHONPATH": str(Path(worker.__file__).parent.parent), "PYTHONWARNINGS": "ignore"}
    parent = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, env=environment)
    try:
        assert parent.stdout is not None
        descriptor = os.pidfd_open(int(parent.stdout.readline()))
        try:
            parent.send_signal(signal.SIGKILL)
            parent.wait(20)
            assert select.select([descriptor], [], [], 20)[0], "the worker outlived its parent"
        finally:
            os.close(descriptor)
    finally:
        parent.kill()
        parent.wait(20)
        if parent.stdout is not None:
            parent.stdout.close()


async def test_it_can_be_closed_and_used_again() -> None:
    first = await worker.run(worker.process_id)
    assert first != os.getpid()
    worker.close()
    with pytest.raises(ProcessLookupError):
        os.kill(first, 0)
    assert await worker.run(worker.process_id) != first


async def test_a_job_that_raises_gives_its_exception() -> None:
    with pytest.raises(ValueError, match="invalid literal"):
        await worker.run(int, "no number")


def test_a_script_without_a_guard_is_not_run_twice(tmp_path: Path) -> None:
    """A worker that re-imported the caller's main module would make a script submit once more."""
    script = tmp_path / "unguarded.py"
    script.write_text(
        "import asyncio\nfrom evidence import worker\nprint('submitting')\nasyncio.run(worker.run(worker.process_id))\n"
    )
    environment = os.environ | {"PYTHONPATH": str(Path(worker.__file__).parent.parent)}
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=60, check=True, env=environment
    )
    assert done.stdout.splitlines() == ["submitting"]


async def test_giving_up_one_job_leaves_the_others_alone() -> None:
    first = asyncio.ensure_future(worker.run(worker.process_id))
    waiting = asyncio.ensure_future(worker.run(worker.process_id))
    given_up = asyncio.ensure_future(worker.run(worker.process_id))
    await asyncio.sleep(0)
    given_up.cancel()
    assert await first == await waiting
    with pytest.raises(asyncio.CancelledError):
        await given_up


async def test_an_overrun_job_is_ended_and_the_next_one_is_done() -> None:
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(worker.run(time.sleep, 600), 1)
    assert await asyncio.wait_for(worker.run(worker.process_id), 30) != os.getpid()
