"""Content that travels ahead of the effect (C3): what the site may hold when the effect arrives is what was approved,
also where a save is still under way, was overtaken, was lost, or comes while the effect is on its way.

The composer here saves title and body by one request and publishes by another that holds neither. The site applies
what it reads when it answers; `Store` is its own record.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode

import pytest
from release_kit import BODY, TITLE, Bench, Got, Held, bench

from executor.gate.rules import Phase
from executor.model.reasons import NotSent
from executor.model.transitions import Outcome, Transmission
from flows.effect import Meaning, Says, Write
from flows.wire import Answer, OutgoingRequest

SAVED = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
OTHER = "Something that nobody approved"


@pytest.fixture(scope="session")
def browser() -> None:
    """In place of the fixture that skips where there is none."""


def _fields(request: OutgoingRequest, _answer: Answer | None = None) -> dict[str, str]:
    return {name: value for name, value in request.form.fields if name in ("title", "body")}


SAVE = Write(
    name="save",
    method="POST",
    path="/save",
    matches=lambda request: request.form.get("id") == "7",
    may_cause_effect=False,
    material=_fields,
    item=lambda request, answer: request.form.get("id") if answer.status == 200 else None,
)


def save(title: str = TITLE, body: str = BODY) -> bytes:
    return urlencode({"id": "7", "title": title, "body": body}).encode()


class Store:
    """Answers each request when its turn comes, and applies it then."""

    def __init__(self, one: Bench) -> None:
        self.saved: dict[str, str] = {}
        self.published: list[dict[str, str]] = []
        self.arrived: list[bytes] = []
        self.came = asyncio.Event()
        self.wait: dict[int, asyncio.Event] = {}
        """By the number of the save: it is neither applied nor answered before that."""
        self.answers: dict[int, bytes] = {}
        self._server: asyncio.Server | None = None
        one.site._server.close()
        self.port = one.site.port

    async def __aenter__(self) -> Store:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        for event in self.wait.values():
            event.set()
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0] or 0)
            body = await reader.readexactly(length)
            if b" /save " in head.splitlines()[0]:
                number = len(self.arrived)
                self.arrived.append(body)
                self.came.set()
                if number in self.wait:
                    await self.wait[number].wait()
                self.saved = {name: value[0] for name, value in parse_qs(body.decode()).items()}
                writer.write(self.answers.get(number, SAVED))
            else:
                self.published.append(dict(self.saved))
                writer.write(SAVED)
            await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def composer(folder: Path, **given: Any) -> AsyncIterator[tuple[Bench, Store]]:
    """Armed, with one save of the approved content behind it."""
    effect = {
        "matches": lambda request: request.form.get("id") == "7",
        "material": lambda request: {},
        "item": lambda request: request.form.get("id"),
    }
    read = lambda request, answer: Meaning(says=Says.DONE, clause="published", item="7")  # noqa: E731
    async with bench(folder, effect=effect, read=read, **given) as one, Store(one) as store:
        one.run.flow.supporting = (SAVE,)  # type: ignore[misc]
        one.gate.enter(Phase.ARMED, rules=one.run.composer_rules(), door=one.release)
        assert await one.ask("POST", "/save", save()) == Got(200)
        yield one, store


async def publish(one: Bench) -> Got:
    return await one.ask("POST", "/form/publish", b"id=7")


def only_approved(store: Store) -> bool:
    return all((one["title"], one["body"]) == (TITLE, BODY) for one in store.published)


async def test_what_was_saved_ahead_as_approved_is_published(tmp_path: Path) -> None:
    async with composer(tmp_path) as (one, store):
        assert await publish(one) == Got(200)
        operation = await one.judged()
        assert operation.state.outcome is Outcome.SUCCEEDED
        assert len(store.published) == 1
        assert only_approved(store)


async def test_a_save_that_is_under_way_is_waited_for_and_compared(tmp_path: Path) -> None:
    async with composer(tmp_path) as (one, store):
        store.came.clear()
        store.wait[1] = asyncio.Event()
        saving = asyncio.create_task(one.ask("POST", "/save", save(body=OTHER)))
        await store.came.wait()
        publishing = asyncio.create_task(publish(one))
        await asyncio.wait_for(one.release.taken.wait(), 5)
        await asyncio.sleep(0.2)
        store.wait[1].set()
        await asyncio.wait_for(saving, 5)
        await asyncio.wait_for(publishing, 5)
        operation = await one.judged()
        assert only_approved(store)
        assert operation.state.transmission is Transmission.NONE_PROVEN
        assert one.run.not_sent is NotSent.MATERIAL_DIFFERS


async def test_a_save_that_never_ends_lets_nothing_out(tmp_path: Path) -> None:
    async with composer(tmp_path, connect_s=0.5) as (one, store):
        store.came.clear()
        store.wait[1] = asyncio.Event()
        saving = asyncio.create_task(one.ask("POST", "/save", save(body=OTHER)))
        await store.came.wait()
        assert (await asyncio.wait_for(publish(one), 5)).interlock == "material_differs"
        store.wait[1].set()
        await asyncio.wait_for(saving, 5)
        assert store.published == []
        assert (await one.judged()).state.transmission is Transmission.NONE_PROVEN


async def test_a_save_that_the_site_applies_after_a_later_one_is_compared_too(tmp_path: Path) -> None:
    """Sent first, applied last: two saves that overlap have no order that the gate could see."""
    async with composer(tmp_path) as (one, store):
        store.came.clear()
        store.wait[1] = asyncio.Event()
        first = asyncio.create_task(one.ask("POST", "/save", save(body=OTHER)))
        await store.came.wait()
        assert await one.ask("POST", "/save", save()) == Got(200)
        store.wait[1].set()
        await asyncio.wait_for(first, 5)
        assert (await publish(one)).interlock == "material_differs"
        assert store.saved["body"] == OTHER
        assert store.published == []


@pytest.mark.parametrize(
    "answer",
    [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\nok", b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n"],
    ids=["lost", "cut", "500"],
)
async def test_a_save_without_a_success_may_have_been_applied(tmp_path: Path, answer: bytes) -> None:
    async with composer(tmp_path) as (one, store):
        store.answers[1] = answer
        await one.ask("POST", "/save", save(body=OTHER))
        assert (await publish(one)).interlock == "material_differs"
        assert store.saved["body"] == OTHER
        assert store.published == []


async def test_a_failed_save_that_was_made_good_does_not_stand_in_the_way(tmp_path: Path) -> None:
    async with composer(tmp_path) as (one, store):
        store.answers[1] = b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n"
        await one.ask("POST", "/save", save(body=OTHER))
        assert await one.ask("POST", "/save", save()) == Got(200)
        assert await publish(one) == Got(200)
        assert (await one.judged()).state.outcome is Outcome.SUCCEEDED
        assert only_approved(store)


@pytest.mark.parametrize("point", ["connect", "write", "answer"])
async def test_no_save_leaves_while_the_effect_is_on_its_way(tmp_path: Path, point: str) -> None:
    async with composer(tmp_path) as (one, store):
        held = Held(one.release, point)
        one.gate.enter(Phase.ARMED, door=held)
        publishing = asyncio.create_task(publish(one))
        await asyncio.wait_for(held.entered.wait(), 5)
        assert (await one.ask("POST", "/save", save(body=OTHER))).interlock == "content_closed"
        held.let_go()
        assert await asyncio.wait_for(publishing, 5) == Got(200)
        assert (await one.ask("POST", "/save", save(body=OTHER))).interlock == "content_closed"
        assert (await one.judged()).state.outcome is Outcome.SUCCEEDED
        assert len(store.published) == 1
        assert only_approved(store)
        assert store.saved["body"] == BODY
