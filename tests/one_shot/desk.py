"""A desk to work at in tests: a playground, a home folder, and an executor that is signed in. Ground truth is read from
the playground's own record.
"""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from executor.browser.identities import Identities
from executor.model.operation import Actor, ActorKind, Operation
from executor.one_shot.run import StepEvent
from executor.service import Ended, Executor
from executor.settings import Settings
from playground.process import Playground

PERSON = Actor(ActorKind.PERSON, "tester")

QUICK: dict[str, Any] = {
    # Short enough for tests, long enough for two busy cores.
    "effect_window_s": 3.0,
    "answer_s": 4.0,
    "connect_s": 4.0,
    "verify_delays_s": (0.0,),
    "minimum_free_bytes": 1024,
}

_tasks = itertools.count(1)


@dataclass
class Desk:
    playground: Playground
    folder: Path
    tls: bool = False
    overrides: dict[str, Any] = field(default_factory=dict)

    @property
    def site(self) -> str:
        return self.playground.tls if self.tls else self.playground.plain

    @property
    def settings(self) -> Settings:
        given = {**QUICK, **self.overrides}
        return Settings(
            home=self.folder / "home", key_folder=self.folder / "keys", trust=(self.playground.ca,), **given
        )

    def sign_in(self, account: str = "editor", *, as_account: str | None = None) -> None:
        """Seal a session of `account` under the name `as_account` (the same, unless a test mixes them up)."""
        settings = self.settings
        cookie = {
            "name": "pg_session",
            "value": self.playground.truth.open_session(account),
            "domain": urlsplit(self.site).hostname,
            "path": "/",
            "expires": -1,
            "httpOnly": True,
            "secure": self.tls,
            "sameSite": "Lax",
        }
        Identities(settings.identities_folder, settings.key_folder).save(self.site, as_account or account, [cookie])

    @asynccontextmanager
    async def executor(self, on_step: Any = None) -> AsyncIterator[Executor]:
        async with Executor(self.settings, on_step=on_step) as executor:
            yield executor

    async def approved(
        self,
        executor: Executor,
        flow: str = "playground-form",
        *,
        title: str = "Office closed on Friday",
        body: str = "The office is closed on Friday.\nWe are back on Monday.",
        account: str = "editor",
        task: str | None = None,
        also: Mapping[str, Any] | None = None,
        **more: Any,
    ) -> Operation:
        """Propose and approve. `also` are further fields of the payload; a file by its path is taken in."""
        payload = executor.payload_files.take_all({"title": title, "body": body, **(also or {})}, self.folder)
        proposed = await executor.propose(
            flow=flow,
            destination=self.site,
            account=account,
            payload=payload,
            task=task or f"task-{next(_tasks)}",
            by=PERSON,
            **more,
        )
        operation = proposed.operation
        await executor.approve(operation.id, by=PERSON, fingerprint=operation.fingerprint)
        return await executor.operation(operation.id)

    async def publish(self, flow: str = "playground-form", *, on_step: Any = None, **more: Any) -> Ended:
        """Propose, approve and run once."""
        async with self.executor(on_step) as executor:
            operation = await self.approved(executor, flow, **more)
            return await executor.run(operation.id, by=PERSON)


@dataclass
class Moments:
    """A listener that remembers what it heard: (step number, moment)."""

    heard: list[tuple[int, str]] = field(default_factory=list)

    def __call__(self, event: StepEvent) -> None:
        self.heard.append((event.number, event.moment))
