"""`Executor`: the Python API. Proposes, approves, runs, stops, reads; the command line and later the console sit on it.

It joins the rooms and holds no rule of its own: what may happen is decided by the model, the ledger and the gate.
"""

from __future__ import annotations

import asyncio
import unicodedata
from collections.abc import AsyncIterator, Collection, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any, Self

from evidence import worker
from evidence.redaction import Redactor
from evidence.store import FileStore
from executor.browser.identities import Identities
from executor.browser.pool import BrowserPool, Wear
from executor.browser.sessions import BrowserHost
from executor.browser.signing_in import sign_in
from executor.errors import BadInput, InterlockError, NotReady
from executor.gate.dialling import Routes
from executor.ledger.anchor import Anchor
from executor.ledger.ledger import AccountBusy, Due, Proposed
from executor.ledger.sql import open_ledger
from executor.ledger.thread import AsyncLedger, LedgerThread
from executor.model.admission import refusal
from executor.model.ending import code
from executor.model.fingerprint import NotCanonical, provider_key
from executor.model.operation import (
    Actor,
    ActorKind,
    Approval,
    EventRecord,
    FlowBinding,
    Intent,
    Operation,
    Policy,
    Stop,
    account_key,
)
from executor.model.reasons import Halt
from executor.network import routes_of_a_run
from executor.one_shot.last_step import ITSELF, Ended, LastStep
from executor.one_shot.recovery import RUN_STARTED, finish_lost_runs, settle_open_attempts
from executor.one_shot.run import Listener, Run, Services, StepEvent, new_run_id
from executor.one_shot.steps import go_through
from executor.one_shot.waits import wait_of_a_lost_run
from executor.payload_files import PayloadFiles
from executor.payloads import for_the_flow, parse_payload
from executor.receipts import Receipt
from executor.settings import LONGEST_APPROVAL_S, Settings
from flows.effect import Contract
from flows.flow import Credentials, Flow, Payload
from flows.registry import Registry, RegistryError
from flows.wire import origin_of_url


