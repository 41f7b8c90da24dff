"""A network namespace whose only way out is a device that we read: every packet that a process in it sends to anywhere
but loopback arrives here, and goes nowhere.

The parent calls `visit`; the child calls `enter` first. Needs Linux, `unshare`, /dev/net/tun, and root or the right to
make user namespaces. The device is set up by ioctl, so that no tools for it need to be installed.
"""

from __future__ import annotations

import ctypes
import fcntl
import ipaddress
import json
import os
import socket
import struct
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

DEVICE = b"outside0"
OWN = "10.91.0.2"
RESOLVER = "10.91.0.1"
"""Named in the room's resolv.conf, so that questions to it are packets on the device."""

# linux/sockios.h, linux/if.h, linux/if_tun.h, linux/route.h
_SIOCADDRT, _SIOCGIFFLAGS, _SIOCSIFFLAGS, _SIOCSIFADDR, _SIOCSIFNETMASK, _SIOCGIFINDEX = (
    0x890B,
    0x8913,
    0x8914,
    0x8916,
    0x891C,
    0x8933,
)
_TUNSETIFF, _IFF_TUN, _IFF_NO_PI, _IFF_UP, _RTF_UP = 0x400454CA, 0x0001, 0x1000, 0x1, 0x1
_UDP, _TCP, _HOP_BY_HOP, _ICMP6 = 17, 6, 0, 58
_OTHERS = {1: "ICMP", 2: "IGMP"}


def _namespaces() -> list[str]:
    made = ["unshare", "--net", "--mount"]
    return made if os.geteuid() == 0 else [*made, "--user", "--map-root-user"]


def why_not() -> str | None:
    """Why no room can be made here; None when one can."""
    if sys.platform != "linux":
        return "network namespaces are Linux's"
    if not os.access("/dev/net/tun", os.R_OK | os.W_OK):
        return "/dev/net/tun is not there or not open to us"
    try:
        tried = subprocess.run([*_namespaces(), "true"], capture_output=True, text=True, timeout=20)
    except FileNotFoundError:
        return "unshare (util-linux) is missing"
    return f"namespaces cannot be made: {tried.stderr.strip()}" if tried.returncode else None


def visit(script: Path, *arguments: str, timeout_s: float) -> Any:
    """Run a script in a new room; what it prints last, as JSON. It ends with this process (SIGKILL)."""
    kept = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    done = subprocess.run(
        [*_namespaces(), "--kill-child", "--fork", sys.executable, str(script), *arguments],
        capture_output=True,
        text=True,
        timeout=timeout_s,
        env=kept,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout.splitlines()[-1])


class Outside:
    """The device's other end. `packets` are in order, each in words: protocol, destination, and the name that a
    question to the resolver asks for."""

    def __init__(self, descriptor: int) -> None:
        self.packets: list[str] = []
        self._descriptor = descriptor
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        while True:
            if shown := _shown(os.read(self._descriptor, 1 << 16)):
                self.packets.append(shown)


def enter(folder: Path) -> Outside:
    """Make this process's own, empty namespace the room. `folder` is for a file. Raises OSError where it is in none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        _up(control, b"lo")
        descriptor = os.open("/dev/net/tun", os.O_RDWR)
        fcntl.ioctl(descriptor, _TUNSETIFF, struct.pack("16sH", DEVICE, _IFF_TUN | _IFF_NO_PI))
        fcntl.ioctl(control, _SIOCSIFADDR, struct.pack("16s", DEVICE) + _address(OWN))
        fcntl.ioctl(control, _SIOCSIFNETMASK, struct.pack("16s", DEVICE) + _address("255.255.255.0"))
        _up(control, DEVICE)
        name = ctypes.create_string_buffer(DEVICE)
        everywhere = _address("0.0.0.0")
        # struct rtentry: padding, target, gateway, mask, flags, padding (3), metric, device, mtu, window, irtt
        to = (0, everywhere, everywhere, everywhere, _RTF_UP, 0, 0, 0, 0, ctypes.addressof(name), 0, 0, 0)
        fcntl.ioctl(control, _SIOCADDRT, struct.pack("@L16s16s16sHhLPhPLLH", *to))
        index = struct.unpack("16si", fcntl.ioctl(control, _SIOCGIFINDEX, struct.pack("16si", DEVICE, 0)))[1]
    if socket.has_ipv6 and Path("/proc/net/if_inet6").exists():
        with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as control:
            # A prefix of no length makes the route to everywhere as well.
            given = struct.pack("=16sIi", socket.inet_pton(socket.AF_INET6, "fd91::2"), 0, index)
            fcntl.ioctl(control, _SIOCSIFADDR, given)
    resolver = folder / "resolv.conf"
    resolver.write_text(f"nameserver {RESOLVER}\n")
    subprocess.run(["mount", "--bind", str(resolver), "/etc/resolv.conf"], check=True)
    return Outside(descriptor)


def _address(ip: str) -> bytes:
    return struct.pack("=HH4s8x", socket.AF_INET, 0, socket.inet_aton(ip))


def _up(control: socket.socket, device: bytes) -> None:
    flags = struct.unpack("16sH", fcntl.ioctl(control, _SIOCGIFFLAGS, struct.pack("16sH", device, 0)))[1]
    fcntl.ioctl(control, _SIOCSIFFLAGS, struct.pack("16sH", device, flags | _IFF_UP))


def _shown(packet: bytes) -> str:
    """The packet in words; empty for what the kernel sends by itself when an IPv6 device comes up (router
    solicitations and multicast reports, which all are ICMPv6, some behind a hop-by-hop header)."""
    if packet[0] >> 4 == 4:
        protocol, inner = packet[9], packet[(packet[0] & 15) * 4 :]
        place = str(ipaddress.ip_address(packet[16:20]))
    else:
        protocol, inner = packet[6], packet[40:]
        place = f"[{ipaddress.ip_address(packet[24:40])}]"
        if protocol in (_HOP_BY_HOP, _ICMP6):
            return ""
    if protocol not in (_UDP, _TCP):
        return f"{_OTHERS.get(protocol, f'protocol {protocol}')} to {place}"
    port = int.from_bytes(inner[2:4], "big")
    asked = f" asking for {_name(inner[20:])}" if protocol == _UDP and port in (53, 5353) else ""
    return f"{'UDP' if protocol == _UDP else 'TCP'} to {place}:{port}{asked}"


def _name(question: bytes) -> str:
    """The name in a DNS question (RFC 1035 section 4.1.2)."""
    labels = []
    while question and question[0]:
        length = question[0]
        labels.append(question[1 : 1 + length].decode("latin-1"))
        question = question[1 + length :]
    return ".".join(labels)
