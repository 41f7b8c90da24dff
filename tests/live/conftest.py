"""One WordPress and one plain Chromium for the live tests. Each test begins with an empty site."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, async_playwright
from wordpress_site import CannotProvide, WordPressSite, running_wordpress


@pytest.fixture(scope="session")
def wordpress() -> Iterator[WordPressSite]:
    started = running_wordpress()
    try:
        site = started.__enter__()
    except CannotProvide as error:
        pytest.fail(str(error))
    try:
        yield site
    finally:
        started.__exit__(None, None, None)


@pytest.fixture
def site(wordpress: WordPressSite) -> WordPressSite:
    wordpress.reset()
    return wordpress


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    """A plain Chromium, without any gate: what a page sends by itself."""
    path = os.environ.get("INTERLOCK_BROWSER") or shutil.which("chromium") or shutil.which("google-chrome")
    assert path is not None, "Install Chromium: apt-get install chromium"
    sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
    async with async_playwright() as playwright:
        started = await playwright.chromium.launch(executable_path=Path(path), args=[*sandbox, "--disable-gpu"])
        yield started
        await started.close()
