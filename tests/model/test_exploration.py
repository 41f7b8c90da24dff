"""Every path through the state of an operation: two workers that may fall asleep or die at any point, recovery that
may run at any time, persons who approve, revoke and reopen, evidence that says anything (F5, A5, B3).

The world below is the ledger's contract (`executor.ledger.ledger`) around the real tables and the real retry decision.
It explores breadth first until nothing new is found; only the number of attempts is bounded. Fencing tokens grow
without end, so the world keeps what matters of them: whether a worker's token is still the current one.

Under `idempotent` the site is part of the world: it honours the key, makes one item for all requests that carry it, and
forgets it when its lifetime is over. Then ground truth is counted: never more than one item.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import product

import pytest
from model_builders import NOW, attempt, operation

from executor.model.operation import Policy
from executor.model.retry import KeyFacts, Permits, eligibility
from executor.model.transitions import (
    INITIAL,
    AttemptFacts,
    Dispatch,
    Event,
    IllegalTransition,
    Outcome,
    State,
    Transmission,
    apply,
    illegal,
)

MOST_ATTEMPTS = 3
SHOWN = KeyFacts(honoured=True, same_terms=True, alone=True, same_fields=True, inside_lifetime=True, attempts_left=1)
SEEN = (Event.SEEN_ACCEPTED, Event.SEEN_SUCCEEDED, Event.SEEN_REJECTED, Event.SEEN_UNCLEAR)


@dataclass(frozen=True)
class Try:
    """One attempt. `wrote` is ground truth: bytes of the effect request went out. The rest is in the record."""

    opened_by: str
    released: bool = False
    exposed: bool = False
    nothing_written: bool = False
    transmission: Transmission = Transmission.NONE_PROVEN
    wrote: bool = False

    @property
    def facts(self) -> AttemptFacts:
        return AttemptFacts(exposed=self.exposed, released=self.released)


@dataclass(frozen=True, order=True)
class Worker:
    """`at` is where it is in its run: idle, leased, claimed, released, wrote, nothing, late, answered."""

    at: str = "idle"
    tries: int = -1
    """The index of its attempt."""
    token_current: bool = False


@dataclass(frozen=True)
class Site:
    """A site that honours the key. `items` is ground truth. The key's lifetime runs from the first release; ours ends a
    margin before the site's, and once both are over the site makes a new item of the same request."""

    items: int = 0
    remembers: bool = False
    ours_over: bool = False
    forgotten: bool = False

    def receives(self) -> Site:
        """The effect request with the key."""
        return self if self.remembers else replace(self, items=self.items + 1, remembers=not self.forgotten)

    def receives_without_the_key(self) -> Site:
        return replace(self, items=self.items + 1)


@dataclass(frozen=True)
class World:
    state: State = INITIAL
    tries: tuple[Try, ...] = ()
    uses: int = 0
    """Claims that the approval in force still allows, at most one. More of them at once reach nothing else: where a key
    permits a further attempt, an approval may come at any time."""
    opens: str = "approval"
    """What permits the next attempt: a plain approval, a linked decision, or the provider's key."""
    by_absence: bool = False
    workers: tuple[Worker, ...] = (Worker(), Worker())
    site: Site = Site()


@dataclass(frozen=True)
class Guards:
    """The ledger's guards around a release. All on, but where a test shows what each is for."""

    token: bool = True
    open_attempt: bool = True
    one_per_attempt: bool = True
    one_if_absolute: bool = True
    retry: bool = True
    settle_raises_token: bool = True
    every_write_has_the_key: bool = True
    """The flow declares no write but the effect that could cause it (a declaration that is checked on loading)."""
    lifetime_at_claim: bool = True
    lifetime_at_release: bool = True
    margin: bool = True
    """Our end of the lifetime comes before the site's by more than a release takes to be written and to arrive."""
    key_asked_at_claim: bool = True
    """Whoever opened the operation: after an attempt that may have been sent, the claim asks about the key."""


ALL = Guards()


