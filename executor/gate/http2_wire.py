"""One connection of HTTP/2: what comes goes to its streams, what they give goes out, and how it ends.

`h2` keeps the protocol's state; here are the bytes, the windows and the ends. The same on both sides of the gate; knows
no rules. A connection lives until it is *lost*; one that is *draining* takes no new stream and ends with its last one.

Windows: what came counts against its stream's window until somebody took it, so that a slow taker slows the sender
of that stream alone. The connection's own window is given back at once; what waits here is bounded by the streams.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from contextlib import suppress

from h2.config import H2Configuration
from h2.connection import AllowedStreamIDs, H2Connection
from h2.errors import ErrorCodes
from h2.events import (
    DataReceived,
    Event,
    InformationalResponseReceived,
    PingAckReceived,
    RemoteSettingsChanged,
    RequestReceived,
    ResponseReceived,
    StreamEnded,
    StreamReset,
    WindowUpdated,
)
from h2.exceptions import DenialOfServiceError, ProtocolError
from h2.settings import SettingCodes, Settings
from h2.stream import H2Stream

from executor.gate.http2_encoder import HeadEncoder
from executor.gate.http2_frames import Flood, Frames
from executor.gate.http2_stream import ENOUGH, Fields, Http2Stream
from executor.gate.limits import MIB, Limits
from executor.gate.stream import ByteStream, StreamLost

_log = logging.getLogger(__name__)

_CONNECTION_WINDOW = 16 * MIB
_FIRST_WINDOW = 65535
"""What a connection begins with (RFC 9113 section 6.9.2)."""
_AT_ONCE = 256 * 1024
"""Bytes of all streams that are handed to the transport at a time."""


class Http2Connection:
    """Reads and writes one carrier. `on_request` gets the streams that the other side opens, where it is the client."""

    def __init__(
        self,
        carrier: ByteStream,
        limits: Limits,
        *,
        on_request: Callable[[Http2Stream, Fields], None] | None = None,
    ) -> None:
        self.streams: dict[int, Http2Stream] = {}
        self.lost: str | None = None
        self.broke_rules = False
        """It was ended for what the other side sent."""
        self.draining = False
        self.on_change: Callable[[], None] | None = None
        """Called when a stream has ended or more of them became possible."""
        self._carrier = carrier
        self._limits = limits
        self._on_request = on_request
        self._frames = Frames(preface=on_request is not None, calls=limits.http2_calls)
        self._h2 = _protocol(limits, client=on_request is None)
        self._came = 0
        self._blocked: dict[int, Http2Stream] = {}
        self._buffered = 0
        self._flushing: asyncio.Handle | None = None
        self._pings: deque[asyncio.Future[None]] = deque()
        carrier.on_writable = self._writable
        self._flush_soon()

    # Coming in

    async def run(self) -> None:
        """Read until the connection ends, whoever ends it. Raises nothing but cancellation."""
        why = "the connection was closed"
        try:
            while self.lost is None and (data := await self._read()):
                self._receive(data)
        except StreamLost as error:
            why = str(error)
        except TimeoutError:
            why = "nothing came for too long"
            self.broke_rules = self._frames.midway
        except (Flood, ProtocolError) as error:
            # Not in h2's own words: they may hold a header, and that may be a cookie (A11).
            why = str(error) if isinstance(error, Flood) else f"what came is not HTTP/2: {type(error).__name__}"
            self.broke_rules = True
            if isinstance(error, Flood | DenialOfServiceError):
                self._h2.close_connection(ErrorCodes.ENHANCE_YOUR_CALM)
        finally:
            self._flush()
            self._end(why)
            self._carrier.close()

    async def _read(self) -> bytes:
        limits = self._limits
        patience = limits.head_s if self._frames.midway else None if self.streams else limits.idle_s
        if patience is None or self._carrier.has_input:
            return await self._carrier.read()
        async with asyncio.timeout(patience):
            return await self._carrier.read()

    def _receive(self, data: bytes) -> None:
        for event in self._h2.receive_data(self._frames.take(data)):
            self._happened(event)
        for goaway in self._frames.goaways:
            self._go_away(goaway.last)
        self._frames.goaways.clear()
        if self._came >= _CONNECTION_WINDOW // 4:
            self._h2.increment_flow_control_window(self._came)
            self._came = 0
        self._flush_soon()

    def _happened(self, event: Event) -> None:
        match event:
            case DataReceived():
                self._came += event.flow_controlled_length
                if (stream := self.streams.get(event.stream_id)) is not None:
                    stream.came(event.data, event.flow_controlled_length)
            case RequestReceived():
                assert self._on_request is not None
                stream = self.streams[event.stream_id] = Http2Stream(self, event.stream_id)
                self._on_request(stream, event.headers)
            case ResponseReceived():
                if (stream := self.streams.get(event.stream_id)) is not None:
                    stream.heard, stream.head = True, event.headers
                    stream.wake_reader()
            case InformationalResponseReceived():
                self._frames.count()
                if (stream := self.streams.get(event.stream_id)) is not None:
                    stream.heard = True
            case StreamEnded():
                if (stream := self.streams.get(event.stream_id)) is not None:
                    stream.ended = True
                    stream.wake_reader()
                    self._forget_if_over(stream)
            case StreamReset():
                if (stream := self.streams.pop(event.stream_id, None)) is not None:
                    refused = event.error_code == ErrorCodes.REFUSED_STREAM
                    stream.lose("the request was refused or given up (RST_STREAM)", unprocessed=refused)
                    self._changed()
            case WindowUpdated():
                self._pump_all()
            case RemoteSettingsChanged():
                self._pump_all()
                self._changed()
            case PingAckReceived():
                if self._pings and not (ping := self._pings.popleft()).done():
                    ping.set_result(None)

    def _go_away(self, last: int) -> None:
        self.draining = True
        if self._on_request is None:
            for number in [one for one in self.streams if one > last]:
                self.streams.pop(number).lose("the site closes the connection without it (GOAWAY)", unprocessed=True)
        self._changed()

    # Going out

    @property
    def is_full(self) -> bool:
        return self._carrier.is_full

    @property
    def room(self) -> bool:
        """Whether the other side lets us open another stream."""
        allowed = min(self._h2.remote_settings.max_concurrent_streams, self._limits.http2_streams)
        return self.lost is None and len(self.streams) < allowed

    def open(self, fields: Fields) -> Http2Stream:
        """Send a request without a body. `room` was asked in the same step."""
        stream = Http2Stream(self, self._h2.get_next_available_stream_id())
        stream.ending = stream.sent_end = True
        self.streams[stream.number] = stream
        self.head(stream, fields, end=True)
        return stream

    def head(self, stream: Http2Stream, fields: Fields, *, end: bool) -> None:
        if stream.lost is not None:
            return
        try:
            self._h2.send_headers(stream.number, fields, end_stream=end)
        except ProtocolError:
            self._closed_under_us(stream)
            return
        self._frames.carried()
        if end:
            stream.ending = stream.sent_end = True
            self._forget_if_over(stream)
        self._flush_soon()

    def reset(self, stream: Http2Stream, code: ErrorCodes, why: str) -> None:
        """End a stream from our side, if it is not over."""
        if self.streams.pop(stream.number, None) is not None and self.lost is None:
            with suppress(ProtocolError):  # h2 has seen its end already, in the same bytes
                self._h2.reset_stream(stream.number, code)
            self._flush_soon()
        stream.lose(why)
        self._changed()

    def give_window(self, stream: Http2Stream, size: int) -> bool:
        """Let the other side send so much more on a stream; False while that is too little to say."""
        if stream.ended or stream.lost is not None or self.lost is not None:
            return True
        if size < self._limits.http2_window_bytes // 4:
            return False
        try:
            self._h2.increment_flow_control_window(size, stream.number)
        except ProtocolError:
            self._closed_under_us(stream)
        self._flush_soon()
        return True

    def pump(self, stream: Http2Stream) -> None:
        """Send what the windows and the transport let go of a stream."""
        while self._pump_one(stream):
            pass

    def _pump_one(self, stream: Http2Stream) -> bool:
        """One frame; False when there is none to send, or none can be sent now."""
        over = self.lost is not None or stream.lost is not None or stream.sent_end
        if over or not (stream.waiting or stream.ending):
            self._blocked.pop(stream.number, None)
            return False
        if self.is_full:
            self._blocked[stream.number] = stream
            return False
        size = 0
        try:
            if stream.waiting:
                # Below 0 when the other side made its windows smaller (RFC 9113 section 6.9.2).
                room = self._h2.local_flow_control_window(stream.number)
                size = min(len(stream.waiting), room, self._h2.max_outbound_frame_size)
                if size <= 0:
                    self._blocked[stream.number] = stream
                    return False
                last = stream.ending and size == len(stream.waiting)
                self._h2.send_data(stream.number, bytes(stream.waiting[:size]), end_stream=last)
            else:
                last = True
                self._h2.end_stream(stream.number)
        except ProtocolError:
            self._closed_under_us(stream)
            return False
        del stream.waiting[:size]
        self._frames.carried()
        self._buffered += size
        if self._buffered >= _AT_ONCE:
            self._flush()
        else:
            self._flush_soon()
        if last:
            stream.sent_end = True
            self._blocked.pop(stream.number, None)
            self._forget_if_over(stream)
        if last or (len(stream.waiting) <= ENOUGH and not self.is_full):
            stream.wake_writer()  # of a stream that is over nobody hears any more
        return not last

    def _pump_all(self) -> None:
        """A frame of each in turn, so that none waits for another's end."""
        going = True
        while going:
            going = False
            for stream in tuple(self._blocked.values()):
                going = self._pump_one(stream) or going

    def _writable(self) -> None:
        self._pump_all()
        for stream in tuple(self.streams.values()):
            if len(stream.waiting) <= ENOUGH:
                stream.wake_writer()

    def _flush_soon(self) -> None:
        """One write for all that one turn of the event loop has to say."""
        if self._flushing is None:
            self._flushing = asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        if self._flushing is not None:
            self._flushing.cancel()
            self._flushing = None
        self._buffered = 0
        if data := self._h2.data_to_send():
            self._carrier.write(data)

    # The ends

    async def answers_ping(self, within_s: float) -> bool:
        """Whether the other side is still there."""
        if self.lost is not None:
            return False
        pong: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._pings.append(pong)
        self._h2.ping(b"\0" * 8)
        self._flush_soon()
        await asyncio.wait([pong], timeout=within_s)
        return pong.done() and self.lost is None

    def close(self) -> None:
        """Take nothing more; what runs is lost."""
        if self.lost is None:
            self._h2.close_connection()
            self._flush()
            self._end("the gate closed the connection")
            self._carrier.close()

    def _end(self, why: str) -> None:
        if self.lost is not None:
            return
        self.lost, self.draining = why, True
        if self._flushing is not None:
            self._flushing.cancel()
            self._flushing = None
        for ping in self._pings:
            if not ping.done():
                ping.set_result(None)
        streams, self.streams = tuple(self.streams.values()), {}
        for stream in streams:
            stream.lose(why)
        self._blocked.clear()
        self._changed()

    def _closed_under_us(self, stream: Http2Stream) -> None:
        """h2 has seen the end of a stream, in bytes of which we have not been told yet."""
        self.streams.pop(stream.number, None)
        stream.lose("the other side ended the request")
        self._changed()

    def _forget_if_over(self, stream: Http2Stream) -> None:
        if stream.ended and stream.sent_end:
            self.streams.pop(stream.number, None)
            self._changed()

    def _changed(self) -> None:
        if self.on_change is not None:
            self.on_change()


