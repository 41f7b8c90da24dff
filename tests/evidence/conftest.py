"""A browser and a small site on loopback for the tests of evidence. The site is the ground truth of what was sent."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from playwright.async_api import Browser, BrowserContext, async_playwright

from evidence import worker
from evidence.store import FileStore


class Site:
    """Pages by path (a page may set headers); remembers every request and says when a path was asked for."""

    def __init__(self) -> None:
        self.pages: dict[str, tuple[str, dict[str, str]]] = {}
        self.gets: list[str] = []
        self.posts: list[str] = []
        self.release = threading.Event()
        self._asked: dict[str, threading.Event] = {}
        site = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                site.gets.append(self.path)
                site.asked(self.path).set()
                if self.path.startswith("/never"):
                    site.release.wait(60)
                    self.close_connection = True
                    return
                html, headers = site.pages.get(self.path.partition("?")[0], ("", {}))
                body = html.encode()
                self.send_response(int(headers.get("status", "200")) if html else 404)
                self.send_header("Content-Type", "text/html; charset=utf-8")
                self.send_header("Content-Length", str(len(body)))
                for name, value in headers.items():
                    if name != "status":
                        self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length", "0")))
                site.posts.append(self.path)
                site.asked(self.path).set()
                self.send_response(204)
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:
                """Quiet."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        self.port = self._server.server_port
        self.url = f"http://127.0.0.1:{self.port}"

    def page(self, path: str, html: str, **headers: str) -> str:
        self.pages[path] = (html, {name.replace("_", "-"): value for name, value in headers.items()})
        return self.url + path

    def asked(self, path: str) -> threading.Event:
        return self._asked.setdefault(path, threading.Event())

    def close(self) -> None:
        self.release.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def site() -> Iterator[Site]:
    running = Site()
    yield running
    running.close()


@pytest.fixture
def store(tmp_path: Path) -> FileStore:
    return FileStore(tmp_path / "evidence", minimum_free_bytes=0)


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    executable = shutil.which("chromium") or shutil.which("google-chrome")
    arguments = ["--disable-gpu", "--disable-dev-shm-usage"]
    if os.geteuid() == 0:
        arguments.append("--no-sandbox")
    async with async_playwright() as playwright:
        running = await playwright.chromium.launch(executable_path=executable, args=arguments)
        yield running
        await running.close()


@pytest.fixture
async def context(browser: Browser) -> BrowserContext:
    return await browser.new_context(viewport={"width": 900, "height": 600})


@pytest.fixture(scope="session", autouse=True)
def _worker_ends() -> Iterator[Callable[[], None]]:
    yield worker.close
    worker.close()
