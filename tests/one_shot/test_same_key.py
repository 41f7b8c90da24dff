"""Another attempt under a provider's key: what the site's own record holds afterwards, and what ours says (B3, B5).

The site is the playground's composer with a key. It may keep its promise about keys or only claim to.
"""

from __future__ import annotations

import asyncio
import signal

import pytest
from checks import odd, proven_not_sent
from child import child, eventually
from child import let_the_leases_run_out as time_passes
from desk import PERSON, Desk

from executor.errors import Exit
from executor.ledger.ids import new_id
from executor.ledger.ledger import NotEligible
from executor.model.admission import Refusal, refusal
from executor.model.ending import code
from executor.model.operation import Actor, Attempt, FlowBinding, Operation
from executor.model.reasons import Halt, NotSent
from executor.model.retry import Permits, RetryReason
from executor.model.transitions import Dispatch, Outcome, Transmission
from executor.one_shot.run import StepEvent
from executor.receipts.guidance import ActionPermitted, ActionProhibited
from executor.service import Executor
from flows.playground_keyed import PlaygroundKeyed
from playground.faults import Fault
from playground.keyed import Keys, Terms

pytestmark = pytest.mark.browser

FLOW = "playground-keyed"
TEXT = {"title": "Office closed on Friday", "body": "The office is closed on Friday.\nWe are back on Monday."}


@pytest.fixture
def keys(desk: Desk) -> Keys:
    memory = Keys(desk.playground.truth.path)
    memory.forget_all()
    return memory


def sent(desk: Desk) -> int:
    """How many publishes have reached the site."""
    return len(desk.playground.truth.requests(writes_only=True, path_prefix="/keyed/items"))


async def lift_all(executor: Executor) -> None:
    for stop in await executor.stops():
        await executor.lift(stop.id, by=PERSON, why="looked: nothing there")


async def proposed(desk: Desk, executor: Executor, flow: str = FLOW, *, attempts: int = 2) -> Operation:
    made = await executor.propose(
        flow=flow, destination=desk.site, account="editor", payload=TEXT, task=new_id("task"), by=PERSON
    )
    found = made.operation
    await executor.approve(found.id, by=PERSON, fingerprint=found.fingerprint, attempts=attempts)
    return found


async def unknown(desk: Desk, executor: Executor, flow: str = FLOW, *, attempts: int = 2) -> Operation:
    """An operation whose first attempt is released and never answered, as the ledger has it after such a run. Nothing
    reaches the site."""
    found = await proposed(desk, executor, flow, attempts=attempts)
    ledger, run, contract = executor.ledger, Actor.parse("executor:earlier"), PlaygroundKeyed.contract
    binding = (await executor.operation(found.id)).approval
    assert binding is not None
    lease = await ledger.lease(found.account_key, holder="earlier", ttl_s=60)
    claimed = await ledger.claim(
        found.id, attempt=new_id("at"), lease=lease, flow=binding.flow, by=run, key=contract.key, data={"baseline": []}
    )
    assert isinstance(claimed, Attempt)
    assert isinstance(await ledger.release(claimed.id, by=run, data={"from_page_only": []}), Attempt)
    await ledger.close(claimed.id, by=run, reason="no_answer", why="")
    await ledger.surrender(lease)
    return await executor.operation(found.id)


