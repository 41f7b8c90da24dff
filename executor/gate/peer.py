"""Who is at the other end of a loopback connection (Linux): the user id of the socket, read from the kernel's tables.

The listener's port is open to every local user; this is what keeps another one's program from sending as the account.
"""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

_TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))


def may_connect(peer: tuple[str, int], own: tuple[str, int], uids: frozenset[int]) -> bool:
    """Whether the process behind `peer` runs as our user or one of `uids`. On systems other than Linux there is no
    such table and every local connection is taken. Blocking: for a thread."""
    if sys.platform != "linux":
        return True
    uid = uid_of(peer, own)
    return uid is not None and (uid == os.geteuid() or uid in uids)


def uid_of(peer: tuple[str, int], own: tuple[str, int]) -> int | None:
    """The user id of the socket whose local end is `peer` and whose remote end is `own`; None when there is none."""
    wanted = {(_hex4(peer), _hex4(own)), (_hex6(peer), _hex6(own))}
    for table in _TABLES:
        try:
            lines = table.read_text("ascii").splitlines()[1:]
        except FileNotFoundError:  # a system without IPv6 has no tcp6
            continue
        for line in lines:
            fields = line.split()
            if (fields[1], fields[2]) in wanted:
                return int(fields[7])
    return None


def _hex4(address: tuple[str, int]) -> str:
    return f"{int.from_bytes(socket.inet_aton(address[0]), sys.byteorder):08X}:{address[1]:04X}"


def _hex6(address: tuple[str, int]) -> str:
    """The same address as an IPv6 socket shows it: mapped, in four words of the machine's byte order."""
    mapped = b"\0" * 10 + b"\xff\xff" + socket.inet_aton(address[0])
    words = (int.from_bytes(mapped[i : i + 4], sys.byteorder) for i in range(0, 16, 4))
    return "".join(f"{word:08X}" for word in words) + f":{address[1]:04X}"
