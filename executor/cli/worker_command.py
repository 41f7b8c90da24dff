"""`interlock worker`: run what is authorized and due, until a signal says to drain; and `interlock resume`."""

from __future__ import annotations

import asyncio
import signal
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from executor.cli.surroundings import AsJson, OperationId, actor, cell, executor, out, person, print_json, run, settings
from executor.errors import BadInput, Exit

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from executor.worker import Progress, Tally
    from flows.registry import Registry

_MARKS = {
    "ready": ("▸", "bold"),
    "started": ("▸", ""),
    "ended": ("✓", "green"),
    "waits": ("…", "yellow"),
    "recovered": ("↺", "yellow"),
    "trouble": ("!", "yellow"),
    "defect": ("✗", "bold red"),
    "draining": ("■", "bold yellow"),
    "done": ("■", "bold"),
}


def worker(
    contexts: Annotated[
        int | None, typer.Option("--contexts", min=1, max=64, help="Runs at once; worker_contexts where not given.")
    ] = None,
    flow: Annotated[
        list[str] | None,
        typer.Option("--flow", metavar="FLOW", help="Only this flow; may be repeated. A file's flow runs only so."),
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="End when nothing is due any more.")] = False,
    poll_s: Annotated[
        float | None, typer.Option("--poll-s", min=0.05, help="Seconds between two looks; worker_poll_s else.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line, for a log.")] = False,
) -> None:
    """Run what is authorized and due, one account at a time. SIGTERM and SIGINT drain: nothing more is begun, a run
    past its claim goes through, any other halts; then the worker ends with 0."""
    tally = asyncio.run(_work(contexts, flow or (), once, poll_s, _lines() if as_json else _shown))
    raise typer.Exit(int(Exit.DEFECT) if once and (tally.defects or tally.troubles) else 0)


async def _work(
    contexts: int | None, flows: Sequence[str], once: bool, poll_s: float | None, tell: Callable[[Progress], None]
) -> Tally:
    from executor.worker import Worker

    asked = asyncio.Event()
    loop = asyncio.get_running_loop()
    for one in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(one, asked.set)
    own = settings()
    async with executor(given=own) as service:
        made = Worker(
            service,
            by=actor(),
            flows=_names(service.flows, flows, tell),
            contexts=contexts or own.worker_contexts,
            poll_s=poll_s or own.worker_poll_s,
            recover_s=own.worker_recover_s,
            tell=tell,
        )
        draining = asyncio.ensure_future(_when(asked, made.drain))
        try:
            return await made.work(once=once)
        finally:
            draining.cancel()


def _names(registry: Registry, wanted: Sequence[str], tell: Callable[[Progress], None]) -> list[str]:
    """The flows to run, by their names in the record. One that was asked for must load; of the registered ones a broken
    one keeps no other from running, and is told."""
    from executor.worker import Happening, Progress
    from flows.registry import RegistryError

    if wanted:
        return [registry.canonical(name) for name in wanted]
    found = []
    for name in registry.names():
        try:
            found.append(registry.canonical(name))
        except RegistryError as error:
            tell(Progress(what=Happening.TROUBLE, flow=name, detail=str(error)))
    return found


async def _when(asked: asyncio.Event, does: Callable[[], None]) -> None:
    await asked.wait()
    does()


def _lines() -> Callable[[Progress], None]:
    """One JSON object a line on standard output, with the time in UTC."""
    import structlog

    logger = structlog.wrap_logger(
        structlog.PrintLogger(sys.stdout),
        processors=[
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.EventRenamer("what"),
            structlog.processors.JSONRenderer(ensure_ascii=False),
        ],
    )

    def tell(progress: Progress) -> None:
        fields = {name: value for name, value in asdict(progress).items() if value not in ("", None)}
        logger.info(fields.pop("what").value, **fields)
        sys.stdout.flush()

    return tell


def _shown(progress: Progress) -> None:
    """For people: a line for each happening."""
    mark, style = _MARKS[progress.what.value]
    if progress.what.value == "ended" and progress.exit != 0:
        mark, style = "■", "yellow"
    said = [progress.what.value, progress.operation, progress.account, progress.outcome, progress.reason]
    if progress.until:
        said.append(f"until {progress.until}" if progress.until != "a person" else "for a person")
    if progress.seconds is not None:
        said.append(f"{progress.seconds:g} s")
    line = cell(f"{mark} {'  '.join(part for part in said if part)}", style)
    if progress.detail:
        line.append_text(cell(f"  {progress.detail}", "dim"))
    out().print(line, soft_wrap=True)


def resume(
    operation: OperationId,
    why: Annotated[str, typer.Option("--why", help="What was done about it, for the record.")] = "",
    as_json: AsJson = False,
) -> None:
    """End the wait of an operation whose run halted, once somebody has seen to the reason. Then it is due again."""
    by = person("end a wait")

    async def work() -> str:
        async with executor() as service:
            found = (await service.operation(operation)).id
            if found not in {one.operation for one in await service.ledger.waiting()}:
                raise BadInput(
                    f"{found} does not wait, so nothing was changed. `interlock show {found}` says where it is."
                )
            return (await service.resume(found, by=by, why=why)).id

    found = run(work())
    if as_json:
        print_json({"operation": found, "resumed": True})
    else:
        out().print(f"{found} waits no longer.", markup=False)