async def test_an_attempt_that_the_site_never_saw_is_made_good_by_the_next(desk: Desk, keys: Keys) -> None:
    truth = desk.playground.truth
    desk.overrides["verify_delays_s"] = ()  # a slow machine would else see in time that it is absent
    truth.inject(Fault.RESET_BEFORE, path_prefix="/keyed")
    async with desk.executor() as executor:
        operation = await proposed(desk, executor, attempts=1)
        first = await executor.run(operation.id, by=PERSON)
        assert (first.exit, first.operation.state.outcome) == (Exit.UNKNOWN, Outcome.UNKNOWN)
        assert (truth.publish_count(), sent(desk)) == (0, 1)
        told = first.receipt
        assert told.retry.permits is Permits.SAME_KEY
        assert told.retry.until is not None
        # The approval allowed one attempt: the receipt asks for another, and nothing of the usual warnings is gone.
        may, must_not = [one.action for one in told.permitted], [one.action for one in told.prohibited]
        assert may[-1] is ActionPermitted.APPROVE_AND_RUN_WITH_KEY
        assert must_not[:2] == [ActionProhibited.SUBMIT_WITHOUT_KEY, ActionProhibited.SUBMIT_BY_HAND]

        # The circuit breaker holds until a person has looked; then the approval must have a use left.
        refused = await executor.run(operation.id, by=PERSON)
        assert refused.refused is not None
        assert refused.refused.reason is Refusal.STOPPED
        await lift_all(executor)
        refused = await executor.run(operation.id, by=PERSON)
        assert (refused.exit, refused.ending) == (Exit.REFUSED, None)
        assert refused.refused is not None
        assert refused.refused.reason is Refusal.APPROVAL_SPENT
        assert refused.receipt.reason is not None
        assert refused.receipt.reason.code == "unsure:no_answer"
        await executor.approve(operation.id, by=PERSON, fingerprint=operation.fingerprint)
        assert (await executor.operation(operation.id)).state.dispatch is Dispatch.COMPLETED
        assert ActionPermitted.RUN_AGAIN_WITH_KEY in [
            one.action for one in (await executor.receipt(operation.id)).permitted
        ]
        second = await executor.run(operation.id, by=PERSON)
        assert (second.exit, second.operation.state.outcome) == (Exit.SUCCEEDED, Outcome.SUCCEEDED)
        assert (await executor.ledger.verify_all()).flaws == ()
        third = await executor.run(operation.id, by=PERSON)
        assert (third.exit, sent(desk)) == (Exit.REFUSED, 2)
        events = await executor.events(operation.id)

    # Ground truth: one notice, made with the key that both requests carried.
    (item,) = truth.published()
    remembered = keys.last("editor", operation.provider_key or "")
    assert remembered is not None
    assert remembered.item_id == item.id
    moves = ("approved", "claimed", "reissued", "released", "closed")
    kinds = [event.kind for event in events if event.kind in moves]
    assert kinds == [*moves[:2], *moves[3:], "approved", "reissued", "claimed", *moves[3:]]
    made = second.receipt.attempted.attempts
    assert [(one.number, one.transmission) for one in made] == [(1, Transmission.POSSIBLE), (2, Transmission.ANSWERED)]
    assert second.receipt.attempted.dispatches == 2
    assert second.receipt.observed.item == str(item.id)
    text = second.receipt_paths.text.read_text()
    assert all(one.id in text for one in made)


async def test_what_the_earlier_attempt_brought_about_settles_it_and_nothing_is_sent(desk: Desk, keys: Keys) -> None:
    truth = desk.playground.truth
    desk.overrides["verify_delays_s"] = ()
    truth.inject(Fault.RESET_AFTER, path_prefix="/keyed")
    async with desk.executor() as executor:
        operation = await proposed(desk, executor)
        first = await executor.run(operation.id, by=PERSON)
        assert (first.exit, truth.publish_count()) == (Exit.UNKNOWN, 1)
        await lift_all(executor)
        second = await executor.run(operation.id, by=PERSON)
        assert (await executor.ledger.verify_all()).flaws == ()
    assert (truth.publish_count(), sent(desk)) == (1, 1)
    assert (second.exit, second.operation.state.outcome) == (Exit.SUCCEEDED, Outcome.SUCCEEDED)
    assert second.ending is not None
    assert second.ending.reason == code(Halt.SETTLED_BY_LOOKING)
    assert len(second.operation.attempts) == 1
    assert second.receipt.observed.item == str(truth.published()[0].id)
    assert second.receipt.reason is not None
    assert second.receipt.reason.code == "verdict:exact_item_seen"


