"""What a WordPress site and its block editor say to each other: which requests are declared, what the answers mean.

Pure functions and declarations; nothing here sends. Part of the flow by inheritance, so that an approval binds this
code too. Read off the editor of WordPress 6.1 and the REST controllers behind it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from flows.effect import Category, Contract, Effect, Material, Meaning, Says, Undo, Write
from flows.wire import Answer, OutgoingRequest, UnreadableBody
from flows.wordpress_blocks import Posts, material_of

# WordPress reads a parameter from the JSON body before the query and from the query before the path, takes
# `rest_route` from the query of any address, and honours `_method`: so nothing passes that is not listed here.

_FOLDER = r"(?:/(?![^/]*\.php(?:/|$))[^/]+)*"
"""The folder that a site lives in. No script may stand in it: what follows would be its business then."""
_ROUTE = re.compile(rf"{_FOLDER}(?:/index\.php)?/wp-json(/wp/v2/[a-z0-9/]+)")


def _rest(pretty: str) -> str:
    """The path of a REST address in both link forms; which route the second form names, `_route` says."""
    return rf"{_FOLDER}(?:(?:/index\.php)?/wp-json/wp/v2/{pretty}|/index\.php)"


def _route(request: OutgoingRequest) -> str | None:
    """The REST route ("/wp/v2/posts/5") when the address names exactly one and the query holds nothing else that
    WordPress would read."""
    allowed = ["_locale"] if request.query_value("_locale") == "user" else []
    if match := _ROUTE.fullmatch(request.path):
        route: str | None = match[1]
    else:
        route = request.query_value("rest_route")
        allowed.append("rest_route")
    return route if sorted(name for name, _ in request.query) == sorted(allowed) else None


def _item(request: OutgoingRequest) -> str | None:
    """The post that the route names, for the post itself and for its autosaves."""
    match = re.fullmatch(r"/wp/v2/posts/([1-9]\d{0,14})(/autosaves)?", _route(request) or "")
    return match[1] if match else None


def _fields(request: OutgoingRequest) -> Mapping[str, Any]:
    value = request.json
    return value if isinstance(value, dict) else {}


def _is_put(request: OutgoingRequest) -> bool:
    return request.header("x-http-method-override") == "PUT"


def _sets_status(request: OutgoingRequest, status: str) -> bool:
    """A PUT of title and content, or part of them, to one post, with this status. Any other field (date, password,
    slug, sticky, terms) would change what is published, or when, or for whom."""
    item = _item(request)
    if item is None or not _is_put(request) or _route(request) != f"/wp/v2/posts/{item}":
        return False
    fields = _fields(request)
    texts = set(fields) - {"id", "status"}
    return (
        texts <= {"title", "content"}
        and all(isinstance(fields[name], str) for name in texts)
        and type(fields.get("id")) is int
        and str(fields["id"]) == item
        and fields.get("status") == status
    )


def _is_autosave(request: OutgoingRequest) -> bool:
    """The status decides here too: WordPress publishes a draft whose autosave says "publish"."""
    item = _item(request)
    if item is None or _route(request) != f"/wp/v2/posts/{item}/autosaves":
        return False
    if request.header("x-http-method-override"):
        return False
    fields = _fields(request)
    return (
        {"status", "title", "content"} <= set(fields) <= {"status", "title", "content", "excerpt"}
        and fields["status"] == "draft"
        and all(isinstance(fields[name], str) for name in ("title", "content"))
        and fields.get("excerpt", "") == ""
    )


def _is_preferences(request: OutgoingRequest) -> bool:
    if _route(request) != "/wp/v2/users/me" or not _is_put(request):
        return False
    fields = _fields(request)
    meta = fields.get("meta")
    return set(fields) == {"meta"} and isinstance(meta, dict) and set(meta) == {"persisted_preferences"}


_LOCK_FIELDS = {"data[wp-refresh-post-lock][lock]", "data[wp-refresh-post-lock][post_id]"}
_BEAT_FIELDS = {"interval", "_nonce", "action", "screen_id", "has_focus"}


def _is_heartbeat(request: OutgoingRequest) -> bool:
    """A heartbeat that renews the lock on the post, or nothing. Never one with `wp_autosave`: the block editor does
    not send it, and WordPress takes a status from it, so it could publish."""
    names = _names(request)
    return _is_ajax(request, "heartbeat") and names in (_BEAT_FIELDS, _BEAT_FIELDS | _LOCK_FIELDS)


def _is_unlock(request: OutgoingRequest) -> bool:
    return _is_ajax(request, "wp-remove-post-lock") and (
        _names(request) == {"action", "_wpnonce", "post_ID", "active_post_lock"}
    )


def _is_ajax(request: OutgoingRequest, action: str) -> bool:
    return not request.query and request.form.get("action") == action and not request.form.files


def _names(request: OutgoingRequest) -> set[str]:
    """The field names of a form; empty when one is there twice."""
    names = [name for name, _ in request.form.fields]
    return set(names) if len(set(names)) == len(names) else set()


def _is_sign_in(request: OutgoingRequest) -> bool:
    names = _names(request)
    return (
        not request.query
        and {"log", "pwd"} <= names <= {"log", "pwd", "rememberme", "wp-submit", "redirect_to", "testcookie"}
        and not request.form.files
    )


def _saved(request: OutgoingRequest, answer: Answer) -> str | None:
    """The post that a save went into. An autosave into a revision has the revision's id: the post is as it was."""
    fields = _answered(answer)
    item = _item(request)
    return item if answer.status == 200 and item is not None and str(fields.get("id")) == item else None


