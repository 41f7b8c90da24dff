"""A browser that runs elsewhere and was started by somebody else: how it is reached, and whether it is fit.

Its control connection and its gates go through a tunnel that is not ours (`ssh -L` and `-R`), so both ends are on
loopback here. The browser is refused unless it tells its command line and that has everything that ours would have;
that its pages do go through the gate is shown by the path proof of each context, as for any browser.
"""

from __future__ import annotations

import ipaddress
import re
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from playwright.async_api import Browser, Playwright
from playwright.async_api import Error as PlaywrightError

from executor.browser.arguments import remote_arguments, shortcomings
from executor.browser.engines import EndpointKind, Engine
from executor.browser.private_files import write_private
from executor.errors import BadInput, NotReady
from executor.gate.certificates import CertificateAuthority

ARGUMENTS_COMMAND = "interlock browser arguments"
_KEY_FILE = "remote-gate.pem"
_PORTS = re.compile(r"(?P<first>\d{1,5})(?:-(?P<last>\d{1,5}))?")
_PLACE = re.compile(r"(?P<host>\[[0-9a-fA-F:]+\]|[0-9.]+):(?P<port>\d{1,5})")


class Given(Protocol):
    """The settings that name a remote browser."""

    @property
    def browser_endpoint(self) -> str | None: ...
    @property
    def browser_endpoint_kind(self) -> EndpointKind | None: ...
    @property
    def browser_engine(self) -> Engine: ...
    @property
    def gate_listen(self) -> str | None: ...
    @property
    def gate_reached_as(self) -> str | None: ...
    @property
    def key_folder(self) -> Path: ...


class GatePorts:
    """The ports for gates, in a fixed range so that a tunnel can carry them; the one that was used longest ago comes
    first, since what an ended context still sends must not meet the next one's gate."""

    def __init__(self, ports: Iterable[int]) -> None:
        self._ports = deque(ports)

    def offer(self) -> tuple[int, ...]:
        """All of them, in the order in which they are to be tried."""
        offered = tuple(self._ports)
        self._ports.rotate(-1)
        return offered


@dataclass(frozen=True)
class Remote:
    """Where a remote browser is, and how it reaches gates that listen here."""

    endpoint: str
    kind: EndpointKind
    ports: range
    """Where the gates listen, on 127.0.0.1."""
    gates_at: str
    """The IP address at which the browser finds them."""
    first_port_there: int
    key_folder: Path

    @classmethod
    def of(cls, given: Given) -> Remote | None:
        """None where the settings name no remote browser. Raises `BadInput`."""
        if given.browser_endpoint is None:
            return None
        if given.browser_engine is not Engine.CHROMIUM:
            raise BadInput(
                f"A remote {given.browser_engine.value} does not tell how it was started, so none is used: set "
                "INTERLOCK_BROWSER_ENGINE to chromium, or remove INTERLOCK_BROWSER_ENDPOINT."
            )
        if given.gate_listen is None:
            raise BadInput(
                "A remote browser reaches the gates through a tunnel, so they need fixed ports: set "
                "INTERLOCK_GATE_LISTEN, such as 41000-41007 (two for each run at once)."
            )
        ports = _ports(given.gate_listen)
        gates_at, first = ("127.0.0.1", ports[0]) if given.gate_reached_as is None else _place(given.gate_reached_as)
        kind = _kind(given.browser_endpoint, given.browser_endpoint_kind)
        return cls(given.browser_endpoint, kind, ports, gates_at, first, given.key_folder)

    @property
    def name(self) -> str:
        """The endpoint without its path, which may be a secret of a Playwright server."""
        parts = urlsplit(self.endpoint)
        return f"{parts.scheme}://{parts.hostname}:{parts.port or {'http': 80, 'ws': 80}.get(parts.scheme, 443)}"

    def reach(self, address: str) -> str:
        """A gate's address (`http://127.0.0.1:PORT`) as the browser must be told it."""
        host = f"[{self.gates_at}]" if ":" in self.gates_at else self.gates_at
        return f"http://{host}:{self.first_port_there + (urlsplit(address).port or 0) - self.ports[0]}"

    async def attach(self, playwright: Playwright, authority: CertificateAuthority) -> Browser:
        """Connect, and refuse a browser that was not started as it must be. Raises `NotReady` and PlaywrightError."""
        if self.kind is EndpointKind.CDP:
            browser = await playwright.chromium.connect_over_cdp(self.endpoint)
        else:
            browser = await playwright.chromium.connect(self.endpoint)
        try:
            await self._examine(browser, authority)
        except BaseException:
            await browser.close()
            raise
        return browser

    async def _examine(self, browser: Browser, authority: CertificateAuthority) -> None:
        try:
            devtools = await browser.new_browser_cdp_session()
            told = await devtools.send("Browser.getBrowserCommandLine")
            await devtools.detach()
        except PlaywrightError as error:
            raise NotReady(
                f"The browser at {self.name} does not tell how it was started, so it cannot be trusted to use the gate "
                f"alone (--enable-automation is missing). Start it with what `{ARGUMENTS_COMMAND}` prints."
            ) from error
        wrong = shortcomings(told["arguments"], remote_arguments(spki=authority.spki, gates_at=self.gates_at))
        if wrong:
            raise NotReady(
                f"The browser at {self.name} was not started as it must be: {'; '.join(wrong)}. Start it with what "
                f"`{ARGUMENTS_COMMAND}` prints."
            )


