"""Whole runs through a company's proxy: it carries exactly the connections that the site counts, reads nothing, and
where it gives no tunnel the effect is proven not sent."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from urllib.request import urlopen

import pytest
from connect_proxy import ConnectProxy, closing
from desk import Desk

from executor.errors import Exit, NotReady
from executor.model.ending import code
from executor.model.reasons import NotSent
from executor.model.transitions import Transmission
from executor.one_shot.run import StepEvent

pytestmark = pytest.mark.browser

LOGIN = "Basic YWdlbnQ6dmVyeSBzZWNyZXQ="


@pytest.fixture
def proxy() -> Iterator[ConnectProxy]:
    with ConnectProxy(login=LOGIN) as started:
        yield started


@pytest.fixture
def behind(tls_desk: Desk, proxy: ConnectProxy, tmp_path: Path) -> Desk:
    """A desk whose way to the site is the proxy, with credentials from a file."""
    words = tmp_path / "proxy-login"
    words.touch(mode=0o600)
    words.write_text("agent:very secret\n", encoding="utf-8")
    return replace(tls_desk, overrides={"upstream_proxy": proxy.url, "upstream_proxy_credentials": str(words)})


async def _number_of_a_connection(behind: Desk) -> int:
    """Of one made here and now: the site numbers what it accepts."""

    def ask() -> None:
        urlopen(behind.playground.plain, timeout=10).close()

    await asyncio.to_thread(ask)
    return behind.playground.truth.requests()[-1].connection


async def test_the_proxy_carries_what_the_site_counts(behind: Desk, proxy: ConnectProxy) -> None:
    before = await _number_of_a_connection(behind)
    ended = await behind.publish()
    after = await _number_of_a_connection(behind)

    truth = behind.playground.truth
    assert ended.exit is Exit.SUCCEEDED
    assert truth.publish_count() == 1
    assert len(proxy.log) == after - before - 1, "what the site accepted in between came through the proxy"
    arrived = truth.requests()
    assert {f"https://{target}" for target in proxy.targets} == {behind.site}
    effect = next(one for one in arrived if one.method == "POST")
    assert [one.method for one in arrived if one.connection == effect.connection] == ["POST"]
    for tunnel in proxy.log:
        assert tunnel.to_site[0] == 0x16, "TLS, and nothing before it"
        assert b"Office closed" not in tunnel.to_site + tunnel.from_site
    for file in behind.settings.home.rglob("*"):
        if file.is_file():
            kept = file.read_bytes()
            assert b"very secret" not in kept and LOGIN.encode() not in kept, file


async def test_a_proxy_that_dies_between_connect_and_its_answer(behind: Desk, proxy: ConnectProxy) -> None:
    def at_the_door(event: StepEvent) -> None:
        if (event.number, event.moment) == (11, "compared"):
            proxy.answer = closing

    ended = await behind.publish(on_step=at_the_door)

    assert behind.playground.truth.publish_count() == 0
    assert not [one for one in behind.playground.truth.requests() if one.is_write]
    assert ended.exit is Exit.NOT_SENT
    assert ended.operation.state.transmission is Transmission.NONE_PROVEN
    assert ended.ending is not None
    assert ended.ending.reason == code(NotSent.HOST_UNREACHABLE)
    assert "(proxy)" in ended.ending.detail
    assert "very secret" not in ended.ending.detail


async def test_credentials_that_others_may_read_stop_it_before_a_browser(
    behind: Desk, proxy: ConnectProxy, tmp_path: Path
) -> None:
    tmp_path.joinpath("proxy-login").chmod(0o644)
    with pytest.raises(NotReady, match="is open to others: chmod 600"):
        await behind.publish()
    assert not proxy.log
