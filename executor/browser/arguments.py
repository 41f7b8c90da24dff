"""Chromium's command line: what closes the ways around the gate, and whether a running browser has all of it.

Pure. Of two equal switches Chromium heeds the last one.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence

_FEATURES_OFF = (
    # Forms of the composer would be described to a server of the vendor, through the gate as reads of the page.
    "AutofillServerCommunication",
    # Speculation fetches ahead of any decision; the gate refuses it as well.
    "Prerender2",
    "SpeculationRulesPrefetchFuture",
    "DialMediaRouteProvider",
    # A page that asks for a peer connection would make the browser join a multicast group (mDNS) and answer in it.
    # What that hides, local addresses in candidates, is not gathered at all under the policy for WebRTC below.
    "WebRtcHideLocalIpsWithMdns",
    # Of two such switches Chromium heeds the last, which is ours: these are the driver's own, said again.
    "AvoidUnnecessaryBeforeUnloadCheckSync",
    "DestroyProfileOnBrowserClose",
    "HttpsUpgrades",
    "HttpsFirstBalancedModeAutoEnable",
    "LensOverlay",
    "MediaRouter",
    "PaintHolding",
    "ThirdPartyStoragePartitioning",
    "AvoidCorsURLLoaderRestartOnRedirect",
    "TcpPortRandomizationWin",
    "OptimizationHints",
    "NetworkTimeServiceQuerying",
    "AimEnabled",
    "PreconnectToSearch",
    "msForceBrowserSignIn",
    "msEdgeUpdateLaunchServicesPreferredVersion",
)

NOBODY = "http://127.0.0.1:9"
"""The process-wide proxy of a browser that somebody else starts: the port "discard", which only root could listen at
and nobody does. What would go there fails, also while none of our programs runs."""

_HARMLESS = ("disable-gpu", "no-first-run")
"""Ours by convenience: a browser without them is as tight."""

_LEADS_AROUND = {
    "no-proxy-server": "ignores every proxy",
    "proxy-pac-url": "lets a script choose the proxy",
    "proxy-auto-detect": "lets the network choose the proxy",
    "host-rules": "sends hosts elsewhere",
    "ignore-certificate-errors": "accepts any certificate",
    "allow-running-insecure-content": "weakens pages",
    "disable-web-security": "weakens pages",
    "load-extension": "loads an extension",
    "enable-quic": "opens QUIC",
    "origin-to-force-quic-on": "opens QUIC",
}
"""Switches, when they have a value or need none, and what is wrong with them."""


def launch_arguments(*, deny_address: str, spki: str, as_root: bool, gates_at: str = "127.0.0.1") -> list[str]:
    """Chromium's arguments. Everything here closes a way around the gate or silences a background service. `gates_at`
    is the IP address at which the browser reaches its gates."""
    arguments = [
        f"--proxy-server={deny_address}",
        "--proxy-bypass-list=<-loopback>",
        f"--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE {gates_at}",
        "--webrtc-ip-handling-policy=disable_non_proxied_udp",
        "--disable-quic",
        f"--ignore-certificate-errors-spki-list={spki}",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--disable-domain-reliability",
        "--no-pings",
        "--no-first-run",
        "--disable-gpu",
        f"--disable-features={','.join(_FEATURES_OFF)}",
    ]
    if as_root:
        # Chromium's sandbox refuses to run as root; elsewhere it stays on.
        arguments.append("--no-sandbox")
    return arguments


def remote_arguments(*, spki: str, gates_at: str) -> list[str]:
    """What a browser must have that we attach to. `--enable-automation` lets it tell its command line."""
    return [*launch_arguments(deny_address=NOBODY, spki=spki, as_root=False, gates_at=gates_at), "--enable-automation"]


def command_line(arguments: Sequence[str], *, port: int) -> str:
    """A shell's line that starts a browser elsewhere, with a profile of its own and its control port on loopback."""
    start = f'chromium --headless --user-data-dir="$(mktemp -d)" --remote-debugging-port={port}'
    return f"{start} {shlex.join(arguments)}"


def shortcomings(running: Sequence[str], wanted: Sequence[str]) -> tuple[str, ...]:
    """What is wrong with the command line of a running browser, each as part of a sentence; nothing when it has all
    that is wanted and nothing that leads around it."""
    has = _switches(running)
    wrong = []
    for name, value in _switches(wanted).items():
        if name in _HARMLESS:
            continue
        if name not in has:
            wrong.append(f"--{name} is missing")
        elif name == "disable-features":
            if absent := sorted(set(value.split(",")) - set(has[name].split(","))):
                wrong.append(f"--{name} lacks {', '.join(absent)}")
        elif has[name] != value:
            wrong.append(f"--{name} is {has[name]!r}, not {value!r}")
    off = set(_FEATURES_OFF)
    if again := sorted(off & {one.partition("<")[0] for one in has.get("enable-features", "").split(",")}):
        wrong.append(f"--enable-features has {', '.join(again)}")
    for name, why in _LEADS_AROUND.items():
        # An empty list of extensions is what Debian's wrapper gives.
        if name in has and (name != "load-extension" or has[name]):
            wrong.append(f"--{name} {why}")
    if has.get("remote-debugging-address", "127.0.0.1") not in ("127.0.0.1", "::1", "localhost"):
        wrong.append("--remote-debugging-address opens its control port to the network")
    return tuple(wrong)


def _switches(arguments: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for one in arguments:
        if one == "--":
            break
        if one.startswith("--"):
            name, _, value = one[2:].partition("=")
            found[name] = value
    return found
