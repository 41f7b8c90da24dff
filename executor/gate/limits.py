"""The gate's limits in one value: sizes, patience, and who may connect. Values only."""

from __future__ import annotations

from dataclasses import dataclass, field

KIB = 1024
MIB = 1024 * KIB


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Sizes in bytes, times in seconds. The defaults are starting points; none of them decides what may leave."""

    head_bytes: int = 256 * KIB
    body_bytes: int = 200 * MIB
    """The largest request body; a larger one is refused."""
    spool_memory_bytes: int = MIB
    """Above this a request body goes to an unlinked temporary file."""
    readable_bytes: int = 8 * MIB
    """Predicates see bodies up to this size; above, `body_known` is false."""
    answer_bytes: int = 32 * MIB
    """The part of the effect's answer that is kept; a larger answer is not complete."""
    carried_bytes: int = 8 * MIB
    """Largest body and largest answer of a supporting write that is kept for the release to read."""
    carried_total_bytes: int = 64 * MIB
    websocket_message_bytes: int = MIB
    """The largest message of a page over a declared WebSocket; it is held until it is whole."""
    connections: int = 512
    """Browser connections at once; more wait in the listener's queue."""

    connect_s: float = 10.0
    proxy_s: float = 10.0
    """For a proxy's answer to CONNECT, its own way to the site included."""
    tls_s: float = 10.0
    head_s: float = 30.0
    """From the first byte of a head to its end."""
    idle_s: float = 300.0
    """Until the first byte of the next request."""
    body_stall_s: float = 60.0
    """Between two pieces of a request body."""
    body_s: float = 300.0
    """From the end of a head to the end of its body: a candidate that arrives holds the effect's window open."""
    upstream_head_s: float = 120.0
    upstream_stall_s: float = 120.0
    """Between two pieces of an answer; event streams may be silent."""
    upstream_write_stall_s: float = 60.0
    """For the site to take a piece (at most a mebibyte) of a write."""
    before_write_s: float = 30.0
    """For the caller's word on a supporting write."""
    door_grace_s: float = 180.0
    """How long closing the gate waits for the door to finish what it began."""

    websocket_close_s: float = 2.0
    """For the site to answer a goodbye; then the connection is dropped."""

    pool_idle_s: float = 30.0
    """How long an idle upstream connection is kept for subresources, which may be asked for once more."""
    pool_fetch_idle_s: float = 1.0
    """The same for documents and fetches, which are never re-sent: old connections die in the very moment of use."""
    pool_per_host: int = 6

    http2_beyond_s: float = 0.015
    """Round trip beyond which HTTP/2 is spoken with a site that has it, and then with the browser too. Nearer, six
    connections of HTTP/1.1 carry a page as fast, and what ends one of them ends one request. 0: wherever a site has it;
    inf: never."""
    http2_streams: int = 100
    """Requests at once on one connection of HTTP/2: what sites allow by default (nginx 128, Apache 100)."""
    http1_reads: int = 24
    """Reads at once over HTTP/1.1 from one site: four times what a browser asks for that speaks it itself."""
    http2_ping_s: float = 2.0
    """For the site's end of a connection that was idle to say that it is still there, before a document goes over it.
    """
    http2_window_bytes: int = 512 * KIB
    """What one stream may have on its way, and so here, before it was passed on: 10 MB/s at 50 ms."""
    http2_calls: int = 1000
    """Frames that carry nothing (PING, SETTINGS, RST_STREAM, ...) before a connection of HTTP/2 is ended as a flood; a
    tenth of them is granted anew each second, and two for each piece that is carried."""

    stream_after_s: float = 10.0
    """An answer that takes longer than this counts as a stream and is cut when the phase changes."""

    ports: tuple[int, ...] = (0,)
    """Where the gate may listen, in the order in which the ports are tried; 0 is any."""
    uids: frozenset[int] = field(default=frozenset())
    """Users whose processes may connect, besides our own (Linux)."""
