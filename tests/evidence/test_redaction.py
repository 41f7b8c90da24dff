from __future__ import annotations

import base64
import html
import json
import pickle
import urllib.parse

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from evidence.redaction import Kind, Redactor

SECRET = "pä$s w\"ö'rd/+<&>\\x"
REDACTOR = Redactor(secrets=frozenset({SECRET}))


def _forms(secret: str) -> dict[str, str]:
    raw = secret.encode()
    return {
        "plain": secret,
        "percent": urllib.parse.quote(secret, safe=""),
        "percent, lower case": urllib.parse.quote(secret, safe="").replace("%C3", "%c3"),
        "path": urllib.parse.quote(secret),
        "form": urllib.parse.quote_plus(secret),
        "percent twice": urllib.parse.quote(urllib.parse.quote(secret, safe=""), safe=""),
        "json": json.dumps(secret)[1:-1],
        "json, raw letters": json.dumps(secret, ensure_ascii=False)[1:-1],
        "json, escaped slash": json.dumps(secret)[1:-1].replace("/", "\\/"),
        "json in json": json.dumps(json.dumps(secret))[3:-3],
        "json in a query": urllib.parse.quote(json.dumps(secret)[1:-1], safe=""),
        "html": html.escape(secret),
        "html, all numeric": "".join(f"&#{ord(c)};" for c in secret),
        "html, all hexadecimal": "".join(f"&#x{ord(c):X};" for c in secret),
        "html of percent": html.escape(urllib.parse.quote(secret)),
        "hex": raw.hex(),
        "base64": base64.b64encode(raw).decode(),
        "base64, one before": base64.b64encode(b"u" + raw + b"zz").decode(),
        "base64, two before": base64.b64encode(b"u:" + raw + b"z").decode(),
        "base64 for URLs": base64.urlsafe_b64encode(b"user:" + raw).decode(),
    }


@pytest.mark.parametrize("form", _forms(SECRET).items(), ids=lambda form: form[0])
def test_a_secret_is_found_in_every_usual_form(form: tuple[str, str]) -> None:
    done = REDACTOR.text(f"before {form[1]} after")
    assert "[masked:secret]" in done.value
    assert done.value.startswith("before ")
    assert done.value.endswith(" after")
    assert sum(entry.count for entry in done.masked) == 1


@settings(max_examples=60, deadline=None)
@given(st.text(min_size=6, max_size=30, alphabet=st.characters(exclude_categories=["Cs"])))
def test_any_secret_is_found_percent_encoded_json_escaped_and_in_base64(secret: str) -> None:
    redactor = Redactor(secrets=frozenset({secret}))
    forms = (
        secret,
        urllib.parse.quote(secret, safe=""),
        json.dumps(secret)[1:-1],
        html.escape(secret),
        base64.b64encode(secret.encode()).decode(),
    )
    assume(not any(form in "before [masked:secret] after" for form in forms))
    for form in forms:
        assert form not in redactor.text(form).value


def test_a_secret_too_short_to_search_for_is_refused() -> None:
    with pytest.raises(ValueError, match="name the field"):
        Redactor(secrets=frozenset({"abc"}))
    assert Redactor().with_secrets(["abc", "long enough"]).secrets == {"long enough"}


def test_a_secret_that_is_a_word_of_the_masks_does_not_spoil_them() -> None:
    redactor = Redactor(secrets=frozenset({"password", "masked"}))
    done = redactor.html('<input type="password" value="password"><p>password</p>').value
    assert 'value="[masked:password]"' in done
    assert "<p>[masked:secret]</p>" in done


def test_the_configuration_shows_no_secret_and_travels() -> None:
    assert SECRET not in repr(REDACTOR)
    assert pickle.loads(pickle.dumps(REDACTOR)) == REDACTOR


