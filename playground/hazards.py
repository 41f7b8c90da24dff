"""Pages that write in ways a driver of the browser does not see, or at moments when it does not look.

Here are the vocabulary, the places that can carry a hazard, and the helper pages that some need. The scripts
are in `static/hazards.js`. Every target is `/hazard/NAME`, except for the hazards that misuse the composer's
own publish request (`double_submit`, `publish_in_prepare`, `reload_after`).
"""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path

from playground.messages import Request, Response, html, plain, redirect

STATIC = Path(__file__).parent / "static"
TARGETS = "/hazard/"
HELPERS = "/hazard-page/"
SERVICE_WORKER = "/hazard-service-worker.js"


class Hazard(StrEnum):
    """One way to write unseen."""

    FETCH = "fetch"
    XHR = "xhr"
    PUT = "put"
    BEACON = "beacon"
    KEEPALIVE = "keepalive"
    UNLOAD_BEACON = "unload_beacon"
    UNLOAD_KEEPALIVE = "unload_keepalive"
    FETCHLATER = "fetchlater"
    WORKER = "worker"
    SHAREDWORKER = "sharedworker"
    SERVICEWORKER = "serviceworker"
    WS = "ws"
    POPUP = "popup"
    NOOPENER = "noopener"
    XFRAME = "xframe"
    CSP = "csp"
    DOWNLOAD_POST = "download_post"
    GET_EFFECT = "get_effect"
    IMG_EFFECT = "img_effect"
    REDIRECT307 = "redirect307"
    PRELOAD = "preload"
    SPECRULES = "specrules"
    FORM_BLANK = "form_blank"
    LINK_PING = "link_ping"
    DOUBLE_SUBMIT = "double_submit"
    FOCUS_POST = "focus_post"
    HOVER_POST = "hover_post"
    SCROLL_POST = "scroll_post"
    RESIZE_POST = "resize_post"
    VISIBILITY_POST = "visibility_post"
    BEFOREUNLOAD_POST = "beforeunload_post"
    PUBLISH_IN_PREPARE = "publish_in_prepare"
    WEBRTC = "webrtc"
    RELOAD_AFTER = "reload_after"


class Place(StrEnum):
    """Which pages carry the hazard: `done` is what follows a publish, `item` the public page of an item."""

    COMPOSER = "composer"
    LIST = "list"
    DONE = "done"
    ITEM = "item"
    ANYWHERE = "anywhere"


def name_in(path: str) -> str | None:
    """The hazard named by a target path, or None for any other path."""
    if not path.startswith(TARGETS):
        return None
    return path[len(TARGETS) :].split("/")[0] or None


def script_for(name: str, argument: str | None, *, after_publish: bool = False) -> str:
    """The inline script that brings a hazard into a page.

    With `after_publish` it waits until the page itself says that it has published (a composer that stays on
    its page after success has no done page of its own).
    """
    order = json.dumps({"name": name, "argument": argument, "afterPublish": after_publish})
    source = (STATIC / "hazards.js").read_text(encoding="utf-8")
    return f"<script>\n{source}\nstartHazard({order});\n</script>"


def _post_script(name: str) -> str:
    return f"fetch('{TARGETS}{name}', {{method: 'POST', body: '1'}});"


def _unload_script(name: str) -> str:
    send = (
        f"navigator.sendBeacon('{TARGETS}{name}', '1')"
        if name == Hazard.UNLOAD_BEACON
        else f"fetch('{TARGETS}{name}', {{method: 'POST', body: '1', keepalive: true}})"
    )
    return (
        f"addEventListener('pagehide', () => {{ {send}; }});"
        "addEventListener('load', () => setTimeout(() => { location.href = 'about:blank'; }, 50));"
    )


def answer(request: Request) -> Response | None:
    """The answer to a hazard target or helper page; None when the path is neither."""
    path = request.path
    if path == SERVICE_WORKER:
        return plain((STATIC / "hazard_worker.js").read_text(encoding="utf-8"), kind="text/javascript")
    if path.startswith(HELPERS):
        return _helper(path[len(HELPERS) :])
    name = name_in(path)
    if name is None:
        return None
    if path == f"{TARGETS}{Hazard.REDIRECT307}/start":
        return redirect(f"{TARGETS}{Hazard.REDIRECT307}", 307)
    if name == Hazard.SPECRULES and request.method == "GET":
        return _helper(name)  # the page to prerender: fetching it is the first hit, its script the second
    response = plain("ok").with_header("Access-Control-Allow-Origin", "*")
    if name == Hazard.DOWNLOAD_POST:
        return response.with_header("Content-Disposition", 'attachment; filename="hazard.txt"')
    return response


def _helper(name: str) -> Response:
    match name:
        case Hazard.POPUP | Hazard.NOOPENER | Hazard.SPECRULES:
            script = _post_script(name)
        case Hazard.XFRAME:
            script = f"onmessage = () => {_post_script(name)}"
        case Hazard.UNLOAD_BEACON | Hazard.UNLOAD_KEEPALIVE:
            script = _unload_script(name)
        case "shared.js":
            return plain(_post_script(Hazard.SHAREDWORKER) + "onconnect = () => {};", kind="text/javascript")
        case Hazard.CSP:
            page = html("<!doctype html><title>csp</title><img src='http://127.0.0.1:1/blocked.png' alt=''>")
            return page.with_header("Content-Security-Policy", f"img-src 'none'; report-uri {TARGETS}{Hazard.CSP}")
        case _:
            return plain("No such helper page.", 404)
    return html(f"<!doctype html><title>{name}</title><script>{script}</script>")