class _Protocol(H2Connection):
    """Without h2's own look at Content-Length: it ends the connection, and with it all other requests, for one body of
    another length, and a 304 with an empty DATA frame is one to it. Both sides of the gate count themselves."""

    def _begin_new_stream(self, stream_id: int, allowed_ids: AllowedStreamIDs) -> H2Stream:
        stream = super()._begin_new_stream(stream_id, allowed_ids)
        stream._initialize_content_length = _nothing_expected  # type: ignore[method-assign]
        return stream


def _nothing_expected(headers: object) -> None:
    """In place of what h2 takes from a head to compare the body with."""


def _protocol(limits: Limits, *, client: bool) -> H2Connection:
    # Heads are checked by `http2_heads`, ours are well-formed: h2's own checks cost a third of its time.
    protocol = _Protocol(
        H2Configuration(
            client_side=client,
            header_encoding=None,
            validate_inbound_headers=False,
            normalize_inbound_headers=False,
            validate_outbound_headers=False,
            normalize_outbound_headers=False,
        )
    )
    protocol.local_settings = Settings(
        client=client,
        initial_values={
            SettingCodes.ENABLE_PUSH: 0,
            SettingCodes.MAX_CONCURRENT_STREAMS: limits.http2_streams,
            SettingCodes.INITIAL_WINDOW_SIZE: limits.http2_window_bytes,
            SettingCodes.MAX_HEADER_LIST_SIZE: limits.head_bytes,
        },
    )
    protocol.decoder.max_header_list_size = limits.head_bytes
    protocol.encoder = HeadEncoder()  # type: ignore[assignment]  # as much of one as h2 uses
    protocol.initiate_connection()
    protocol.increment_flow_control_window(_CONNECTION_WINDOW - _FIRST_WINDOW)
    return protocol