@pytest.mark.parametrize(
    "token",
    [
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhbm5hIn0.c2lnbmF0dXJl",
        "ghp_0123456789abcdefghijABCDEFGHIJ",
        "AKIAIOSFODNN7EXAMPLE",
        "xoxb-1234567890-abcdef",
        "9f86d081884c7d659a2feaa0c55ad015",
        "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    ],
)
def test_known_shapes_are_masked(token: str) -> None:
    done = REDACTOR.text(f"see {token}, please")
    assert done.value == "see [masked:token], please"


@pytest.mark.parametrize(
    "text",
    [
        "Basic training for everybody",
        "The bearer of good news",
        "Order 12345678901234567890123456789012345",
        "author=Anna",
        "a token of thanks: really",
        "550e8400-e29b-41d4-a716-446655440000",
    ],
)
def test_ordinary_text_stays(text: str) -> None:
    assert REDACTOR.text(text).value == text


def test_credentials_and_named_values_in_text() -> None:
    done = REDACTOR.text('Bearer abc123def456ghi; {"_wpnonce":"a1b2c3d4e5"} csrf_token=zzzz1111')
    assert "abc123" not in done.value
    assert "a1b2c3" not in done.value
    assert "zzzz" not in done.value
    assert "Bearer [masked:authorization]" in done.value


def test_urls_lose_user_information_telling_values_and_nothing_else() -> None:
    url = (
        "https://anna:s3cretpw@example.org/a/b?post=7&_wpnonce=a1b2c3d4e5&title=Hello%20you&x=1#access_token=abcdef&k=v"
    )
    done = Redactor().url(url)
    assert done.value == (
        "https://[masked:password]@example.org/a/b?post=7&_wpnonce=[masked:token]&title=Hello%20you&x=1"
        "#access_token=[masked:token]&k=v"
    )
    assert {(entry.what, entry.where) for entry in done.masked} == {
        (Kind.PASSWORD, "url user information"),
        (Kind.TOKEN, "url query _wpnonce"),
        (Kind.TOKEN, "url fragment access_token"),
    }


def test_headers_keep_names_and_lose_credentials() -> None:
    redactor = Redactor(header_names=frozenset({"X-Device"}))
    headers = (
        ("Cookie", "a=one; b=two"),
        ("Set-Cookie", "session=abc; Path=/; HttpOnly"),
        ("Authorization", "Bearer abcdef"),
        ("Proxy-Authorization", "abcdef"),
        ("X-WP-Nonce", "a1b2c3"),
        ("x-device", "mine"),
        ("Referer", "http://h/p?token=abcd&a=b"),
        ("Accept", "text/html"),
    )
    done = redactor.headers(headers)
    assert done.value == (
        ("Cookie", "a=[masked:cookie]; b=[masked:cookie]"),
        ("Set-Cookie", "session=[masked:cookie]; Path=/; HttpOnly"),
        ("Authorization", "Bearer [masked:authorization]"),
        ("Proxy-Authorization", "[masked:authorization]"),
        ("X-WP-Nonce", "[masked:token]"),
        ("x-device", "[masked:header]"),
        ("Referer", "http://h/p?token=[masked:token]&a=b"),
        ("Accept", "text/html"),
    )


def test_bodies_by_their_type() -> None:
    redactor = Redactor(secrets=frozenset({"hunter22"}), field_names=frozenset({"IBAN"}))
    form = redactor.body(b"title=Hi+there&pwd=abc&iban=DE89&note=it+is+hunter22", "application/x-www-form-urlencoded")
    assert form.value == b"title=Hi+there&pwd=[masked:password]&iban=[masked:field]&note=it is [masked:secret]"
    posted = {"title": "Hi", "meta": [{"csrfToken": "abc", "n": 1}], "text": "hunter22"}
    done = json.loads(redactor.body(json.dumps(posted).encode(), "application/json; charset=utf-8").value)
    assert done == {"title": "Hi", "meta": [{"csrfToken": "[masked:token]", "n": 1}], "text": "[masked:secret]"}
    multipart = (
        b'--B\r\nContent-Disposition: form-data; name="nonce"\r\n\r\nabc\r\n'
        b'--B\r\nContent-Disposition: form-data; name="title"\r\n\r\nHi\r\n--B--\r\n'
    )
    parts = redactor.body(multipart, "multipart/form-data; boundary=B").value
    assert parts == multipart.replace(b"\r\n\r\nabc", b"\r\n\r\n[masked:token]")
    binary = b"\xff\xfe\x00hunter22\x80"
    assert redactor.body(binary, "application/octet-stream").value == b"\xff\xfe\x00[masked:secret]\x80"
    assert redactor.body(b"{broken hunter22", "application/json").value == b"{broken [masked:secret]"


def test_a_record_is_masked_by_its_keys_and_keeps_its_own_digests() -> None:
    digest = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
    record = {
        "time": "2026-01-01T00:00:00+00:00",
        "request": {
            "url": "http://h/?token=abcd",
            "headers": [["Content-Type", "application/x-www-form-urlencoded"], ["Cookie", "s=1"]],
            "body": "csrf=abcd&title=Hi",
            "body_sha256": digest,
        },
        "answer": {"headers": {"Set-Cookie": "s=2"}, "body_hex": b"pw hunter22".hex()},
        "operation_id": digest,
        "note": digest,
        "password": "abcd",
        "writes": 3,
        "sent": True,
    }
    done = Redactor(secrets=frozenset({"hunter22"})).record(record).value
    assert done["request"] == {
        "url": "http://h/?token=[masked:token]",
        "headers": [["Content-Type", "application/x-www-form-urlencoded"], ["Cookie", "s=[masked:cookie]"]],
        "body": "csrf=[masked:token]&title=Hi",
        "body_sha256": digest,
    }
    assert done["answer"]["headers"] == {"Set-Cookie": "s=[masked:cookie]"}
    assert bytes.fromhex(done["answer"]["body_hex"]) == b"pw [masked:secret]"
    assert done["operation_id"] == digest
    assert (done["note"], done["password"]) == ("[masked:token]", "[masked:password]")
    assert (done["writes"], done["sent"]) == (3, True)


def test_html_is_masked_by_field_and_made_inert() -> None:
    page = """<!DOCTYPE html><html><head><base href="//evil/"><meta name="csrf-token" content="metatoken1">
    <meta http-equiv="refresh" content="0;url=//evil/"><script>var nonce="scripttok"</script></head>
    <body onload="x()"><!-- comment with s3cret99 -->
    <input type=password value=passwd11><input type="hidden" name="authenticity_token" value='hidden22'>
    <input name=title value="A &amp; B"><textarea name="api_key">area33</textarea>
    <a href=" java&#10;script:alert(1)" data-nonce="data44">x</a><a href="/p?_wpnonce=link55&amp;q=1">y</a>
    <iframe srcdoc="<script>1</script>"></iframe><p>s3&#99;ret99 and s3cret<b>99</b></p>
    <style>p:after{content:"</style>
    <svg><script>2</script><a xlink:href="javascript:1">z</a></svg><object data="x"><p>inside</p></object>
    </body></html>"""
    done = Redactor(secrets=frozenset({"s3cret99"})).html(page).value
    for gone in (
        "metatoken1", "scripttok", "passwd11", "hidden22", "area33", "data44", "link55", "s3cret99", "<script",
        "onload", "javascript", "//evil", "inside", "comment",
    ):  # fmt: skip
        assert gone not in done, gone
    assert done.startswith('<!doctype html><meta charset="utf-8"><meta http-equiv="Content-Security-Policy"')
    assert 'value="A &amp; B"' in done
    assert "<p>[masked:secret] and s3cret<b>99</b></p>" in done
