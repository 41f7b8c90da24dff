"""The verdict: examples of each rule, then the rules themselves over generated evidence (A7, D4-D6, D8)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from executor.model.transitions import Outcome, Transmission
from executor.model.verdict import Discrepancy, Guarantee, Look, Reading, Verdict, VerdictReason, verdict
from flows.effect import Says
from flows.observations import CouldNotLook, Found, Item, ItemState, NoLook, NotFound, Partial, Strength

ME = "editor"
GUARANTEE = Guarantee(view="published", window_s=30)
ANSWERED, POSSIBLE = Transmission.ANSWERED, Transmission.POSSIBLE


def item(name: str = "7", **changes: Any) -> Item:
    return replace(Item(id=name, state=ItemState.PUBLISHED, strength=Strength.EXACT_ITEM, account=ME), **changes)


def found(*items: Item, view: str = "published", after_s: float = 60) -> Look:
    seen = Found(items=items, scope="all", complete=True)
    return Look(view=view, observation=seen, after_s=after_s, evidence=tuple(f"ev-{one.id}" for one in items))


def absent(view: str = "published", after_s: float = 60, complete: bool = True) -> Look:
    return Look(view=view, observation=NotFound(scope="all", complete=complete), after_s=after_s, evidence=("ev-no",))


BLIND = Look(view="published", observation=CouldNotLook(reason=NoLook.SIGNED_OUT), after_s=60)


def reading(says: Says, name: str | None = None) -> Reading:
    return Reading(says=says, clause="201 created", item=name, evidence=("ev-answer",))


def judge(
    *looks: Look,
    says: Reading | None = None,
    baseline: frozenset[str] | None = frozenset(("1", "2")),
    transmission: Transmission | None = None,
    guarantee: Guarantee | None = GUARANTEE,
) -> Verdict:
    judged = verdict(
        transmission=transmission or (POSSIBLE if says is None else ANSWERED),
        reading=says,
        looks=looks,
        baseline=baseline,
        account=ME,
        guarantee=guarantee,
    )
    assert judged is not None
    return judged


def told(judged: Verdict) -> tuple[Outcome, VerdictReason, Discrepancy | None]:
    return judged.outcome, judged.reason, judged.discrepancy


DONE, ACCEPTED, NOT_APPLIED = reading(Says.DONE, "7"), reading(Says.ACCEPTED), reading(Says.NOT_APPLIED)
UNKNOWN = Outcome.UNKNOWN
CONTRADICTION = VerdictReason.CONTRADICTION
WHY = VerdictReason


class TestAnswerOfDone:
    def test_with_the_providers_id_is_success(self) -> None:
        judged = judge(says=DONE)
        assert told(judged) == (Outcome.SUCCEEDED, WHY.PROVIDER_ID_IN_ANSWER, None)
        assert (judged.item, judged.evidence) == ("7", ("ev-answer",))

    def test_without_an_id_is_judged_by_looking(self) -> None:
        assert told(judge(says=reading(Says.DONE))) == (UNKNOWN, WHY.NO_EVIDENCE, None)
        assert judge(found(item("9")), says=reading(Says.DONE)).item == "9"

    @pytest.mark.parametrize(
        ("looks", "discrepancy"),
        [
            ((found(item("9")),), Discrepancy.ANSWER_AND_VIEW_DIFFER),
            ((found(item("9", state=ItemState.QUEUED)),), Discrepancy.ANSWER_AND_VIEW_DIFFER),
            ((absent(),), Discrepancy.DONE_BUT_ABSENT),
            ((found(item("7", state=ItemState.DRAFT)),), Discrepancy.ANSWER_AND_VIEW_DIFFER),
            ((found(item("7", state=ItemState.SCHEDULED)),), Discrepancy.ANSWER_AND_VIEW_DIFFER),
        ],
    )
    def test_against_a_view_is_a_contradiction(self, looks: tuple[Look, ...], discrepancy: Discrepancy) -> None:
        assert told(judge(*looks, says=DONE)) == (UNKNOWN, CONTRADICTION, discrepancy)

    def test_naming_an_older_item_is_a_contradiction(self) -> None:
        for looks in ((), (found(item("1")),)):
            judged = judge(*looks, says=reading(Says.DONE, "1"))
            assert told(judged) == (UNKNOWN, CONTRADICTION, Discrepancy.NOT_NEW)

    def test_seen_unfinished_first_and_published_later_is_success(self) -> None:
        looks = (found(item("7", state=ItemState.DRAFT)), found(item("7")))
        assert told(judge(*looks, says=DONE)) == (Outcome.SUCCEEDED, WHY.PROVIDER_ID_IN_ANSWER, None)

    def test_a_second_new_item_is_reported_beside_it(self) -> None:
        for other in (item("8"), item("8", state=ItemState.QUEUED)):
            judged = judge(found(item("7"), other), says=DONE)
            assert told(judged) == (Outcome.SUCCEEDED, WHY.PROVIDER_ID_IN_ANSWER, Discrepancy.DUPLICATE)

    def test_other_content_is_a_contradiction(self) -> None:
        """What was approved is not what is there: the text was cut, or changed on its way in."""
        judged = judge(found(item("7", strength=Strength.PARTIAL)), says=DONE)
        assert told(judged) == (UNKNOWN, CONTRADICTION, Discrepancy.CONTENT_DIFFERS)

    def test_other_content_in_one_view_is_reported_beside_the_exact_item_in_another(self) -> None:
        judged = judge(found(item("7", strength=Strength.PARTIAL)), found(item("7")), says=DONE)
        assert told(judged) == (Outcome.SUCCEEDED, WHY.PROVIDER_ID_IN_ANSWER, Discrepancy.CONTENT_DIFFERS)

    def test_a_title_alone_says_nothing_about_the_content(self) -> None:
        judged = judge(found(item("7", strength=Strength.TITLE_ONLY)), says=DONE)
        assert told(judged) == (Outcome.SUCCEEDED, WHY.PROVIDER_ID_IN_ANSWER, None)

    def test_that_was_not_read_whole_is_not_read_at_all(self) -> None:
        assert judge(says=DONE, transmission=POSSIBLE).outcome is UNKNOWN
        assert judge(says=NOT_APPLIED, transmission=POSSIBLE).outcome is UNKNOWN


class TestAnswerOfAccepted:
    def test_is_not_success(self) -> None:
        assert told(judge(says=ACCEPTED)) == (Outcome.ACCEPTED, WHY.ACCEPTED_BY_ANSWER, None)
        assert told(judge(absent(), says=ACCEPTED)) == (Outcome.ACCEPTED, WHY.ACCEPTED_BY_ANSWER, None)

    def test_the_item_seen_is(self) -> None:
        assert told(judge(found(item("7")), says=ACCEPTED)) == (Outcome.SUCCEEDED, WHY.EXACT_ITEM_SEEN, None)
        assert judge(found(item("7")), says=reading(Says.ACCEPTED, "7")).outcome is Outcome.SUCCEEDED

    def test_another_item_than_the_one_named_is_not(self) -> None:
        judged = judge(found(item("9")), says=reading(Says.ACCEPTED, "7"))
        assert told(judged) == (Outcome.ACCEPTED, WHY.ACCEPTED_BY_ANSWER, Discrepancy.ANSWER_AND_VIEW_DIFFER)

    def test_other_content_is_reported_beside_it(self) -> None:
        waiting = item("7", strength=Strength.PARTIAL, state=ItemState.QUEUED)
        judged = judge(found(waiting), says=reading(Says.ACCEPTED, "7"))
        assert told(judged) == (Outcome.ACCEPTED, WHY.ACCEPTED_BY_ANSWER, Discrepancy.CONTENT_DIFFERS)

    def test_two_items_are_not(self) -> None:
        judged = judge(found(item("7"), item("8")), says=ACCEPTED)
        assert told(judged) == (Outcome.ACCEPTED, WHY.ACCEPTED_BY_ANSWER, Discrepancy.DUPLICATE)


class TestAnswerOfNotApplied:
    def test_rejects_by_its_clause(self) -> None:
        judged = judge(absent(), says=NOT_APPLIED)
        assert told(judged) == (Outcome.REJECTED, WHY.NOT_APPLIED_BY_CLAUSE, None)
        assert "201 created" in judged.why

    @pytest.mark.parametrize("state", [ItemState.PUBLISHED, ItemState.QUEUED, ItemState.PRIVATE, ItemState.OTHER])
    def test_against_a_new_item_is_a_contradiction(self, state: ItemState) -> None:
        judged = judge(found(item("9", state=state)), says=NOT_APPLIED)
        assert told(judged) == (UNKNOWN, CONTRADICTION, Discrepancy.NOT_APPLIED_BUT_SEEN)
        assert judged.evidence == ("ev-answer", "ev-9")

    def test_a_draft_that_prepare_left_is_no_contradiction(self) -> None:
        assert judge(found(item("9", state=ItemState.DRAFT)), says=NOT_APPLIED).outcome is Outcome.REJECTED


class TestLooks:
    def test_one_new_exact_item_is_success(self) -> None:
        judged = judge(found(item("1"), item("9")))
        assert told(judged) == (Outcome.SUCCEEDED, WHY.EXACT_ITEM_SEEN, None)
        assert judged.item == "9"

    @pytest.mark.parametrize(
        ("looks", "told_so"),
        [
            ((), (UNKNOWN, WHY.NO_EVIDENCE, None)),
            ((BLIND,), (UNKNOWN, WHY.COULD_NOT_LOOK, None)),
            ((BLIND, absent(complete=False)), (UNKNOWN, WHY.ABSENCE_WITHOUT_GUARANTEE, None)),
            ((absent(view="search"),), (UNKNOWN, WHY.ABSENCE_WITHOUT_GUARANTEE, None)),
            ((absent(after_s=29.9),), (UNKNOWN, WHY.ABSENCE_WITHOUT_GUARANTEE, None)),
            ((absent(after_s=float("nan")),), (UNKNOWN, WHY.ABSENCE_WITHOUT_GUARANTEE, None)),
            ((absent(after_s=30),), (Outcome.REJECTED, WHY.ABSENT_UNDER_GUARANTEE, None)),
            ((found(item("1"), view="search"),), (UNKNOWN, WHY.ABSENCE_WITHOUT_GUARANTEE, None)),
            ((found(item("1"), after_s=29.9),), (UNKNOWN, WHY.ABSENCE_WITHOUT_GUARANTEE, None)),
            ((found(item("1"), after_s=float("nan")),), (UNKNOWN, WHY.ABSENCE_WITHOUT_GUARANTEE, None)),
            ((found(item("1")),), (Outcome.REJECTED, WHY.ABSENT_UNDER_GUARANTEE, None)),
            ((found(item("9", strength=Strength.TITLE_ONLY)),), (UNKNOWN, WHY.WEAK_EVIDENCE_ONLY, None)),
            ((found(item("9", account="bob")),), (UNKNOWN, WHY.WEAK_EVIDENCE_ONLY, None)),
            ((found(item("9", account=None)),), (UNKNOWN, WHY.WEAK_EVIDENCE_ONLY, None)),
            ((found(item("8"), item("9")),), (UNKNOWN, CONTRADICTION, Discrepancy.DUPLICATE)),
            ((found(item("8")), found(item("9"))), (UNKNOWN, CONTRADICTION, Discrepancy.DUPLICATE)),
            ((found(item("8"), item("9", state=ItemState.QUEUED)),), (UNKNOWN, CONTRADICTION, Discrepancy.DUPLICATE)),
            ((found(item("9")), absent()), (UNKNOWN, CONTRADICTION, Discrepancy.SEEN_AND_ABSENT)),
            ((absent(), found(item("9"))), (UNKNOWN, CONTRADICTION, Discrepancy.SEEN_AND_ABSENT)),
            ((found(item("9", state=ItemState.QUEUED)), absent()), (Outcome.ACCEPTED, WHY.NOT_FINAL_STATE_SEEN, None)),
            ((found(item("9", state=ItemState.SCHEDULED)),), (Outcome.ACCEPTED, WHY.NOT_FINAL_STATE_SEEN, None)),
            ((found(item("9", state=ItemState.PRIVATE)), absent()), (UNKNOWN, WHY.NOT_FINAL_STATE_SEEN, None)),
            ((found(item("9", state=ItemState.DRAFT)), absent()), (Outcome.REJECTED, WHY.ABSENT_UNDER_GUARANTEE, None)),
            ((found(item("9", strength=Strength.PARTIAL)), absent()), (UNKNOWN, WHY.WEAK_EVIDENCE_ONLY, None)),
            (
                (found(item("1", strength=Strength.PARTIAL)), absent()),
                (Outcome.REJECTED, WHY.ABSENT_UNDER_GUARANTEE, None),
            ),
        ],
    )
    def test_without_an_answer(self, looks: tuple[Look, ...], told_so: Any) -> None:
        assert told(judge(*looks)) == told_so

    def test_without_a_baseline_no_item_is_known_to_be_new(self) -> None:
        assert told(judge(found(item("9")), baseline=None)) == (UNKNOWN, WHY.NOT_KNOWN_TO_BE_NEW, None)
        assert told(judge(found(item("9")), absent(), baseline=None)) == (UNKNOWN, WHY.NOT_KNOWN_TO_BE_NEW, None)

    def test_without_a_guarantee_absence_says_nothing(self) -> None:
        assert told(judge(absent(), guarantee=None)) == (UNKNOWN, WHY.ABSENCE_WITHOUT_GUARANTEE, None)

    def test_part_of_a_list_shows_what_is_there_and_not_what_is_not(self) -> None:
        part = Partial(scope="page 1", reason="ten pages", items=(item("9"),))
        assert judge(Look(view="published", observation=part, after_s=60)).outcome is Outcome.SUCCEEDED
        nothing = Partial(scope="page 1", reason="ten pages")
        assert told(judge(Look(view="published", observation=nothing, after_s=60))) == (
            (UNKNOWN, WHY.ABSENCE_WITHOUT_GUARANTEE, None)
        )

    def test_an_answer_that_says_nothing_and_names_an_item_is_held_against_the_view(self) -> None:
        says = reading(Says.NOTHING, "7")
        assert judge(found(item("7")), says=says, baseline=None).outcome is Outcome.SUCCEEDED
        assert told(judge(found(item("9")), says=says)) == (UNKNOWN, CONTRADICTION, Discrepancy.ANSWER_AND_VIEW_DIFFER)


ids = st.sampled_from(["1", "2", "7", "8", "9"])
items = st.builds(
    Item,
    id=ids,
    state=st.sampled_from(ItemState),
    strength=st.sampled_from(Strength),
    account=st.sampled_from([ME, "bob", None]),
)
weak_items = st.builds(
    Item,
    id=ids,
    state=st.sampled_from(ItemState),
    strength=st.sampled_from([one for one in Strength if not one.establishes]),
    account=st.sampled_from([ME, "bob", None]),
)


def looks_of(which: st.SearchStrategy[Item]) -> st.SearchStrategy[Look]:
    several = st.lists(which, max_size=3).map(tuple)
    return st.builds(
        Look,
        view=st.sampled_from(["published", "search"]),
        observation=st.one_of(
            st.builds(Found, items=several, scope=st.just("all"), complete=st.booleans()),
            st.builds(Partial, scope=st.just("page 1"), reason=st.just("more"), items=several),
            st.builds(CouldNotLook, reason=st.sampled_from(NoLook)),
        ),
        after_s=st.sampled_from([0.0, 29.9, 30.0, 90.0]),
        evidence=st.just(("ev-look",)),
    )


absences = st.builds(
    Look,
    view=st.sampled_from(["published", "search"]),
    observation=st.builds(NotFound, scope=st.just("all"), complete=st.booleans()),
    after_s=st.sampled_from([0.0, 29.9, 30.0, 90.0]),
    evidence=st.just(("ev-absent",)),
)
evidence = st.fixed_dictionaries(
    {
        "transmission": st.sampled_from(Transmission),
        "reading": st.none()
        | st.builds(Reading, says=st.sampled_from(Says), clause=st.just("clause"), item=st.none() | ids),
        "looks": st.lists(looks_of(items) | absences, max_size=4),
        "baseline": st.none() | st.frozensets(ids, max_size=3),
        "account": st.just(ME),
        "guarantee": st.none() | st.just(GUARANTEE),
    }
)
many = settings(max_examples=200, deadline=None)


def items_in(look: Look) -> tuple[Item, ...]:
    return look.observation.items if isinstance(look.observation, Found | Partial) else ()


@many
@given(evidence)
def test_nothing_is_judged_that_was_not_sent(given: dict[str, Any]) -> None:
    assert (verdict(**given) is None) == (given["transmission"] is Transmission.NONE_PROVEN)


@many
@given(evidence)
def test_success_rests_on_the_providers_id_or_on_a_new_exact_item(given: dict[str, Any]) -> None:
    judged = verdict(**given)
    if judged is None or judged.outcome is not Outcome.SUCCEEDED:
        return
    answer, baseline = given["reading"], given["baseline"]
    by_answer = given["transmission"] is ANSWERED and answer is not None and answer.item == judged.item
    if judged.reason is WHY.PROVIDER_ID_IN_ANSWER:
        assert by_answer
        assert answer.says is Says.DONE
    else:
        assert judged.reason is WHY.EXACT_ITEM_SEEN
        shown = [one for look in given["looks"] for one in items_in(look) if one.id == judged.item]
        assert any(one.strength.establishes and one.state is ItemState.PUBLISHED and one.account == ME for one in shown)
        assert by_answer or baseline is not None
        assert judged.discrepancy is None
    assert baseline is None or judged.item not in baseline


@many
@given(evidence)
def test_rejection_rests_on_a_clause_or_on_guaranteed_absence(given: dict[str, Any]) -> None:
    judged = verdict(**given)
    if judged is None or judged.outcome is not Outcome.REJECTED:
        return
    if judged.reason is WHY.NOT_APPLIED_BY_CLAUSE:
        assert given["transmission"] is ANSWERED
        assert given["reading"].says is Says.NOT_APPLIED
    else:
        assert judged.reason is WHY.ABSENT_UNDER_GUARANTEE
        assert given["guarantee"] is not None
        older = given["baseline"] or frozenset()
        assert any(
            isinstance(look.observation, NotFound | Found)
            and look.observation.complete
            and look.view == GUARANTEE.view
            and look.after_s >= GUARANTEE.window_s
            and all(one.id in older for one in items_in(look))
            for look in given["looks"]
        )
    assert judged.discrepancy is None


RANK = {Outcome.UNKNOWN: 0, Outcome.ACCEPTED: 1, Outcome.SUCCEEDED: 2}


@many
@given(evidence, st.lists(looks_of(weak_items), min_size=1, max_size=3), st.booleans())
def test_weak_evidence_never_raises_a_claim(given: dict[str, Any], weak: list[Look], first: bool) -> None:
    # A complete listing in the view of the guarantee is more than its items: it may show an absence.
    assume(not any(isinstance(one.observation, Found) and one.observation.complete for one in weak))
    before = verdict(**given)
    after = verdict(**{**given, "looks": weak + given["looks"] if first else given["looks"] + weak})
    if before is None or after is None:
        assert before is after
    elif after.outcome is not before.outcome:
        assert (before.outcome, after.outcome) == (Outcome.REJECTED, UNKNOWN)


@many
@given(evidence, st.lists(looks_of(items), min_size=1, max_size=3))
def test_an_older_item_never_counts(given: dict[str, Any], looks: list[Look]) -> None:
    baseline = frozenset(one.id for look in looks for one in items_in(look))
    answer = given["reading"]
    judged = verdict(**{**given, "looks": looks, "baseline": baseline})
    if judged is not None and judged.outcome is Outcome.SUCCEEDED:
        assert judged.reason is WHY.PROVIDER_ID_IN_ANSWER
        assert answer.item not in baseline
    if judged is not None and judged.reason is not CONTRADICTION and answer is None:
        assert judged.outcome is not Outcome.SUCCEEDED
        assert judged.outcome is not Outcome.ACCEPTED


@many
@given(evidence, looks_of(items) | absences)
def test_a_look_against_what_was_there_never_upgrades(given: dict[str, Any], more: Look) -> None:
    before = verdict(**given)
    after = verdict(**{**given, "looks": [*given["looks"], more]})
    if before is None or after is None or after.discrepancy is None:
        return
    if after.outcome is not before.outcome:
        assert after.outcome is UNKNOWN or RANK.get(after.outcome, 0) < RANK.get(before.outcome, 0)


@many
@given(evidence)
def test_a_contradiction_is_unknown_and_says_what_does_not_fit(given: dict[str, Any]) -> None:
    judged = verdict(**given)
    if judged is None:
        return
    if judged.reason is CONTRADICTION:
        assert judged.outcome is UNKNOWN
        assert judged.discrepancy is not None
    assert judged.outcome is not Outcome.UNOBSERVED
    assert judged.why.endswith(".")


@many
@given(evidence, st.randoms(use_true_random=False))
def test_the_order_of_the_looks_does_not_matter(given: dict[str, Any], random: Any) -> None:
    shuffled = list(given["looks"])
    random.shuffle(shuffled)
    one, other = verdict(**given), verdict(**{**given, "looks": shuffled})
    assert (one is None) == (other is None)
    if one is not None and other is not None:
        assert told(one) == told(other)
