"""Where a browser keeps its files while it runs, and what becomes of them when nobody closed it.

A browser ends with its driver, and its driver with this program. Neither holds when the driver is frozen or killed:
then processes stay behind, and a profile folder. So each browser gets a folder of ours for temporary files, whose name
is in the environment of its processes, and whose lock is held by this program until it ends, however it ends. Whoever
starts a browser later finds folders whose lock is free, ends what still runs there and removes them.

It ends processes by that mark and by nothing else, and only those of our own user. Processes are found on Linux alone;
elsewhere folders are removed.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Self

_log = logging.getLogger(__name__)

PREFIX = "interlock-browser-"
_LOCK = "owner.lock"
_MARK = "INTERLOCK_LODGING"
_PROFILES = "profiles"
"""A file with the folders that the driver made elsewhere, one path a line."""
_MADE_BY_THE_DRIVER = "playwright_"
_YOUNG_S = 60.0
"""A folder without a lock is one that somebody is making, unless it is older than this."""
_GONE_WITHIN_S = 5.0


class Lodging:
    """The folder of one browser: temporary files, artefacts, and the mark by which its processes are found."""

    def __init__(self, folder: Path, lock: int) -> None:
        self.folder = folder
        self._lock = lock

    @classmethod
    def take(cls) -> Self:
        """A new folder, locked by this process. Blocking. Raises OSError."""
        folder = Path(tempfile.mkdtemp(prefix=PREFIX))
        # Locked before it has its name: a sweep by another process never finds it without its owner.
        making = folder / f"{_LOCK}.new"
        lock = os.open(making, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX)
        making.rename(folder / _LOCK)
        return cls(folder, lock)

    def environment(self) -> dict[str, str | float | bool]:
        """For the browser: this process's own, with the mark."""
        marked: dict[str, str | float | bool] = {**os.environ, _MARK: str(self.folder)}
        if sys.platform == "linux":  # elsewhere the path of a socket in it would become too long
            marked["TMPDIR"] = str(self.folder)
        return marked

    @property
    def artefacts(self) -> Path:
        """For the driver."""
        return self.folder / "artefacts"

    def note_profiles(self) -> None:
        """Write down which profile folders the driver made for the browser, outside of ours. Blocking."""
        profiles = {profile for process in _lodgers(self.folder) for profile in _profiles_of(process)}
        (self.folder / _PROFILES).write_text("\n".join(map(str, sorted(profiles))), encoding="utf-8")

    def processes(self) -> tuple[int, ...]:
        """The browser's processes, and its driver where that has not ended. Linux only."""
        return _with_drivers(self.folder)

    def leave(self) -> None:
        """End what is still there, remove the folder, and give up the lock. Blocking; never raises for what is gone."""
        clear(self.folder)
        with contextlib.suppress(OSError):  # given up already
            os.close(self._lock)


def sweep() -> tuple[Path, ...]:
    """Clear the folders whose owner is gone; which they were. Blocking."""
    cleared = []
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        if _is_ours(folder) and _is_abandoned(folder):
            _log.warning("a browser was left behind by a program that has ended: clearing %s", folder)
            clear(folder)
            cleared.append(folder)
    return tuple(cleared)


def clear(folder: Path) -> None:
    """End the processes that run on this folder, and remove it and their profiles."""
    profiles = {Path(line) for line in _lines(folder / _PROFILES)}
    ended = []
    for process in _with_drivers(folder):
        profiles |= _profiles_of(process)
        ended.append(process)
        _kill(process, folder)
    _wait_until_gone(ended)
    for profile in profiles:
        # Only what has the name that the driver gives: the line comes from a file, and from a command line.
        if profile.name.startswith(_MADE_BY_THE_DRIVER) and _is_ours(profile):
            shutil.rmtree(profile, ignore_errors=True)
    shutil.rmtree(folder, ignore_errors=True)


def _is_ours(folder: Path) -> bool:
    try:
        found = folder.lstat()
    except OSError:  # gone in the meantime
        return False
    return found.st_uid == os.geteuid() and folder.is_dir() and not folder.is_symlink()


def _is_abandoned(folder: Path) -> bool:
    try:
        lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        with contextlib.suppress(OSError):  # gone in the meantime
            return time.time() - folder.stat().st_mtime > _YOUNG_S
        return False
    except OSError as error:
        _log.warning("%s cannot be looked at: %s", folder, error)
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # its owner lives
        return False
    finally:
        os.close(lock)
    return True


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text("utf-8").splitlines()
    except OSError:  # the browser never came so far
        return []


# Processes, by /proc.


def _lodgers(folder: Path) -> Iterator[int]:
    """Processes of our user that carry the folder's mark."""
    if sys.platform != "linux":
        return
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and _lodges(int(entry.name), folder):
            yield int(entry.name)


def _lodges(process: int, folder: Path) -> bool:
    return f"{_MARK}={folder}".encode() in _read(process, "environ").split(b"\0")


def _with_drivers(folder: Path) -> tuple[int, ...]:
    """The lodgers, after the drivers that started them: a driver starts nothing anew once it is gone."""
    lodgers = tuple(_lodgers(folder))
    parents = {_parent(process) for process in lodgers} - {*lodgers, None}
    return (*(parent for parent in parents if parent and _is_driver(parent)), *lodgers)


def _is_driver(process: int) -> bool:
    arguments = _read(process, "cmdline").split(b"\0")
    return b"run-driver" in arguments and any(b"playwright" in one for one in arguments)


def _parent(process: int) -> int | None:
    after_name = _read(process, "stat").rpartition(b")")[2].split()
    return int(after_name[1]) if len(after_name) > 1 else None


def _profiles_of(process: int) -> set[Path]:
    arguments = _read(process, "cmdline").split(b"\0")
    given = [one.partition(b"=")[2] for one in arguments if one.startswith(b"--user-data-dir=")]
    given += [after for one, after in pairwise(arguments) if one == b"-profile"]
    return {Path(os.fsdecode(one)) for one in given if one}


def _read(process: int, what: str) -> bytes:
    try:
        return Path(f"/proc/{process}/{what}").read_bytes()
    except OSError:  # it has ended, or is not ours
        return b""


def _kill(process: int, folder: Path) -> None:
    """By a handle that stays with the process: its number may be another's by now, so it is looked at again."""
    try:
        handle = os.pidfd_open(process)
    except OSError:  # it has ended
        return
    try:
        if _lodges(process, folder) or _is_driver(process):
            signal.pidfd_send_signal(handle, signal.SIGKILL)
    except OSError as error:
        if not isinstance(error, ProcessLookupError):
            _log.warning("process %d of a browser that was left behind cannot be ended: %s", process, error)
    finally:
        os.close(handle)


def _wait_until_gone(processes: list[int]) -> None:
    """Until none of them holds files any more; a killed process that nobody has asked after still has its number."""
    deadline = time.monotonic() + _GONE_WITHIN_S
    while any(_read(process, "cmdline") for process in processes) and time.monotonic() < deadline:
        time.sleep(0.02)
