"""Runs one command for as long as its own standard input stays open, then ends the command and all its children.

Usage: keeper.py COMMAND… A server started through it cannot outlive the test run, even one that is killed: the pipe
then closes by itself. The command runs in a session of its own; only that process group is ever signalled.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time

GRACE_S = 10.0


def main() -> int:
    child = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL, start_new_session=True)
    stopped = os.pidfd_open(child.pid)
    # The test run may be interrupted from the keyboard: the pipe decides, not the signal.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    select.select([sys.stdin, stopped], [], [])
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(child.pid, number)
        except ProcessLookupError:
            break
        if _group_ends(child, GRACE_S if number is signal.SIGTERM else 2.0):
            break
    return child.wait()


def _group_ends(child: subprocess.Popen[bytes], seconds: float) -> bool:
    """Whether no process of the group is left. The child itself is reaped on the way; its children are init's."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        child.poll()
        try:
            os.killpg(child.pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.02)  # a group has no descriptor to wait on
    return False


if __name__ == "__main__":
    sys.exit(main())
