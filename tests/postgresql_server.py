"""A PostgreSQL server of the tests' own: in a temporary folder, reached by a Unix socket in it, ended with the tests.

PostgreSQL does not run as root: then everything of it runs as `nobody`. Where the programs are missing they are
installed by apt if that is possible, without starting Debian's own server.
"""

from __future__ import annotations

import ctypes
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import psycopg
from sqlalchemy import URL

T = TypeVar("T")

OLDEST = 15
THE_ONE_COMMAND = "sudo apt-get install -y postgresql"
READY_WITHIN_S = 120.0
"""A recovery after a crash on a machine that is busy with something else."""


class ServerMissing(Exception):
    """There is no PostgreSQL here, and none may be installed."""


def programs() -> Path:
    """The folder of `initdb` and `postgres`, which Debian does not put on the PATH."""
    found = _installed()
    if found is None:
        _install()
        found = _installed()
    if found is None:
        raise ServerMissing(
            f"PostgreSQL {OLDEST} or later is missing. Run this, then the tests again: {THE_ONE_COMMAND}"
        )
    return found


def _installed() -> Path | None:
    on_path = [Path(path).resolve().parent for name in ("initdb", "postgres") if (path := shutil.which(name))]
    debian = Path("/usr/lib/postgresql")
    versions = (
        sorted((int(f.name) for f in debian.iterdir() if f.name.isdigit()), reverse=True) if debian.is_dir() else []
    )
    for folder in (*on_path[:1], *(debian / str(version) / "bin" for version in versions if version >= OLDEST)):
        if all(os.access(folder / name, os.X_OK) for name in ("initdb", "postgres")):
            return folder
    return None


def _install() -> None:
    if os.geteuid() == 0:
        as_root = []
    elif shutil.which("sudo") and subprocess.run(["sudo", "-n", "true"], capture_output=True).returncode == 0:
        as_root = ["sudo", "-n"]
    else:
        return
    if not shutil.which("apt-get"):
        return
    # How Debian is told not to start what it installs.
    script = """
set -u
policy=/usr/sbin/policy-rc.d
[ -e $policy ] || { printf '#!/bin/sh\\nexit 101\\n' >$policy; chmod 755 $policy; trap 'rm -f $policy' EXIT; }
export DEBIAN_FRONTEND=noninteractive
apt-get -qq update
apt-get -qq -y install --no-install-recommends postgresql
"""
    subprocess.run([*as_root, "sh", "-c", script], capture_output=True, timeout=900)


