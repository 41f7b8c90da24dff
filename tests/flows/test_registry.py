"""The registry: flows by entry point and by file, broken ones reported and kept apart, declarations checked."""

from __future__ import annotations

import dataclasses
import importlib
import sys
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from flows.declarations import problem
from flows.effect import (
    AbsenceGuarantee,
    Category,
    ClientKey,
    Contract,
    Effect,
    Meaning,
    Policy,
    Says,
    Undo,
    WebSocket,
    Write,
)
from flows.flow import DialogRule, Flow, Identity, Payload, Submit, view
from flows.observations import NotFound, Observation
from flows.registry import BrokenFlow, Registry, UnknownFlow


class Note(Payload):
    title: str
    tags: tuple[str, ...] = ()


CONTRACT = Contract(
    read_answer=lambda _request, _answer: Meaning(says=Says.NOTHING, clause="nothing is documented"),
    category=Category.WRITE_WITHOUT_KEY,
    undo=Undo.REVERSIBLE_AT_A_COST,
    undo_instructions="Delete it in the list.",
)
EFFECT = Effect(
    name="note published",
    method="POST",
    path=r"/notes",
    matches=lambda _request: True,
    material=lambda _request: {},
)
WRITE = Write(name="autosave", method="POST", path="/drafts", matches=lambda _request: True, may_cause_effect=False)


class Complete(Flow[Note]):
    name = "complete"
    version = "1"
    action = "publish-note"
    summary = "Publishes a note."
    payload_model = Note
    unordered = ("tags",)
    effect = EFFECT
    contract = CONTRACT
    session_cookies = ("session",)

    async def prepare(self, page: Any, intent: Any) -> Submit:
        raise NotImplementedError

    async def identify(self, page: Any, intent: Any) -> Identity:
        raise NotImplementedError

    async def composed(self, page: Any, intent: Any) -> dict[str, object]:
        raise NotImplementedError

    @view("list", opens=[r"/notes"], lists=True)
    async def listed(self, page: Any, intent: Any) -> Observation:
        return NotFound(scope="all", complete=True)


def point(name: str, value: str) -> EntryPoint:
    return EntryPoint(name=name, value=value, group="interlock.flows")


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Writes importable modules: `module("name", "source")`."""
    monkeypatch.syspath_prepend(str(tmp_path))
    written: list[str] = []

    def write(name: str, source: str) -> Path:
        path = tmp_path / f"{name}.py"
        path.write_text(source, encoding="utf-8")
        written.append(name)
        importlib.invalidate_caches()
        return path

    yield write
    for name in written:
        sys.modules.pop(name, None)


SOURCE = """
from tests_flow_base import Complete


class Here(Complete):
    name = "here"