@pytest.mark.parametrize("honours", [True, False], ids=["honoured", "only claimed"])
async def test_a_first_request_that_arrives_after_the_look(honours: bool, desk: Desk, keys: Keys) -> None:
    """It was under way all the time. A site that keeps its word has one notice; of one that does not there are two, and
    the receipt says so."""
    truth = desk.playground.truth
    keys.arrange(Terms(honours=honours))

    def arrives(event: StepEvent) -> None:
        if (event.number, event.moment) == (8, "done"):
            item = truth.create(account="editor", **TEXT, state="published", variant="keyed")
            keys.keep("editor", operation.provider_key or "", _fields_sha256(), item.id)

    async with desk.executor(arrives) as executor:
        operation = await unknown(desk, executor)
        ended = await executor.run(operation.id, by=PERSON)
    assert sent(desk) == 1
    assert truth.publish_count() == (1 if honours else 2)
    assert (ended.exit, ended.operation.state.outcome) == (Exit.SUCCEEDED, Outcome.SUCCEEDED)
    discrepancy = ended.receipt.observed.discrepancy
    assert (discrepancy.value if discrepancy else None) == (None if honours else "duplicate")
    assert (ended.receipt.ownership.owner is None) == honours
    if not honours:
        assert "needs a review" in ended.receipt.verdict


def _fields_sha256() -> str:
    import hashlib
    import json

    return hashlib.sha256(json.dumps([TEXT["title"], TEXT["body"]]).encode()).hexdigest()


async def test_a_site_that_refuses_the_same_key_says_nothing_about_the_first_request(desk: Desk, keys: Keys) -> None:
    """It knows the key with other fields, so it stores nothing now. The first request is as open as before."""
    async with desk.executor() as executor:
        operation = await unknown(desk, executor)
        item = desk.playground.truth.create(account="editor", title="Other", body="", state="queued", variant="keyed")
        keys.keep("editor", operation.provider_key or "", "0" * 64, item.id)
        desk.playground.truth.delete(item.id, 0)
        ended = await executor.run(operation.id, by=PERSON)
    assert (desk.playground.truth.publish_count(), sent(desk)) == (0, 1)
    assert ended.ending is not None
    assert ended.ending.answer is not None
    assert ended.ending.answer.status == 409
    assert (ended.exit, ended.operation.state.outcome) == (Exit.UNKNOWN, Outcome.UNKNOWN)


async def test_a_key_whose_lifetime_is_over_is_not_sent_again(desk: Desk, keys: Keys) -> None:
    desk.overrides["verify_delays_s"] = ()
    async with desk.executor() as executor:
        operation = await proposed(desk, executor, odd("KeyedBriefly"))
        desk.playground.truth.inject(Fault.RESET_BEFORE, path_prefix="/keyed")
        assert (await executor.run(operation.id, by=PERSON)).exit is Exit.UNKNOWN
        await lift_all(executor)
        refused = await executor.run(operation.id, by=PERSON)
        with pytest.raises(NotEligible, match="key_lifetime_over"):
            await executor.approve(operation.id, by=PERSON, fingerprint=operation.fingerprint)
        events = await executor.events(operation.id)
    assert refused.refused is not None
    assert (refused.refused.reason, refused.refused.retry) == (Refusal.KEY_NOT_SAFE, RetryReason.KEY_LIFETIME_OVER)
    assert events[-2].data["retry"] == "key_lifetime_over"
    assert (refused.exit, sent(desk)) == (Exit.REFUSED, 1)
    assert refused.receipt.retry.permits is Permits.NOTHING
    assert ActionProhibited.SUBMIT_AGAIN in [one.action for one in refused.receipt.prohibited]


async def test_a_request_without_the_operations_key_does_not_leave(desk: Desk, keys: Keys) -> None:
    async with desk.executor() as executor:
        operation = await proposed(desk, executor, odd("KeyedByThePage"))
        ended = await executor.run(operation.id, by=PERSON)
        await proven_not_sent(executor, ended, desk.playground.truth, NotSent.KEY_DIFFERS)
        assert sent(desk) == 0
        # Nothing was ever sent under the key, so a run more is a matter of the approval alone.
        assert ended.receipt.retry.permits is Permits.SAME_KEY
        found = (await executor.operation(operation.id)).approval
        assert found is not None
        seen = await executor.ledger.admission(operation.id, found.flow, key=PlaygroundKeyed.contract.key)
        assert refusal(seen) is None