class Server:
    """One server. `start` and `stop` may be called again and again; `remove` ends it for good."""

    def __init__(self, *, standby_of: Server | None = None) -> None:
        """Made but not started: empty, or a copy of another that follows it once it is started."""
        self._programs = programs()
        self._user: dict[str, Any] = {}
        self._folder = Path(tempfile.mkdtemp(prefix="interlock-pg-", dir=_place()))
        if os.geteuid() == 0:
            nobody = pwd.getpwnam("nobody")
            os.chown(self._folder, nobody.pw_uid, nobody.pw_gid)
            self._user = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
        self._process: subprocess.Popen[bytes] | None = None
        # Whoever calls `start`: Linux ends the server with the thread that started it, and this one stays.
        self._starter = ThreadPoolExecutor(1)
        if standby_of is not None:
            primary = str(standby_of._folder)
            how = ("--write-recovery-conf", "--wal-method=stream", "--checkpoint=fast", "--no-sync")
            self._run("pg_basebackup", "--username=postgres", "-h", primary, "-D", self.data, *how)
            return
        self._run(
            "initdb",
            "--username=postgres",
            "--auth=trust",
            "--encoding=UTF8",
            "--locale=C",
            "--no-sync",
            "-D",
            self.data,
        )

    @property
    def data(self) -> str:
        return str(self._folder / "data")

    def _run(self, program: str, *arguments: str) -> None:
        subprocess.run(
            [self._programs / program, *arguments],
            check=True,
            capture_output=True,
            cwd=self._folder,
            timeout=300,
            **self._user,
        )

    def start(self) -> None:
        settings = {
            "listen_addresses": "",
            "unix_socket_directories": str(self._folder),
            "max_connections": "60",
            "shared_buffers": "32MB",
            "log_line_prefix": "%m [%p] ",
            "timezone": "UTC",
        }
        command = [self._programs / "postgres", "-D", self.data, *(f"--{k}={v}" for k, v in settings.items())]
        self._process = self._starter.submit(self._spawn, command).result()
        give_up = time.monotonic() + READY_WITHIN_S
        while True:
            try:
                self.execute("SELECT 1")
                return
            except psycopg.OperationalError:
                if self._process.poll() is not None or time.monotonic() > give_up:
                    log_text = (self._folder / "log").read_text(errors="replace")
                    raise ServerMissing(f"PostgreSQL did not start; its log ends: {log_text[-2000:]}") from None
                time.sleep(0.02)  # there is no event to wait for: the server says so in its log alone

    def _spawn(self, command: list[Any]) -> subprocess.Popen[bytes]:
        with open(self._folder / "log", "ab") as log:
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._folder,
                preexec_fn=_end_with_the_tests,
                **self._user,
            )

    def stop(self, *, at_once: bool = False) -> None:
        """End it as an operator would, or as a power loss would."""
        if self._process is None:
            return
        self._process.send_signal(signal.SIGQUIT if at_once else signal.SIGINT)
        self._process.wait(timeout=120)
        self._process = None

    def restart(self) -> None:
        """As after a crash: nothing is flushed, nobody is waited for, the log is replayed."""
        self.stop(at_once=True)
        self.start()

    def remove(self) -> None:
        self.stop(at_once=True)
        self._starter.shutdown()
        shutil.rmtree(self._folder)

    # -- databases -----------------------------------------------------------------------------------------------------
    def url(self, *, user: str = "interlock", database: str = "ledger") -> str:
        query = {"host": str(self._folder)}
        return URL.create("postgresql", username=user, database=database, query=query).render_as_string()

    def empty_database(self) -> str:
        """The URL of the one database, emptied, for a role that may do nothing else. One is made and not many: after
        each crash the server syncs every file that it has."""
        if not self.execute("SELECT 1 FROM pg_database WHERE datname = 'ledger'"):
            self.execute("CREATE ROLE interlock LOGIN")
            self.execute("CREATE DATABASE ledger OWNER interlock")
        self.end_sessions()
        self.execute("DROP SCHEMA public CASCADE", "ledger")
        self.execute("CREATE SCHEMA public AUTHORIZATION interlock", "ledger")
        return self.url()

    def end_sessions(self) -> None:
        """Every session of the ledger's role, as an administrator would."""
        self.execute("SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE usename = 'interlock'")

    def execute(self, statement: str, database: str = "postgres") -> list[tuple[Any, ...]]:
        """One statement by the superuser, outside of a transaction; its rows."""
        with psycopg.connect(
            host=str(self._folder), user="postgres", dbname=database, autocommit=True, connect_timeout=30
        ) as connection:
            cursor = connection.execute(statement)  # type: ignore[call-overload]
            return cursor.fetchall() if cursor.description else []

    def reload(self, **settings: str) -> None:
        """Change settings of the whole server; an empty text takes them back."""
        for name, value in settings.items():
            self.execute(f"ALTER SYSTEM SET {name} = '{value}'" if value else f"ALTER SYSTEM RESET {name}")
        self.execute("SELECT pg_reload_conf()")
        for name, value in settings.items():
            if value:
                self.until(
                    lambda name=name, value=value: self.execute(f"SHOW {name}") == [(value,)], f"{name} = {value}"
                )

    @contextmanager
    def standby(self) -> Iterator[Server]:
        """A second server that follows this one by streaming, and is not waited for; running."""
        made = Server(standby_of=self)
        try:
            made.start()
            self.until(lambda: self.execute("SELECT 1 FROM pg_stat_replication WHERE state = 'streaming'"), "streaming")
            yield made
        finally:
            made.remove()

    @contextmanager
    def waiting_for_a_standby(self) -> Iterator[None]:
        """While this lasts, COMMIT is durable here and is not answered: no such standby will ever come."""
        self.reload(synchronous_standby_names="nobody_at_all")
        try:
            yield
        finally:
            self.reload(synchronous_standby_names="")

    def sessions(self, condition: str) -> list[int]:
        """The process ids of the sessions of the ledger's role that are as described."""
        rows = self.execute(f"SELECT pid FROM pg_stat_activity WHERE usename = 'interlock' AND ({condition})")
        return [int(pid) for (pid,) in rows]

    def until(self, condition: Callable[[], T], what: str) -> T:
        """Ask the server until it says so: it has no event that could be waited for."""
        give_up = time.monotonic() + 60
        while time.monotonic() < give_up:
            if result := condition():
                return result
        raise AssertionError(f"the server did not come to: {what}")


def _place() -> str | None:
    """A folder for temporary files that another user can get to."""
    usual = Path(tempfile.gettempdir()).resolve()
    open_to_all = all(folder.stat().st_mode & 0o001 for folder in (usual, *usual.parents))
    return None if open_to_all or os.geteuid() != 0 else "/tmp"


def _end_with_the_tests() -> None:
    """Tell Linux to end the server when the tests are killed; elsewhere they end it themselves or not at all."""
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(1, signal.SIGQUIT)  # PR_SET_PDEATHSIG