@cache
def permits(state: State, policy: Policy, tries: tuple[Try, ...], key: bool, ended: bool, absence: bool) -> Permits:
    record = operation(
        state,
        policy,
        attempts=tuple(
            attempt(number, one.transmission, released_at=NOW if one.released else None)
            for number, one in enumerate(tries, start=1)
        ),
    )
    return eligibility(
        record, key=SHOWN if key else None, reconciliation_ended=ended, rejected_by_absence=absence
    ).permits


class Explorer:
    """Successors of a world under one policy."""

    def __init__(self, policy: Policy, guards: Guards = ALL) -> None:
        self.policy = policy
        self.guards = guards

    def successors(self, world: World) -> Iterator[World]:
        yield from self._people(world)
        yield from self._evidence(world)
        yield from self._recovery(world)
        yield from self._time(world)
        for index in range(len(world.workers)):
            yield from self._worker(world, index)

    # -- persons, evidence, recovery --------------------------------------------------------------------------------
    def _people(self, world: World) -> Iterator[World]:
        for event in (Event.APPROVAL_EXPIRED, Event.APPROVAL_REVOKED):
            if (state := moved(world.state, event)) is not None:
                yield replace(world, state=state, uses=0)
        if (state := moved(world.state, Event.APPROVED)) is not None and self._may_approve(world):
            yield replace(world, state=state, uses=1)
        if (state := moved(world.state, Event.REOPENED)) is None or len(world.tries) >= MOST_ATTEMPTS:
            return
        for key, ended in product((False, True), repeat=2):
            by = permits(world.state, self.policy, world.tries, key, ended, world.by_absence)
            opens = {
                Permits.FRESH_APPROVAL: "approval",
                Permits.LINKED_DECISION: "decision",
                Permits.SAME_KEY: None,  # the claim opens it
                Permits.NOTHING: None if self.guards.retry else "approval",
            }[by]
            if opens is not None:
                yield replace(world, state=state, uses=1, opens=opens, by_absence=False)

    def _may_approve(self, world: World) -> bool:
        """Whether the ledger takes a plain approval that opens nothing: before an attempt, or where the key permits."""
        by = permits(world.state, self.policy, world.tries, self._key(world), False, world.by_absence)
        fresh = by is Permits.FRESH_APPROVAL and world.state.dispatch is Dispatch.NOT_STARTED
        return fresh or by is Permits.SAME_KEY or not self.guards.retry

    def _key(self, world: World) -> bool:
        """What can be shown about the key right now."""
        alone = not any(one.exposed for one in world.tries)
        return alone and not (world.site.ours_over and self.guards.lifetime_at_claim)

    def _time(self, world: World) -> Iterator[World]:
        """The key's lifetime, ours and then the site's. Without the margin a request may be on its way meanwhile."""
        if self.policy is not Policy.IDEMPOTENT or not any(one.released for one in world.tries):
            return
        site = world.site
        if not site.ours_over:
            yield replace(world, site=replace(site, ours_over=True))
        elif not site.forgotten and not (self.guards.margin and any(w.at == "released" for w in world.workers)):
            yield replace(world, site=replace(site, forgotten=True, remembers=False))

    def _evidence(self, world: World) -> Iterator[World]:
        for event in SEEN:
            if (state := moved(world.state, event)) is not None:
                for absence in (False, True) if event is Event.SEEN_REJECTED else (False,):
                    yield replace(world, state=state, by_absence=absence)

    def _recovery(self, world: World) -> Iterator[World]:
        if world.state.dispatch is Dispatch.STARTED:
            closed = self._recorded(world, Event.CLOSED)
            assert closed is not None
            yield raised(closed) if self.guards.settle_raises_token else closed

    # -- a worker, which may do its next thing, or sleep (nothing happens), or die ----------------------------------
    def _worker(self, world: World, index: int) -> Iterator[World]:
        worker = world.workers[index]

        def goes(to: World | None, **changes: object) -> Iterator[World]:
            if to is not None:
                workers = list(to.workers)
                workers[index] = replace(workers[index], **changes)  # type: ignore[arg-type]
                yield replace(to, workers=tuple(workers))

        if worker.at != "idle":
            yield from goes(world, at="idle", tries=-1, token_current=False)  # SIGKILL: the record stays as it is
        mine_open = world.state.dispatch is Dispatch.STARTED and worker.tries == len(world.tries) - 1
        match worker.at:
            case "idle":
                if world.state.dispatch is not Dispatch.STARTED:  # a lease may run out at any time
                    yield from goes(raised(world), at="leased", token_current=True)
            case "leased":
                yield from goes(self._claimed(world, worker), at="claimed", tries=len(world.tries))
            case "claimed":
                released = self._released(world, worker, mine_open)
                yield from goes(released, at="released")
            case "released":
                wrote = with_try(world, worker.tries, wrote=True)
                if self.policy is Policy.IDEMPOTENT:
                    wrote = replace(wrote, site=world.site.receives())
                yield from goes(wrote, at="wrote")
                yield from goes(world, at="late")
                if mine_open and (without := self._recorded(world, Event.NOTHING_WRITTEN)) is not None:
                    yield from goes(with_try(without, worker.tries, nothing_written=True), at="nothing")
            case "wrote" if mine_open:
                yield from goes(self._recorded(world, Event.ANSWERED), at="answered")
        may_expose = mine_open and worker.at in ("claimed", "released", "wrote", "answered") and worker.token_current
        if self.policy is Policy.IDEMPOTENT:
            first = worker.tries >= 0 and not world.tries[worker.tries].exposed
            may_expose = may_expose and first and not self.guards.every_write_has_the_key
        if may_expose and (exposed := self._recorded(world, Event.EXPOSED)) is not None:
            left = with_try(exposed, worker.tries, exposed=True)  # recorded before that write leaves
            if self.policy is Policy.IDEMPOTENT:
                left = replace(left, site=world.site.receives_without_the_key())
            yield left
        if mine_open and worker.at in ("claimed", "wrote", "nothing", "late", "answered"):
            yield from goes(self._recorded(world, Event.CLOSED), at="idle", tries=-1, token_current=False)

    def _claimed(self, world: World, worker: Worker) -> World | None:
        if not worker.token_current or world.uses < 1 or len(world.tries) >= MOST_ATTEMPTS:
            return None
        before, opens = world.state, world.opens
        if self.policy is Policy.IDEMPOTENT and self._asks_for_the_key(world):
            by = permits(before, self.policy, world.tries, self._key(world), False, world.by_absence)
            if by is not Permits.SAME_KEY:
                return None
            opens = "key"
            if before.dispatch is Dispatch.COMPLETED:
                reissued = moved(before, Event.REISSUED)
                if reissued is None:
                    return None
                before = reissued
        if (state := moved(before, Event.CLAIMED)) is None:
            return None
        return replace(
            world,
            state=state,
            uses=world.uses - 1,
            tries=(*world.tries, Try(opens)),
            by_absence=False,
            opens="approval",
        )

    def _asks_for_the_key(self, world: World) -> bool:
        if world.state.dispatch is Dispatch.COMPLETED:
            return True
        sent = any(one.transmission is not Transmission.NONE_PROVEN for one in world.tries)
        return sent and self.guards.key_asked_at_claim

    def _released(self, world: World, worker: Worker, mine_open: bool) -> World | None:
        guards = self.guards
        if guards.token and not worker.token_current:
            return None
        if guards.open_attempt and not mine_open:
            return None
        if guards.one_if_absolute and self.policy is Policy.ABSOLUTE and any(one.released for one in world.tries):
            return None
        again = any(one.transmission is not Transmission.NONE_PROVEN for one in world.tries[: worker.tries])
        over = world.site.ours_over and guards.lifetime_at_release
        if self.policy is Policy.IDEMPOTENT and again and over:
            return None
        mine = world.tries[worker.tries]
        if not guards.open_attempt and not mine_open:
            return with_try(world, worker.tries, released=True)
        facts = mine.facts if guards.one_per_attempt else AttemptFacts(exposed=mine.exposed)
        released = self._recorded(world, Event.RELEASED, facts)
        return None if released is None else with_try(released, worker.tries, released=True)

    def _recorded(self, world: World, event: Event, facts: AttemptFacts | None = None) -> World | None:
        """The event on the open attempt, by the tables."""
        mine = len(world.tries) - 1
        state = moved(world.state, event, world.tries[mine].facts if facts is None else facts)
        if state is None or state.transmission is None:
            return None
        return with_try(replace(world, state=state), mine, transmission=state.transmission)


