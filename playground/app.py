"""Routes: from a request to a plan of what it would commit and answer.

Knows nothing of sockets. A plan has no effect until the server runs it, and the server asks the fault queue
in between.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from playground import assets, hazards
from playground.api_shapes import ApiShapes
from playground.composers import Composers
from playground.keyed import Keyed
from playground.messages import (
    SESSION_COOKIE,
    BadBody,
    Plan,
    Request,
    Response,
    json_response,
    redirect,
)
from playground.pages import Pages
from playground.shapes import Shapes
from playground.sockets import Live
from playground.truth import Truth

ACCOUNTS = ("editor", "second")
PASSWORD = "playground"


@dataclass(frozen=True)
class _Route:
    method: str
    pattern: re.Pattern[str]
    handler: Callable[..., Plan]
    public: bool


class App:
    """The site over one record."""

    def __init__(self, truth: Truth) -> None:
        self._truth = truth
        self._pages = pages = Pages(truth)
        self._composers = composers = Composers(truth, pages)
        self._routes = [
            self._route("GET", "/", self._page(pages.published), public=True),
            self._route("GET", "/items/ID", self._page(pages.item), public=True),
            self._route("GET", "/login", self._page(pages.login), public=True),
            self._route("POST", "/login", self._sign_in, public=True),
            self._route("GET", "/heavy", self._page(pages.heavy), public=True),
            self._route("POST", "/logout", self._sign_out),
            self._route("GET", "/mine", self._page(pages.mine)),
            self._route("GET", "/drafts", self._page(pages.drafts)),
            self._route("GET", "/new", self._page(pages.new)),
            self._route("GET", "/(form|autosave)/(?:done|queued)", self._done),
            self._route("GET", "/(form|spa|panel)/new", self._composer),
            self._route("GET", "/autosave/new", composers.autosave_new),
            self._route("GET", "/autosave/ID/edit", self._autosave_composer),
            self._route("POST", "/autosave/ID/edit", composers.autosave_edit),
            self._route("POST", "/form/publish", composers.form_publish),
            self._route("POST", "/form/draft", composers.form_draft),
            self._route("POST", "/api/items", composers.api_create),
            self._route("PUT", "/api/items/ID", composers.api_publish),
            self._route("POST", "/api/drafts", composers.draft_create),
            self._route("POST", "/api/drafts/ID", composers.draft_save),
            self._route("POST", "/items/ID/delete", composers.delete),
            self._route("POST|PUT", "/other-publish", composers.other_publish),
            self._route("POST", "/upload", composers.upload),
            *(self._route(*route) for route in Shapes(truth, pages).routes()),
            *(self._route(*route) for route in ApiShapes(truth, pages).routes()),
            *(self._route(*route) for route in Live(truth, pages).routes()),
            *(self._route(*route) for route in Keyed(truth, pages).routes()),
        ]

    @staticmethod
    def _route(method: str, path: str, handler: Callable[..., Plan], *, public: bool = False) -> _Route:
        pattern = path.replace("ID", r"(\d{1,15})")
        return _Route(method, re.compile(pattern), handler, public)

    @staticmethod
    def _page(render: Callable[..., Response]) -> Callable[..., Plan]:
        return lambda request, *arguments: Plan.of(render(request, *arguments))

    def identify(self, request: Request) -> Request:
        """The request with the account that its session belongs to."""
        return replace(request, account=self._truth.session_account(request.session))

    def plan(self, request: Request) -> Plan:
        """What this request would do. Reads the record and changes nothing."""
        free = hazards.answer(request) or assets.answer(request)
        if free is not None:
            return Plan.of(free)
        method = "GET" if request.method == "HEAD" else request.method
        matches = [(route, m) for route in self._routes if (m := route.pattern.fullmatch(request.path))]
        if request.account is None and not any(route.public for route, _ in matches):
            return Plan.of(redirect(self._pages.sign_in_first(request)))
        if not matches:
            return Plan.of(self._pages.not_found(request))
        for route, match in matches:
            if method in route.method.split("|"):
                arguments = [int(value) if value.isdecimal() else value for value in match.groups()]
                return self._handle(route, request, arguments)
        allowed = ", ".join(route.method.replace("|", ", ") for route, _ in matches)
        text = f"This address takes {allowed}."
        return Plan.of(self._pages.message(request, 405, "Not allowed", text).with_header("Allow", allowed))

    def _handle(self, route: _Route, request: Request, arguments: list[int | str]) -> Plan:
        try:
            return route.handler(request, *arguments)
        except BadBody as error:
            if request.path.startswith("/api/"):
                return Plan.of(json_response({"error": str(error)}, 400))
            return Plan.of(self._pages.message(request, 400, "Not understood", str(error)))

    def _composer(self, request: Request, variant: str) -> Plan:
        return Plan.of(self._pages.composer(request, variant))

    def _autosave_composer(self, request: Request, item_id: int) -> Plan:
        item = self._truth.item(item_id)
        if item is None or item.account != request.account:
            return Plan.of(self._pages.not_found(request))
        return Plan.of(self._pages.composer(request, "autosave", item=item))

    def _done(self, request: Request, _variant: str) -> Plan:
        wanted = request.query.get("item", "")
        item = self._truth.item(int(wanted)) if re.fullmatch(r"\d{1,15}", wanted, re.ASCII) else None
        return Plan.of(self._pages.done(request, item))

    def _sign_in(self, request: Request) -> Plan:
        fields = request.fields()
        user, wanted = fields.get("user", ""), fields.get("next", "/")
        if user not in ACCOUNTS or fields.get("password") != PASSWORD:
            error = "That name and password do not match an account."
            return Plan.of(self._pages.login(request, error=error, user=user, wanted=wanted))
        local = wanted if re.match(r"/(?![/\\])", wanted) else "/"  # never to another site
        secure = "; Secure" if request.scheme == "https" else ""

        def run(_seq: int, _queued: bool) -> Response:
            token = self._truth.open_session(user)
            cookie = f"{SESSION_COOKIE}={token}; Path=/; HttpOnly; SameSite=Lax{secure}"
            return redirect(local).with_header("Set-Cookie", cookie)

        return Plan(run)

    def _sign_out(self, request: Request) -> Plan:
        def run(_seq: int, _queued: bool) -> Response:
            self._truth.end_session(request.session)
            expired = f"{SESSION_COOKIE}=; Path=/; HttpOnly; SameSite=Lax; Max-Age=0"
            return redirect("/login").with_header("Set-Cookie", expired)

        return Plan(run)