def kept_authority(key_folder: Path) -> CertificateAuthority:
    """The authority whose key is kept, since a remote browser is told it when it is started. Made at its first use.
    Blocking. Raises `NotReady`."""
    return CertificateAuthority(_kept_key(key_folder / _KEY_FILE))


def _kind(endpoint: str, given: EndpointKind | None) -> EndpointKind:
    parts = urlsplit(endpoint)
    if parts.scheme not in ("http", "https", "ws", "wss") or not parts.hostname:
        raise BadInput(
            "INTERLOCK_BROWSER_ENDPOINT is an address such as http://127.0.0.1:9222 or ws://127.0.0.1:3000/."
        )
    if parts.scheme in ("http", "ws") and not _is_loopback(parts.hostname):
        # Sessions of accounts travel on it.
        raise BadInput(
            f"The browser's endpoint {parts.scheme}://{parts.hostname} is on another machine and not encrypted: give "
            "this end of an ssh tunnel to it, such as http://127.0.0.1:9222."
        )
    if given is not None:
        return given
    is_cdp = parts.scheme.startswith("http") or parts.path.startswith("/devtools/")
    return EndpointKind.CDP if is_cdp else EndpointKind.PLAYWRIGHT


def _ports(given: str) -> range:
    found = _PORTS.fullmatch(given)
    first = int(found["first"]) if found else 0
    last = int(found["last"] or first) if found else 0
    if not 1024 <= first <= last < 65536:
        raise BadInput("INTERLOCK_GATE_LISTEN is a port or a range of ports from 1024 on, such as 41000-41007.")
    return range(first, last + 1)


def _place(given: str) -> tuple[str, int]:
    found = _PLACE.fullmatch(given)
    try:
        if found is None or not 0 < int(found["port"]) < 65536:
            raise ValueError(given)
        return str(ipaddress.ip_address(found["host"].strip("[]"))), int(found["port"])
    except ValueError as error:
        raise BadInput(
            "INTERLOCK_GATE_REACHED_AS is where the browser finds the first port of INTERLOCK_GATE_LISTEN: an IP "
            "address and a port, such as 127.0.0.1:41000."
        ) from error


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _kept_key(file: Path) -> ec.EllipticCurvePrivateKey:
    try:
        pem = file.read_bytes()
    except FileNotFoundError:
        made = ec.generate_private_key(ec.SECP256R1()).private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        # Another process may be doing the same: whoever links first wins, and everybody reads what is there.
        write_private(file, made, replace=False)
        pem = file.read_bytes()
    try:
        key = serialization.load_pem_private_key(pem, password=None)
    except ValueError as error:
        raise _damaged(file) from error
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise _damaged(file)
    return key


def _damaged(file: Path) -> NotReady:
    return NotReady(
        f"The key file {file.name} is damaged. Restore it, or remove it and start the remote browser anew with what "
        f"`{ARGUMENTS_COMMAND}` prints."
    )