def moved(state: State, event: Event, facts: AttemptFacts | None = None) -> State | None:
    try:
        return _moved(state, event, facts or AttemptFacts())
    except IllegalTransition:
        return None


_moved = cache(apply)


def raised(world: World) -> World:
    """The account's token goes up: nobody's is current any more."""
    return replace(world, workers=tuple(replace(worker, token_current=False) for worker in world.workers))


def with_try(world: World, index: int, **changes: object) -> World:
    tries = list(world.tries)
    tries[index] = replace(tries[index], **changes)  # type: ignore[arg-type]
    return replace(world, tries=tuple(tries))


def settled(policy: Policy, world: World) -> World:
    """The same world, written in one way: the workers are alike, and one that can do nothing more counts as idle. Those
    that sleep before a release or before its first byte are kept. Of a closed attempt that may have been sent nothing
    more is asked than that, except under `absolute`."""
    last = len(world.tries) - 1 if world.state.dispatch is Dispatch.STARTED else None
    workers = sorted(
        Worker()
        if (worker.at == "leased" and not worker.token_current)
        or (worker.at in ("wrote", "nothing", "late", "answered") and worker.tries != last)
        else worker
        for worker in world.workers
    )
    tries = world.tries
    if policy is not Policy.ABSOLUTE:
        tries = tuple(
            replace(one, transmission=Transmission.POSSIBLE, exposed=False, nothing_written=False, wrote=False)
            if index != last and one.transmission is not Transmission.NONE_PROVEN
            else one
            for index, one in enumerate(tries)
        )
    return replace(world, workers=tuple(workers), tries=tries)