class Executor:
    """One process's access to the ledger, the evidence and the browser. An async context manager.

    Opening it settles attempts whose run is gone (`recovered`). A browser is started for the first run, shared by all
    of them, and ended with the executor.
    """

    def __init__(self, settings: Settings | None = None, *, on_step: Listener | None = None) -> None:
        self.settings = settings or Settings()
        self.flows = Registry.discover()
        self.recovered: tuple[Operation, ...] = ()
        self._on_step = on_step
        self._browsers: BrowserPool
        self._thread: LedgerThread | None = None
        self._ledger: AsyncLedger | None = None

    async def __aenter__(self) -> Self:
        settings = self.settings
        self._browsers = BrowserPool(
            lambda headed: BrowserHost.of(settings, headed=headed),
            Wear(
                contexts=settings.browser_contexts,
                seconds=settings.browser_lifetime_s,
                losses=settings.browser_losses,
            ),
        )
        for folder in (settings.home, settings.evidence_folder):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        anchor = Anchor(settings.evidence_folder / "anchor.json")
        opened = await asyncio.to_thread(open_ledger, settings.ledger_url, anchor=anchor)
        self._thread = LedgerThread(opened)
        self._ledger = AsyncLedger(self._thread)
        try:
            self.recovered = await self.recover(by=ITSELF)
        except BaseException:
            await self.__aexit__()  # nobody else will: what is not entered is not left
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        try:
            await self._browsers.close()
        finally:
            await asyncio.to_thread(worker.close)
            await self._close_ledger()

    async def _close_ledger(self) -> None:
        if self._thread is not None:
            thread, self._thread, self._ledger = self._thread, None, None
            await thread.aclose()

    @property
    def ledger(self) -> AsyncLedger:
        """The ledger, for reading. Raises RuntimeError before the executor is opened."""
        if self._ledger is None:
            raise RuntimeError("the executor is not open: use `async with Executor(...)`")
        return self._ledger

    @property
    def payload_files(self) -> PayloadFiles:
        """The files of payloads. A payload that names one is proposed with what `take` gives for it."""
        return PayloadFiles(self.settings.payload_files_folder)

    # -- intents and permission ---------------------------------------------------------------------------------------
    async def propose(
        self,
        *,
        flow: str,
        destination: str,
        account: str,
        payload: Mapping[str, Any] | Payload,
        task: str,
        by: Actor,
        after: Sequence[str] = (),
        deadline: datetime | None = None,
    ) -> Proposed:
        """Record an intent, or find the operation that it already is (A4). Raises `BadInput`."""
        found = self._flow(flow)
        if not account.strip() or not task.strip():
            raise BadInput("An intent needs an account and a task; one of them is empty.")
        if any(unicodedata.category(one) in ("Cc", "Cs") for one in account.strip() + task.strip()):
            raise BadInput("An account and a task are one line of text; one of them holds a character that is no text.")
        if deadline is not None and deadline.tzinfo is None:
            raise BadInput("A deadline needs a time zone, such as 2030-01-31T12:00:00+01:00.")
        parsed = parse_payload(found, payload)
        await asyncio.to_thread(self.payload_files.check, parsed.model_dump(mode="json"))
        try:
            place = found.canonical_destination(destination)
        except ValueError as error:
            raise BadInput(f"{str(error)[:1].upper()}{str(error)[1:]}.") from error
        binding = self._binding(flow, found)
        intent = Intent(
            task=task.strip(),
            action=found.action,
            destination=place,
            account=account.strip(),
            flow=binding.name,
            payload=parsed.model_dump(mode="json"),
            material=found.material(parsed),
            common=found.common_material(parsed),
            after=tuple([(await self.operation(one)).id for one in after]),
            deadline=deadline,
        )
        try:
            return await self.ledger.propose(
                intent,
                flow=binding,
                policy=found.contract.policy,
                by=by,
                provider_key=provider_key(intent.identity) if found.contract.key is not None else None,
            )
        except NotCanonical as error:
            raise BadInput(
                "The intent holds what no record can keep: a deadline centuries away, or half of a character."
            ) from error

    async def approve(
        self,
        operation: str,
        *,
        by: Actor,
        fingerprint: str,
        valid_for_s: float | None = None,
        attempts: int = 1,
        meant: bool = False,
        why: str = "",
    ) -> Approval:
        """Approve exactly what is there, for the flow's code as it is now (B1). `attempts` is how many runs of it the
        approval allows; more than one means something under the policy `idempotent` alone."""
        found = await self.operation(operation)
        if attempts < 1:
            raise BadInput("An approval allows at least one attempt; give 1 or more.")
        if attempts > 1 and found.policy is not Policy.IDEMPOTENT:
            raise BadInput(
                f"{found.id} has the policy {found.policy.value}: an approval of it allows one attempt. Only where the "
                "site honours a key (the policy idempotent) may one approval allow more."
            )
        if valid_for_s is not None and not 0 < valid_for_s <= LONGEST_APPROVAL_S:
            raise BadInput("An approval is valid for some time and at most a year; give a positive number of seconds.")
        flow = self._flow(found.flow.name)
        return await self.ledger.approve(
            found.id,
            by=by,
            flow=self._binding(found.flow.name, flow),
            fingerprint=fingerprint,
            valid_for_s=valid_for_s or self._settings_for(found).approval_s,
            attempts=attempts,
            meant=meant,
            key=flow.contract.key,
            why=why,
        )

    async def revoke(self, operation: str, *, by: Actor, why: str) -> Operation:
        return await self.ledger.revoke((await self.operation(operation)).id, by=by, why=why)

    # -- running ------------------------------------------------------------------------------------------------------
    async def run(self, operation: str, *, by: Actor, headed: bool | None = None) -> Ended:
        """Run one operation once. What happens in the run is in what it returns, never in an exception; a browser that
        is missing or a ledger that is gone is raised, before anything is dispatched.

        An operation that was dispatched before is refused, unless the provider's key makes another attempt safe (the
        policy `idempotent`). Nothing but this call makes one.

        Cancelling it before the gesture halts the run; after the gesture it waits for the run to end by its own
        deadlines. In both cases the receipt is written, and only then is CancelledError raised.
        """
        found = await self.operation(operation)
        flow = self._flow(found.flow.name)
        binding = self._binding(found.flow.name, flow)
        refused = refusal(await self.ledger.admission(found.id, binding, key=flow.contract.key))
        if refused is not None:
            # Refused before a browser is started. The note is what a second run leaves behind.
            await self.ledger.note(
                found.id,
                kind="refused",
                by=by,
                why=refused.sentence,
                data={
                    "reason": refused.reason.value,
                    "because": list(refused.because),
                    "retry": refused.retry.value if refused.retry is not None else None,
                },
            )
            return await self._last_step.take(found.id, None, refused)
        shown = self.settings.headed if headed is None else headed
        cancelled = asyncio.Event()
        return await _to_the_end(self._attended(found, by, shown, cancelled=cancelled), cancelled)

    async def run_if_free(self, operation: str, *, by: Actor, draining: asyncio.Event) -> Ended | None:
        """Run one operation as a worker does: under the account's lease from the beginning. None, and no trace,
        where another run acts as its account, it may not run any more, or a run of it was lost and it waits for
        that. Once `draining` is set a run that has not claimed halts, and one that has goes through."""
        found = await self.operation(operation)
        own = new_run_id()
        try:
            lease = await self.ledger.lease(found.account_key, holder=own, ttl_s=self._settings_for(found).lease_s)
        except AccountBusy:
            return None
        try:
            binding = self._binding(found.flow.name, self._flow(found.flow.name))
            if draining.is_set() or refusal(await self.ledger.admission(found.id, binding)) is not None:
                return None
            found = await self.operation(found.id)
            if await wait_of_a_lost_run(self.ledger, self._settings_for(found), found, by=ITSELF):
                return None
            cancelled = asyncio.Event()
            run = self._attended(
                found, by, self.settings.headed, cancelled=cancelled, draining=draining, lease=lease, id=own
            )
            return await _to_the_end(run, cancelled)
        finally:
            await self.ledger.surrender(lease)

    async def due(self, flows: Collection[str], *, limit: int, without: Collection[str] = ()) -> Sequence[Due]:
        """What may run now with these flows, by their names in the record. See `Ledger.due`."""
        bindings = [self._binding(name, self._flow(name)) for name in flows]
        return await self.ledger.due(bindings, limit=limit, without=without)

    async def resume(self, operation: str, *, by: Actor, why: str) -> Operation:
        """End the wait of an operation whose run halted: somebody has seen to what stood in its way."""
        return await self.ledger.resume((await self.operation(operation)).id, by=by, why=why)

    async def _attended(self, found: Operation, by: Actor, headed: bool, **given: Any) -> Ended:
        """A run with its browser around it and its receipt after it. `given` are fields of the run."""
        flow = self._flow(found.flow.name)
        binding = self._binding(found.flow.name, flow)
        routes = await self._routes(binding.name, found.intent.destination)
        async with _warm_worker(), self._browsers.use(headed=headed) as host:
            run = Run(
                services=self._services(host, self._settings_for(found), routes),
                operation=found,
                flow=flow,
                binding=binding,
                intent=for_the_flow(found, flow),
                redactor=redactor_for(flow),
                **given,
            )
            await self.ledger.note(
                found.id,
                kind=RUN_STARTED,
                by=run.actor,
                why=f"asked for by {by}",
                data={"run": run.id, "browser": host.version, "flow": flow.name, "flow_version": flow.version},
            )
            ending = await go_through(run)
        return await self._last_step.take(found.id, ending)

    async def recover(self, *, by: Actor) -> tuple[Operation, ...]:
        """Settle attempts whose run is gone, finish runs that were lost between their verdict and their receipt (among
        the newest operations), and write the receipts of both; sign and log those that lack it."""
        settled = await settle_open_attempts(
            self.ledger, by=by, breaks=lambda operation: self._settings_for(operation).circuit_breaker
        )
        finished = await finish_lost_runs(self.ledger, self.settings.receipts_folder, by=by)
        recovered = {operation.id: operation for operation in (*settled, *finished)}
        for operation in recovered:
            await self._last_step.write(operation)
        await self._last_step.mend([one.id for one in await self.ledger.operations()])
        return tuple(recovered.values())

    async def login(self, *, flow: str, destination: str, account: str, credentials: Credentials, by: Actor) -> None:
        """Sign in by the flow's form, through a gate that lets only its login writes out, and seal the session (C9).
        Raises `NotReady` when the site does not let the person in. What waited for this sign-in waits no longer."""
        found = self._flow(flow)
        try:
            place = found.canonical_destination(destination)
        except ValueError as error:
            raise BadInput(str(error)) from error
        own = self.settings.for_run(self.flows.canonical(flow), place)
        routes = await self._routes(self.flows.canonical(flow), place)
        async with self._browsers.use(headed=self.settings.headed) as host:
            try:
                await sign_in(self._services(host, own, routes), found, place, account, credentials)
            except InterlockError:
                raise
            except Exception as error:  # noqa: BLE001  a flow author's code may raise anything
                # The password in its words included: it is cut out, and what is not cut is not chained.
                said = str(error).replace(credentials.password, "…") if credentials.password else str(error)
                first = (said.strip().splitlines() or [type(error).__name__])[0]
                raise NotReady(f"The site did not let {account} in: {first[:200]}") from None
        if by.kind is ActorKind.PERSON:
            for one in await self.ledger.waiting():
                if one.account_key == account_key(place, account) and one.halt == code(Halt.SIGN_IN_NEEDED):
                    await self.ledger.resume(one.operation, by=by, why="signed in anew")

    # -- stops --------------------------------------------------------------------------------------------------------
    async def stop(
        self,
        *,
        by: Actor,
        why: str,
        flow: str | None = None,
        destination: str | None = None,
        account: str | None = None,
    ) -> Stop:
        """Let nothing be claimed or released: of a flow, of an account at a destination, or (neither given) at all."""
        if (destination is None) != (account is None):
            raise BadInput("A stop for an account needs both the site and the account.")
        # In the spelling of the record: a stop in any other would be in force and hold nothing.
        key = None
        if destination is not None and account is not None:
            try:
                key = account_key(origin_of_url(destination), account.strip())
            except ValueError as error:
                raise BadInput(f"{error}.") from error
        named = await self._name_of(flow) if flow is not None else None
        return await self.ledger.stop(by=by, why=why, flow=named, account_key=key)

    async def lift(self, stop: str, *, by: Actor, why: str) -> Stop:
        return await self.ledger.lift(stop, by=by, why=why)

    async def stops(self) -> Sequence[Stop]:
        return await self.ledger.stops()

    # -- reading ------------------------------------------------------------------------------------------------------
    async def operation(self, operation: str) -> Operation:
        return await self.ledger.operation(operation)

    async def operations(self, *, unresolved_only: bool = False) -> Sequence[Operation]:
        return await self.ledger.operations(unresolved_only=unresolved_only)

    async def events(self, operation: str) -> Sequence[EventRecord]:
        return await self.ledger.events((await self.operation(operation)).id)

    async def receipt(self, operation: str) -> Receipt:
        """The receipt as the record stands now."""
        return await self._last_step.receipt((await self.operation(operation)).id)

    async def ended(self, operation: str) -> Ended:
        """How the last run of an operation ended, from the record: what a caller that was cancelled can still show.
        Raises `NoSuchOperation`."""
        found = await self.operation(operation)
        return await self._last_step.as_it_ended(found.id)

    # -- parts --------------------------------------------------------------------------------------------------------
    def _flow(self, name: str) -> Flow[Any]:
        try:
            flow = self.flows.get(name)
        except RegistryError as error:
            raise BadInput(str(error)) from error
        if type(flow) not in _LOADED:
            _LOADED[type(flow)] = flow.code_digest()
        return flow

    async def _name_of(self, flow: str) -> str:
        """A flow's name in the record. One that cannot be loaded any more is known by its operations."""
        try:
            return self.flows.canonical(flow)
        except RegistryError as error:
            if any(operation.flow.name == flow for operation in await self.operations()):
                return flow
            raise BadInput(str(error)) from error

    def _binding(self, reference: str, flow: Flow[Any]) -> FlowBinding:
        return FlowBinding(name=self.flows.canonical(reference), version=flow.version, code_digest=_LOADED[type(flow)])

    def _contract(self, name: str) -> Contract | None:
        """None for a flow that cannot be loaded any more: its record stays readable."""
        try:
            return self._flow(name).contract
        except BadInput:
            return None

    @property
    def _last_step(self) -> LastStep:
        return LastStep(self.ledger, self.settings, self._contract, self._on_step)

    def _settings_for(self, operation: Operation) -> Settings:
        """What a run of this operation goes by: the tables of its flow and its site are in effect."""
        return self.settings.for_run(operation.flow.name, operation.intent.destination)

    async def _routes(self, flow: str, destination: str) -> Routes:
        """How the gates of a run reach each host. Raises `NotReady` for files that cannot be used."""
        return await asyncio.to_thread(routes_of_a_run, self.settings, flow, destination)

    def _services(self, host: BrowserHost, settings: Settings, routes: Routes) -> Services:
        return Services(
            settings=settings,
            ledger=self.ledger,
            store=FileStore(settings.evidence_folder, minimum_free_bytes=settings.minimum_free_bytes),
            identities=Identities(settings.identities_folder, settings.key_folder),
            host=host,
            routes=routes,
            listener=self._on_step,
        )


