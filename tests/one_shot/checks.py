"""What every run that did not publish must leave behind, whatever stopped it: a record that fits itself, a receipt on
disk that says the same, and nothing of the payload in either.
"""

from __future__ import annotations

from pathlib import Path

from executor.errors import Exit
from executor.model.admission import Refusal
from executor.model.ending import code
from executor.model.operation import Operation
from executor.model.reasons import Halt, NotSent, Reason
from executor.model.transitions import Dispatch, Outcome, Transmission
from executor.receipts import Receipt
from executor.receipts.guidance import ActionProhibited, Standing
from executor.service import Ended, Executor
from playground.truth import Truth

ODD = f"{Path(__file__).with_name('odd_flows.py')}:"
"""Put in front of a class of `odd_flows`, a reference to that flow."""


def odd(name: str) -> str:
    return ODD + name


async def nothing_dispatched(
    executor: Executor, ended: Ended, truth: Truth, reason: Halt | Refusal, *, exit: Exit, published: int = 0
) -> None:
    """Stopped before the claim: the site has what it had, and the approval is not used."""
    assert truth.publish_count() == published
    assert ended.exit is exit
    state = ended.operation.state
    assert (state.dispatch, state.transmission, state.outcome) == (Dispatch.NOT_STARTED, None, Outcome.UNOBSERVED)
    assert ended.operation.attempts == ()
    standing = Standing.HALTED if ended.ending is not None else Standing.REFUSED
    await _told(executor, ended.operation, ended.receipt, reason, standing)
    assert ended.receipt.times.dispatch_started is None
    assert ended.receipt.attempted.dispatches == 0
    if ended.ending is not None:
        assert ended.ending.reason == code(reason)
        assert ended.ending.attempt is None
        assert ended.ending.effect is None


async def proven_not_sent(executor: Executor, ended: Ended, truth: Truth, reason: NotSent) -> None:
    """Stopped after the claim: nothing left, and the record says so as a fact (C5)."""
    assert truth.publish_count() == 0
    assert ended.exit is Exit.NOT_SENT
    state = ended.operation.state
    assert (state.dispatch, state.transmission, state.outcome) == (
        Dispatch.COMPLETED,
        Transmission.NONE_PROVEN,
        Outcome.UNOBSERVED,
    )
    assert ended.ending is not None
    assert ended.ending.reason == code(reason)
    assert ended.ending.step == 17
    assert not any(write.kind == "effect" for write in ended.ending.left)
    attempt = ended.operation.attempt
    assert attempt is not None
    assert attempt.closed_at is not None
    assert attempt.released_at is None
    assert attempt.reason == reason.value
    await _told(executor, ended.operation, ended.receipt, reason, Standing.NOT_SENT)
    assert ActionProhibited.REPORT_AS_PUBLISHED in {one.action for one in ended.receipt.prohibited}


async def _told(executor: Executor, operation: Operation, receipt: Receipt, reason: Reason, standing: Standing) -> None:
    """The receipt was written, says why, and holds nothing of the payload; the ledger fits itself."""
    assert receipt.standing is standing
    assert receipt.reason is not None
    assert receipt.reason.code == code(reason)
    assert receipt.reason.sentence == reason.sentence
    folder = executor.settings.receipts_folder
    written = (folder / f"{operation.id}.json").read_text(encoding="utf-8")
    assert Receipt.model_validate_json(written) == receipt
    text = (folder / f"{operation.id}.txt").read_text(encoding="utf-8")
    assert reason.sentence in " ".join(text.split())
    assert_without_payload(written + text, operation)
    verified = await executor.ledger.verify_all()
    assert verified.flaws == ()


def assert_without_payload(text: str, operation: Operation) -> None:
    for value in operation.intent.payload.values():
        for line in str(value).splitlines():
            assert line.strip() not in text, "something of the payload is in it"
