from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
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
