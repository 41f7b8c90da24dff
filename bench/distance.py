"""A network with one long link: what is sent to `FAR` arrives at `NEAR`, half a round trip later, packet by packet.

The link is a TUN device whose reader swaps source and destination of every packet and gives it back after the delay.
Sums in the headers stay right, and the kernel's own TCP does the rest: handshakes, windows and slow start cost what
they cost over such a distance. Needs Linux, /dev/net/tun, iproute2, and root or the right to make user namespaces.

`inside` starts a command again within a network of its own; `python -m bench.distance MS` is the link.
"""

from __future__ import annotations

import fcntl
import heapq
import os
import select
import struct
import subprocess
import sys
import time

NEAR = "10.92.0.1"
FAR = "10.92.0.2"
_DEVICE = "distance0"
_TUNSETIFF, _IFF_TUN, _IFF_NO_PI = 0x400454CA, 0x0001, 0x1000


def inside(command: list[str]) -> int:
    """Run the command in a network namespace of its own, loopback up; returns its exit code."""
    own = ["unshare", "--net"] if os.geteuid() == 0 else ["unshare", "--net", "--user", "--map-root-user"]
    shell = 'ip link set lo up && exec "$@"'
    return subprocess.run([*own, "sh", "-c", shell, "sh", *command]).returncode


def main() -> None:
    """Make the device, say that it is there, and carry until standard input ends."""
    one_way_s = float(sys.argv[1]) / 2000
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(device, _TUNSETIFF, struct.pack("16sH22x", _DEVICE.encode(), _IFF_TUN | _IFF_NO_PI))
    for words in (f"addr add {NEAR}/24 dev {_DEVICE}", f"link set {_DEVICE} up txqueuelen 10000"):
        subprocess.run(["ip", *words.split()], check=True)
    print("ready", flush=True)
    under_way: list[tuple[float, int, bytes]] = []
    count = 0
    while True:
        wait = max(0.0, under_way[0][0] - time.monotonic()) if under_way else None
        readable, _, _ = select.select([device, sys.stdin], [], [], wait)
        if sys.stdin in readable:
            return
        if device in readable:
            for _ in range(64):
                try:
                    packet = os.read(device, 65536)
                except BlockingIOError:
                    break
                if packet[0] >> 4 != 4:
                    continue
                count += 1
                turned = packet[:12] + packet[16:20] + packet[12:16] + packet[20:]
                heapq.heappush(under_way, (time.monotonic() + one_way_s, count, turned))
        now = time.monotonic()
        while under_way and under_way[0][0] <= now:
            os.write(device, heapq.heappop(under_way)[2])


if __name__ == "__main__":
    main()
