"""The servers of the live tests end with the test run, however it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

KEEPER = Path(__file__).with_name("keeper.py")
# A server with a child of its own, both deaf to the polite signal once they are up.
SERVER = "trap '' TERM; (trap '' TERM; echo $BASHPID; while :; do sleep 0.1; done) & echo $BASHPID; wait"
LAUNCHER = """
import subprocess, sys, time
command = [sys.executable, sys.argv[1], "bash", "-c", sys.argv[2]]
subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)
time.sleep(600)
"""


def test_a_killed_test_run_leaves_no_server_behind() -> None:
    command = [sys.executable, "-c", LAUNCHER, str(KEEPER), SERVER]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        watched = [os.pidfd_open(int(run.stdout.readline())) for _ in range(2)]
        os.kill(run.pid, signal.SIGKILL)
        assert run.stdout.read() == ""  # ends when nobody is left who could write to it
    for descriptor in watched:
        assert _has_ended(descriptor)
        os.close(descriptor)


def _has_ended(descriptor: int) -> bool:
    try:
        signal.pidfd_send_signal(descriptor, 0)
    except ProcessLookupError:
        return True
    return False