"""


@pytest.fixture
def flow_file(module: Any) -> Path:
    module("tests_flow_base", Path(__file__).read_text(encoding="utf-8"))
    path: Path = module("here", SOURCE)
    return path


def test_the_built_in_flows_are_registered_by_the_installed_distribution() -> None:
    names = Registry.discover().names()
    assert {"wordpress", "playground-form", "playground-spa", "playground-panel", "playground-autosave"} <= set(names)
    assert list(names) == sorted(names)


def test_the_built_in_flows_are_complete() -> None:
    registry = Registry.discover()
    for name in ("wordpress", "playground-form", "playground-spa", "playground-panel", "playground-autosave"):
        assert registry.get(name).name == name


def test_a_broken_entry_point_does_not_hide_the_others(module: Any, flow_file: Path) -> None:
    module("raises", "raise RuntimeError('no licence')")
    registry = Registry.of([point("raises", "raises:Flow"), point("here", "here:Here"), point("gone", "no_such:Flow")])
    assert registry.names() == ("gone", "here", "raises")
    assert registry.get("here").name == "here"
    with pytest.raises(BrokenFlow, match=r"raises:Flow .* does not import \(RuntimeError: no licence\)"):
        registry.get("raises")
    with pytest.raises(BrokenFlow, match="ModuleNotFoundError"):
        registry.get("gone")


def test_a_flow_must_be_registered_under_its_own_name(flow_file: Path) -> None:
    with pytest.raises(BrokenFlow, match="calls itself 'here'"):
        Registry.of([point("other", "here:Here")]).get("other")


def test_two_flows_of_one_name_are_refused_and_a_repeated_registration_is_not(flow_file: Path) -> None:
    twice = Registry.of([point("here", "here:Here"), point("here", "here:Here")])
    assert twice.get("here").name == "here"
    with pytest.raises(BrokenFlow, match=r"both register it\. Uninstall one"):
        Registry.of([point("here", "here:Here"), point("here", "elsewhere:Here")]).get("here")


def test_an_unknown_name_suggests_near_ones() -> None:
    registry = Registry.of([point("wordpress", "x:Y"), point("playground-form", "x:Z")])
    with pytest.raises(UnknownFlow, match=r"no flow named 'wordpres'\. Did you mean wordpress\?") as caught:
        registry.get("wordpres")
    assert caught.value.suggestions == ("wordpress",)
    with pytest.raises(UnknownFlow, match="interlock flows list"):
        registry.get("zzz")


def test_the_same_reference_gives_the_same_instance(flow_file: Path) -> None:
    registry = Registry.of([point("here", "here:Here")])
    assert registry.get("here") is registry.get("here")


def test_a_flow_is_read_from_a_file_by_class_or_alone(flow_file: Path) -> None:
    registry = Registry.of([])
    by_class = registry.get(f"{flow_file}:Here")
    alone = registry.get(str(flow_file))
    assert by_class.name == alone.name == "here"
    assert len(by_class.code_digest()) == 64
    assert by_class.code_digest() == alone.code_digest()


def test_the_canonical_reference_is_good_in_another_folder(
    flow_file: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(flow_file.parent)
    canonical = Registry.of([]).canonical("here.py")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    assert canonical == f"{flow_file.resolve()}:Here"
    assert Registry.of([]).get(canonical).name == "here"


def test_the_code_digest_of_a_file_follows_its_source(module: Any, flow_file: Path) -> None:
    before = Registry.of([]).get(str(flow_file)).code_digest()
    changed = module("changed", SOURCE + "\n# one more line\n")
    assert Registry.of([]).get(str(changed)).code_digest() != before


def test_what_is_wrong_with_a_file_is_said(module: Any, flow_file: Path, tmp_path: Path) -> None:
    registry = Registry.of([])
    with pytest.raises(UnknownFlow, match="There is no file"):
        registry.get(str(tmp_path / "absent.py"))
    with pytest.raises(UnknownFlow, match=r"here\.py has no class Hre\. Did you mean Here\?"):
        registry.get(f"{flow_file}:Hre")
    with pytest.raises(UnknownFlow, match="holds no flow"):
        registry.get(str(module("none", "x = 1")))
    two = module("two", SOURCE + "\n\nclass There(Complete):\n    name = 'there'\n")
    with pytest.raises(UnknownFlow, match=r"holds 2 flows\. Name one: two\.py:Here"):
        registry.get(str(two))
    with pytest.raises(BrokenFlow, match=r"does not import \(SyntaxError"):
        registry.get(str(module("unreadable", "def (")))
    with pytest.raises(BrokenFlow, match=r"does not import"):
        registry.get(str(tmp_path / "unreadable.py"))  # a second time too: nothing half-imported is kept


def test_a_complete_flow_has_no_problem() -> None:
    assert problem(Complete) is None


def declared(**attributes: object) -> type:
    return type("Made", (Complete,), {"__module__": __name__, **attributes})


def contract(**changes: Any) -> Contract:
    return dataclasses.replace(CONTRACT, **changes)


KEY = ClientKey(header="Idempotency-Key", field=None, scope="account", lifetime_s=3600, attempts=2, same_fields=())
INCOMPLETE: tuple[tuple[dict[str, object], str], ...] = (
    ({"name": None}, "does not declare name"),
    ({"name": "My Flow"}, "lower-case letters"),
    ({"version": 1}, "declares version as int"),
    ({"summary": " "}, "leaves summary empty"),
    ({"action": "Publish"}, "has the action 'Publish'"),
    ({"effect": None}, "does not declare effect"),
    ({"contract": object()}, "needs a Contract"),
    ({"payload_model": dict}, "derived from flows.flow.Payload"),
    ({"immaterial": "tags"}, "declares immaterial as str"),
    ({"immaterial": ("slug",)}, "names slug as immaterial"),
    ({"immaterial": ("title", "tags"), "unordered": ()}, "no material field"),
    ({"unordered": ("slug",)}, "names slug as unordered"),
    ({"session_cookies": ()}, "names no session cookie"),
    ({"supporting": (EFFECT,)}, "something in supporting that is no Write"),
    ({"supporting": (WRITE, WRITE)}, "two writes named 'autosave'"),
    ({"effect": dataclasses.replace(EFFECT, method="post")}, "write it in capitals"),
    ({"effect": dataclasses.replace(EFFECT, path="/notes(")}, "no regular expression"),
    ({"trailing": (dataclasses.replace(WRITE, matches=True),)}, "matches that cannot be called"),
    ({"dialogs": (DialogRule(message="(", accept=True),)}, "dialog rule"),
    ({"dialogs": (DialogRule(message=".*", accept=True),)}, "accepts any dialog"),
    ({"websockets": (WRITE,)}, "something in websockets that is no WebSocket"),
    ({"websockets": (WebSocket(name="presence", path="("),)}, "a path that is no regular expression"),
    ({"websockets": (WebSocket(name="presence", path="/", sends=True),)}, "a sends that cannot be called"),
    ({"websockets": (WebSocket(name="presence", path="/", origin="wss://a"),)}, "write it with http:// or https://"),
    ({"websockets": (WebSocket(name="presence", path="/", protocols="v1"),)}, "protocols that are no tuple"),
    ({"contract": contract(read_answer=None)}, "read_answer cannot be called"),
    ({"contract": contract(undo_instructions="")}, "how a person undoes"),
    ({"contract": contract(answer_deadline_s=0)}, "answer_deadline_s is no time above 0 s"),
    ({"contract": contract(trailing_s=-1)}, "trailing_s is no time of 0 s or more"),
    ({"contract": contract(key=dataclasses.replace(KEY, field="key"))}, "not exactly one of header and field"),
    ({"contract": contract(key=dataclasses.replace(KEY, header="No Token"))}, "whose name is no name"),
    ({"contract": contract(key=dataclasses.replace(KEY, attempts=0))}, "without a lifetime"),
    ({"contract": contract(key=dataclasses.replace(KEY, lifetime_s=float("inf")))}, "without a lifetime"),
    ({"contract": contract(key=dataclasses.replace(KEY, margin_s=3600))}, "margin_s is not below its lifetime"),
    ({"contract": contract(key=dataclasses.replace(KEY, scope=" "))}, "for what the site remembers it"),
    ({"contract": contract(key=dataclasses.replace(KEY, same_fields=("slug",)))}, "holds slug fixed"),
    ({"contract": contract(policy="idempotent")}, "use flows.effect.Policy"),
    ({"contract": contract(policy=Policy.IDEMPOTENT)}, "idempotent and no client key"),
    (
        {
            "contract": contract(policy=Policy.IDEMPOTENT, key=KEY),
            "trailing": (dataclasses.replace(WRITE, may_cause_effect=True),),
        },
        "the write 'autosave', which may cause the effect without the key",
    ),
    (
        {"contract": contract(absence=AbsenceGuarantee(view="all", consistency_window_s=5, statement="Yes."))},
        "no view of that name",
    ),
    (
        {"contract": contract(absence=AbsenceGuarantee(view="list", consistency_window_s=5, statement=""))},
        "without the sentence",
    ),
    (
        {"contract": contract(absence=AbsenceGuarantee(view="list", consistency_window_s=-5, statement="Yes."))},
        "no time of 0 s or more",
    ),
    ({"prepare": lambda self, page, intent: None}, "not `async def`"),
    ({"__init__": lambda self, site: None}, "cannot be made without arguments"),
    ({"__module__": "no_such_module_anywhere"}, "no readable source"),
)


@pytest.mark.parametrize(("attributes", "says"), INCOMPLETE, ids=lambda value: value if isinstance(value, str) else "")
def test_an_incomplete_flow_is_told_what_is_wrong_in_one_sentence(attributes: dict[str, object], says: str) -> None:
    finding = problem(declared(**attributes))
    assert finding is not None
    assert says in finding
    assert "\n" not in finding
    assert not finding.endswith(".")


def test_missing_methods_and_views_are_told() -> None:
    class Bare(Flow[Note]):
        name = "bare"

    class Blind(Complete):
        listed = None

    class Shut(Complete):
        @view("shut", opens=[])
        async def shut(self, page: Any, intent: Any) -> Observation:
            return NotFound(scope="all", complete=True)

    assert problem(Bare) == "has no method composed and no method identify and no method prepare"
    assert "may open no page" in (problem(Shut) or "")
    assert problem(object()) == problem(int) == "is not a class derived from flows.flow.Flow"


def test_a_flow_without_a_view_may_only_forbid_looking() -> None:
    class Blind(Flow[Note]):
        name = "blind"
        version = "1"
        action = "publish-note"
        summary = "Publishes a note."
        payload_model = Note
        effect = EFFECT
        contract = CONTRACT
        session_cookies = ("session",)
        prepare = Complete.prepare
        identify = Complete.identify
        composed = Complete.composed

    class Forbids(Blind):
        contract = contract(look_before=False, look_after=False)

    assert "has no view" in (problem(Blind) or "")
    assert problem(Forbids) is None
