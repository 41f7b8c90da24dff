"""A listener on loopback for sites and proxies of the tests: a thread for each connection, all ended with it."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from typing import Self


class ThreadedListener:
    """Listens on 127.0.0.1 while it is entered. Who serves in `_serve` puts what it wraps a connection into into
    `_open` too, so that leaving can end it."""

    port: int

    def __enter__(self) -> Self:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        self._open: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._start(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        for one in list(self._open):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        for thread in list(self._threads):
            thread.join(5)
            assert not thread.is_alive()

    def _serve(self, plain: socket.socket) -> None:
        raise NotImplementedError

    def _start(self, target: Callable[..., None], *arguments: object) -> threading.Thread:
        thread = threading.Thread(target=target, args=arguments)
        self._threads.append(thread)
        thread.start()
        return thread

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            self._open.append(connection)
            self._start(self._serve, connection)