@dataclass(frozen=True)
class Explored:
    states: int
    most_releases: int
    breach: str
    """The first breach with the shortest way to it; empty when there is none."""


@cache
def explore(policy: Policy, guards: Guards = ALL) -> Explored:
    explorer = Explorer(policy, guards)
    start = World()
    came_from: dict[World, World | None] = {start: None}
    queue = deque([start])
    most_releases = 0
    while queue:
        world = queue.popleft()
        most_releases = max(most_releases, sum(one.released for one in world.tries))
        if found := breach(policy, world):
            way = []
            step: World | None = world
            while step is not None:
                way.append(f"{step.state} {step.tries} {step.workers}")
                step = came_from[step]
            return Explored(len(came_from), most_releases, found + "\n" + "\n".join(reversed(way)))
        for successor in explorer.successors(world):
            after = settled(policy, successor)
            if after not in came_from:
                came_from[after] = world
                queue.append(after)
    return Explored(len(came_from), most_releases, "")


def breach(policy: Policy, world: World) -> str:
    """What must never be, in this world."""
    tries = world.tries
    if rule := illegal(world.state):
        return f"an illegal state: {rule}"
    if world.site.items > 1:
        return "idempotent: the site has two items"
    if policy is Policy.ABSOLUTE:
        if sum(one.released for one in tries) > 1:
            return "absolute: a second release"
        if sum(one.wrote or one.exposed for one in tries) > 1:
            return "absolute: two attempts let something out that could cause the effect"
    for index, one in enumerate(tries):
        may_have_been_sent = any(before.transmission is not Transmission.NONE_PROVEN for before in tries[:index])
        allowed = {Policy.REAUTHORIZE: ("decision",), Policy.IDEMPOTENT: ("key",), Policy.ABSOLUTE: ()}[policy]
        if may_have_been_sent and one.opened_by not in allowed:
            return f"{policy}: an attempt after one that may have been sent, opened by {one.opened_by}"
        closed = index < len(tries) - 1 or world.state.dispatch is not Dispatch.STARTED
        if closed and one.transmission is Transmission.NONE_PROVEN:
            if one.wrote or one.exposed:
                return "proven not sent, and it was"
            if one.released and not one.nothing_written:
                return "released, and closed as proven not sent without proof"
    if world.state.dispatch is Dispatch.COMPLETED and world.state.outcome is Outcome.UNOBSERVED:
        last = tries[-1]
        if last.released and not last.nothing_written:
            return "released, and ended unobserved"
    able = [w for w in world.workers if w.at == "claimed" and w.token_current and w.tries == len(tries) - 1]
    if world.state.dispatch is Dispatch.STARTED and len(able) > 1:
        return "two workers may release"
    return ""