def _answered(answer: Answer) -> Mapping[str, Any]:
    """The JSON object of a whole answer, else nothing."""
    if not answer.complete:
        return {}
    try:
        value = answer.json
    except UnreadableBody:
        return {}
    return value if isinstance(value, dict) else {}


def _sent_material(request: OutgoingRequest, _answer: Answer) -> Material:
    return material_of(_fields(request))


# A save without a status is not among them, though the editor sends one when a person presses "Save draft" a second
# time: the same request changes a post that is already out. This flow never presses it, and autosaves go elsewhere.
_DRAFT = Write(
    name="save draft",
    method="POST",
    path=_rest(r"posts/\d+"),
    matches=lambda request: _sets_status(request, "draft"),
    may_cause_effect=False,
    material=_sent_material,
    item=_saved,
)
_AUTOSAVE = Write(
    name="autosave",
    method="POST",
    path=_rest(r"posts/\d+/autosaves"),
    matches=_is_autosave,
    may_cause_effect=False,
    material=_sent_material,
    item=_saved,
)
_PREFERENCES = Write(
    name="editor preferences",
    method="POST",
    path=_rest("users/me"),
    matches=_is_preferences,
    may_cause_effect=False,
)
_HEARTBEAT = Write(
    name="heartbeat",
    method="POST",
    path=rf"{_FOLDER}/wp-admin/admin-ajax\.php",
    matches=_is_heartbeat,
    may_cause_effect=False,
)
_UNLOCK = Write(
    name="release post lock",
    method="POST",
    path=rf"{_FOLDER}/wp-admin/admin-ajax\.php",
    matches=_is_unlock,
    may_cause_effect=False,
)
_SIGN_IN = Write(
    name="sign in",
    method="POST",
    path=rf"{_FOLDER}/wp-login\.php",
    matches=_is_sign_in,
    may_cause_effect=False,
)


# Answers. Every refusal below is made before WordPress stores anything: by the authentication, by the permission check
# of the route, or while the post is prepared.

_NOT_APPLIED = {
    (403, "rest_cookie_invalid_nonce"): "the nonce is checked before the route is called",
    (401, "rest_forbidden"): "the permission is checked before the route is called",
    (403, "rest_forbidden"): "the permission is checked before the route is called",
    (401, "rest_cannot_edit"): "the permission to edit is checked before the route is called",
    (403, "rest_cannot_edit"): "the permission to edit is checked before the route is called",
    (401, "rest_cannot_publish"): "the permission to publish is checked before the post is stored",
    (403, "rest_cannot_publish"): "the permission to publish is checked before the post is stored",
    (404, "rest_post_invalid_id"): "there is no such post",
}


def _read_answer(request: OutgoingRequest, answer: Answer) -> Meaning:
    fields = _answered(answer)
    item, status = fields.get("id"), fields.get("status")
    if answer.status == 200 and type(item) is int and str(item) == _item(request):
        url = fields.get("link")
        named = {"item": str(item), "url": url if isinstance(url, str) else None}
        if status == "publish" and fields.get("password", "") == "":
            return Meaning(says=Says.DONE, clause='published: 200 with this id and status "publish"', **named)
        if status in ("pending", "future"):
            return Meaning(says=Says.ACCEPTED, clause=f'{status}: 200 with this id and status "{status}"', **named)
    code, data = fields.get("code"), fields.get("data")
    why = _NOT_APPLIED.get((answer.status, code)) if isinstance(code, str) else None
    # WordPress repeats the status in its own errors; what stands in front of it does not know to.
    if why is not None and isinstance(data, dict) and data.get("status") == answer.status:
        return Meaning(says=Says.NOT_APPLIED, clause=f"{code}: {why}")
    return Meaning(says=Says.NOTHING, clause="no clause: an answer of another kind establishes nothing")


class DeclaredPosts(Posts):
    """The requests and the contract of the posts route."""

    effect = Effect(
        name="post published",
        method="POST",
        path=_rest(r"posts/\d+"),
        matches=lambda request: _sets_status(request, "publish"),
        # The editor leaves out what an earlier save holds already; that save then shows it.
        material=lambda request: material_of(_fields(request)),
        item=_item,
    )
    supporting = (_DRAFT, _AUTOSAVE, _PREFERENCES, _HEARTBEAT)
    trailing = (_UNLOCK,)
    login_writes = (_SIGN_IN,)
    session_cookies = ("wordpress_*",)
    proof_cookies = ("wordpress_logged_in_*",)
    """WordPress sets the other one for /wp-admin only, so the effect does not carry it."""
    secret_fields = ("pwd", "_wpnonce", "_nonce", "active_post_lock")
    contract = Contract(
        read_answer=_read_answer,
        category=Category.WRITE_WITHOUT_KEY,
        undo=Undo.REVERSIBLE_AT_A_COST,
        undo_instructions=(
            "Sign in, open Posts (/wp-admin/edit.php?post_status=publish), point at the post and choose Trash. It "
            "stays in the bin for 30 days. What feeds, mail subscribers and search engines have taken is not undone."
        ),
        absence=None,
        notes=(
            "No absence guarantee: a request that lost its connection may still be at work in PHP, and nothing "
            "bounds for how long.",
            "Opening the editor is a GET that stores an empty draft; a run that stops leaves it, and WordPress "
            "removes such drafts after a week.",
            "A shortcode, or an address alone in a paragraph, is kept as written and rendered by WordPress.",
            "The post goes to the site's default category, under the account's name, at once, for everybody.",
        ),
    )