def redactor_for(flow: Flow[Any]) -> Redactor:
    """What this flow says is secret, beside what always is."""
    return Redactor(
        cookie_names=frozenset(flow.session_cookies),
        field_names=frozenset(flow.secret_fields),
        selectors=tuple(flow.secret_regions),
    )


@asynccontextmanager
async def _warm_worker() -> AsyncIterator[None]:
    """Start the evidence worker, where none runs, beside the browser: it is needed a second later."""
    starting = asyncio.ensure_future(worker.start())
    try:
        yield
    finally:
        # Nothing to find out here: a worker that cannot be started shows as a gap in the evidence.
        await asyncio.gather(starting, return_exceptions=True)


async def _to_the_end(run: Coroutine[Any, Any, Ended], cancelled: asyncio.Event) -> Ended:
    """Let a run end by its own deadlines, its browser and its receipt included, whoever cancels its caller, and however
    often."""
    going = asyncio.ensure_future(run)
    error: asyncio.CancelledError | None = None
    while not going.done():
        try:
            await asyncio.wait([going])
        except asyncio.CancelledError as asked:
            error = asked
            cancelled.set()
    ended = going.result()
    if error is not None:
        raise error
    return ended


_LOADED: dict[type[Flow[Any]], str] = {}
"""The digest of each flow's code as it was when this process loaded it. The file may have changed since, and what would
run here is what was loaded: an approval for what the file holds now is not for that (B1)."""
__all__ = ["Ended", "Executor", "StepEvent", "redactor_for"]
