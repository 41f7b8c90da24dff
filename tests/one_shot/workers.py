"""Workers as processes of their own (`interlock worker --json`), and what they say."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, Queue
from typing import Any

from child import eventually
from desk import QUICK, Desk

PATIENCE_S = 240.0
"""Several runs on a machine that does much else."""
_START = "import sys; from executor.cli.main import main; main(sys.argv[1:])"


@dataclass
class WorkerProcess:
    process: subprocess.Popen[str]
    folder: Path
    said: list[dict[str, Any]] = field(default_factory=list)
    _queue: Queue[dict[str, Any] | None] = field(default_factory=Queue)
    _errors: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._readers = [threading.Thread(target=self._read, daemon=True), threading.Thread(target=self._complaints)]
        for one in self._readers:
            one.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._queue.put(json.loads(line))
        self._queue.put(None)

    def _complaints(self) -> None:
        assert self.process.stderr is not None
        self._errors.extend(self.process.stderr)

    def until(self, what: str) -> dict[str, Any]:
        """The next line of this kind."""
        while True:
            try:
                line = self._queue.get(timeout=PATIENCE_S)
            except Empty:
                raise AssertionError(f"it did not say {what!r}, but {self.said}") from None
            assert line is not None, f"it ended without saying {what!r}: {self.said} {''.join(self._errors)}"
            self.said.append(line)
            if line["what"] == what:
                return line

    def heard(self) -> list[dict[str, Any]]:
        """All lines so far."""
        while not self._queue.empty():
            line = self._queue.get()
            if line is not None:
                self.said.append(line)
        return self.said

    def ended(self) -> int:
        """Wait for its end; the exit code."""
        code = self.process.wait(timeout=PATIENCE_S)
        for one in self._readers:
            one.join(timeout=PATIENCE_S)
        while (line := self._queue.get(timeout=PATIENCE_S)) is not None:
            self.said.append(line)
        assert "Traceback" not in "".join(self._errors), "".join(self._errors)
        return code

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def groups(self) -> set[int]:
        """The process groups of what runs on this worker's folder: the driver gives its browser one of its own."""
        found = set()
        for entry in Path("/proc").iterdir():
            if entry.name.isdecimal():
                with contextlib.suppress(OSError):
                    if str(self.folder).encode() in (entry / "cmdline").read_bytes():
                        found.add(os.getpgid(int(entry.name)))
        return found - {os.getpgrp()}

    def kill(self) -> None:
        """The process alone, as the kernel does; its browser is left without a driver."""
        self.process.kill()
        self.process.wait(timeout=PATIENCE_S)

    def clear(self) -> None:
        for group in (self.process.pid, *self.groups()):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(group, signal.SIGKILL)
        self.process.wait(timeout=PATIENCE_S)
        for one in self._readers:
            one.join(timeout=PATIENCE_S)
        for stream in (self.process.stdout, self.process.stderr):
            assert stream is not None
            stream.close()
        eventually(lambda: not self.groups())
        shutil.rmtree(self.folder, ignore_errors=True)


@contextlib.contextmanager
def workers(desk: Desk, count: int, *arguments: str, **settings: Any) -> Iterator[list[WorkerProcess]]:
    """Start several on the desk's ledger; whatever becomes of them, they are gone afterwards."""
    home = desk.settings.home
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    given = {**QUICK, **desk.overrides, **settings}
    home.joinpath("settings.toml").write_text("".join(f"{name} = {_toml(value)}\n" for name, value in given.items()))
    environment = {name: value for name, value in os.environ.items() if not name.startswith("INTERLOCK_")}
    if "INTERLOCK_BROWSER" in os.environ:
        environment["INTERLOCK_BROWSER"] = os.environ["INTERLOCK_BROWSER"]
    environment |= {"INTERLOCK_HOME": str(home), "INTERLOCK_KEY_FOLDER": str(desk.settings.key_folder)}
    started: list[WorkerProcess] = []
    try:
        for _ in range(count):
            folder = Path(tempfile.mkdtemp(prefix="worker-"))
            process = subprocess.Popen(
                [sys.executable, "-c", _START, "worker", "--json", *arguments],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env={**environment, "TMPDIR": str(folder)},
                start_new_session=True,
            )
            started.append(WorkerProcess(process, folder))
        yield started
    finally:
        for one in started:
            one.clear()


def _toml(value: object) -> str:
    return json.dumps(list(value) if isinstance(value, tuple) else value)