@pytest.mark.parametrize(
    ("policy", "releases"), [(Policy.ABSOLUTE, 1), (Policy.REAUTHORIZE, 3), (Policy.IDEMPOTENT, 3)]
)
def test_no_path_leads_to_a_second_release(policy: Policy, releases: int, capsys: pytest.CaptureFixture[str]) -> None:
    explored = explore(policy)
    with capsys.disabled():
        sys.stdout.write(
            f"\n{policy.value}: {explored.states:,} states explored, two workers, up to {MOST_ATTEMPTS} attempts\n"
        )
    assert not explored.breach, explored.breach
    # Not because nothing happens: as many releases as the policy allows are reached.
    assert explored.most_releases == releases


@pytest.mark.parametrize(
    ("policy", "guards", "what"),
    [
        pytest.param(
            Policy.ABSOLUTE,
            Guards(retry=False, one_if_absolute=False),
            "absolute: ",
            id="absolute: neither the retry decision nor the constraint",
        ),
        pytest.param(Policy.REAUTHORIZE, Guards(retry=False), "opened by approval", id="no retry decision"),
        pytest.param(
            Policy.IDEMPOTENT,
            Guards(retry=False, key_asked_at_claim=False),
            "opened by approval",
            id="neither the retry decision nor the question for the key",
        ),
        pytest.param(
            Policy.IDEMPOTENT,
            Guards(lifetime_at_claim=False, lifetime_at_release=False),
            "two items",
            id="the key's lifetime is not asked about",
        ),
        pytest.param(
            Policy.IDEMPOTENT,
            Guards(lifetime_at_release=False),
            "two items",
            id="the key's lifetime is asked about at the claim alone",
        ),
        pytest.param(Policy.IDEMPOTENT, Guards(margin=False), "two items", id="no margin before the lifetime's end"),
        pytest.param(
            Policy.IDEMPOTENT, Guards(every_write_has_the_key=False), "two items", id="a write without the key"
        ),
        pytest.param(
            Policy.ABSOLUTE,
            Guards(token=False, open_attempt=False),
            "without proof",
            id="a sleeper wakes after its attempt was settled",
        ),
        pytest.param(
            Policy.ABSOLUTE,
            Guards(open_attempt=False, settle_raises_token=False),
            "without proof",
            id="settling leaves the token",
        ),
    ],
)
def test_the_exploration_finds_what_a_missing_guard_lets_through(policy: Policy, guards: Guards, what: str) -> None:
    assert what in explore(policy, guards).breach.partition("\n")[0]


@pytest.mark.parametrize(
    ("policy", "guards"),
    [
        pytest.param(Policy.ABSOLUTE, Guards(one_if_absolute=False), id="retry decision alone"),
        pytest.param(Policy.ABSOLUTE, Guards(open_attempt=False), id="token alone"),
        pytest.param(Policy.ABSOLUTE, Guards(token=False), id="open attempt alone"),
        pytest.param(Policy.IDEMPOTENT, Guards(retry=False), id="the question for the key at the claim alone"),
    ],
)
def test_guards_that_overlap_hold_alone(policy: Policy, guards: Guards) -> None:
    assert explore(policy, guards).breach == ""