async def test_code_that_has_changed_since_never_repeats_it(desk: Desk, keys: Keys) -> None:
    """Not by a run, and not under an approval of the new code. No browser is opened."""
    async with desk.executor() as executor:
        operation = await unknown(desk, executor)
        key, approval = PlaygroundKeyed.contract.key, (await executor.operation(operation.id)).approval
        assert approval is not None
        assert refusal(await executor.ledger.admission(operation.id, approval.flow, key=key)) is None
        changed = FlowBinding(name=FLOW, version=approval.flow.version, code_digest="0" * 64)
        refused = refusal(await executor.ledger.admission(operation.id, changed, key=key))
        assert refused is not None
        assert refused.retry is RetryReason.KEY_TERMS_CHANGED
        with pytest.raises(NotEligible, match="key_terms_changed"):
            await executor.ledger.approve(
                operation.id, by=PERSON, flow=changed, fingerprint=operation.fingerprint, valid_for_s=60, key=key
            )


async def test_two_processes_want_to_repeat_it_and_one_does(desk: Desk, keys: Keys) -> None:
    async with desk.executor() as executor:
        operation = await unknown(desk, executor, attempts=5)
    with (
        child(desk.settings, operation.id, sent="SIGKILL") as one,
        child(desk.settings, operation.id, sent="SIGKILL") as other,
    ):
        codes = sorted(
            told["exit"]
            for _, told in await asyncio.gather(asyncio.to_thread(one.ended), asyncio.to_thread(other.ended))
        )
    truth = desk.playground.truth
    assert (truth.publish_count(), sent(desk)) == (1, 1)
    assert codes[0] == Exit.SUCCEEDED
    assert codes[1] in (Exit.REFUSED, Exit.UNKNOWN, Exit.SUCCEEDED)
    async with desk.executor() as executor:
        found = await executor.operation(operation.id)
        assert (await executor.ledger.verify_all()).flaws == ()
    assert (len(found.attempts), found.state.outcome) == (2, Outcome.SUCCEEDED)


KILLED = {
    (8, "done"): (Transmission.NONE_PROVEN, Outcome.UNKNOWN, 0),
    (10, "recorded"): (Transmission.NONE_PROVEN, Outcome.UNKNOWN, 0),
    (11, "released"): (Transmission.POSSIBLE, Outcome.UNKNOWN, 0),
    (11, "done"): (Transmission.POSSIBLE, Outcome.UNKNOWN, 1),
    (12, "answered"): (Transmission.ANSWERED, Outcome.SUCCEEDED, 1),
    (16, "done"): (Transmission.ANSWERED, Outcome.SUCCEEDED, 1),
}
"""After each commit of a second attempt: its transmission, the outcome, and what the site has."""


@pytest.mark.parametrize("at", KILLED, ids=lambda at: f"{at[0]}-{at[1]}")
async def test_killed_in_the_second_attempt(at: tuple[int, str], desk: Desk, keys: Keys) -> None:
    truth = desk.playground.truth
    transmission, outcome, published = KILLED[at]
    async with desk.executor() as executor:
        operation = await unknown(desk, executor, attempts=3)
    with child(desk.settings, operation.id, at, sent="SIGKILL") as killed:
        assert killed.ended() == (-signal.SIGKILL, {})
    if published:
        eventually(lambda: truth.publish_count() == 1)
    time_passes(desk)
    async with desk.executor() as executor:
        found = await executor.operation(operation.id)
        assert (found.state.dispatch, len(found.attempts)) == (Dispatch.COMPLETED, 2)
        assert (found.state.transmission, found.state.outcome) == (transmission, outcome)
        assert truth.publish_count() == published
        receipt = await executor.receipt(operation.id)
        assert len(receipt.attempted.attempts) == 2
        assert receipt.retry.permits is (Permits.SAME_KEY if outcome is Outcome.UNKNOWN else Permits.NOTHING)
        if at in ((8, "done"), (11, "done")):
            await lift_all(executor)
            ended = await executor.run(operation.id, by=PERSON)
            assert (ended.exit, truth.publish_count()) == (Exit.SUCCEEDED, 1)
            # The notice that was there settled it; where there was none, a third attempt made it.
            assert len(ended.operation.attempts) == (2 if published else 3)
        assert (await executor.ledger.verify_all()).flaws == ()
