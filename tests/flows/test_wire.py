"""What crosses the wire, read back: what a browser writes is read exactly, and what could be read in two ways is not
read at all.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import zlib
from typing import Any
from urllib.parse import urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.bodies import MAX_FIELD_BYTES, Multipart, Upload
from flows.wire import MAX_DECODED, Answer, Form, OutgoingRequest, UnreadableBody, origin_of, origin_of_url

FORM = "application/x-www-form-urlencoded"
BOUNDARY = "----WebKitFormBoundaryAbC123"
text = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | text,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(text, inner, max_size=4),
    max_leaves=12,
)


def post(body: bytes, *headers: tuple[str, str], target: str = "/publish", known: bool = True) -> OutgoingRequest:
    return OutgoingRequest("POST", "https", "cms.example", 443, target, headers, body, known)


def form(body: bytes, content_type: str = FORM) -> Form:
    return post(body, ("content-type", content_type)).form


def multipart(*parts: bytes, boundary: str = BOUNDARY) -> bytes:
    mark = b"--" + boundary.encode()
    return b"".join(mark + b"\r\n" + part + b"\r\n" for part in parts) + mark + b"--\r\n"


def part(name: str, content: bytes, *, more: str = "", head: str = "") -> bytes:
    return f'Content-Disposition: form-data; name="{name}"{more}\r\n{head}\r\n'.encode() + content


def upload(field: str, name: str, content: bytes, media_type: str = "") -> Upload:
    return Upload(field, name, media_type, len(content), hashlib.sha256(content).hexdigest())


def read_parts(*parts: bytes, content_type: str = f"multipart/form-data; boundary={BOUNDARY}") -> Form:
    return form(multipart(*parts), content_type)


def answer(body: bytes, coding: str = "") -> Answer:
    return Answer(200, (("content-encoding", coding),) if coding else (), body)


class TestQuery:
    def test_keeps_order_blank_values_and_repeats(self) -> None:
        request = post(b"", target="/a?x=1&y=&x=2&z")
        assert request.query == (("x", "1"), ("y", ""), ("x", "2"), ("z", ""))
        assert request.path == "/a"

    def test_a_repeated_name_has_no_value(self) -> None:
        request = post(b"", target="/a?status=draft&status=publish&id=7")
        with pytest.raises(UnreadableBody):
            request.query_value("status")
        assert request.query_value("id") == "7"
        assert request.query_value("absent") is None

    @pytest.mark.parametrize("twin", ["post.status", "post%20status", "%20post_status", "post_status%5B%5D"])
    def test_a_name_that_php_takes_for_the_same_is_a_repeat(self, twin: str) -> None:
        for target in (f"/a?post_status=draft&{twin}=publish", f"/a?{twin}=publish"):
            with pytest.raises(UnreadableBody):
                post(b"", target=target).query_value("post_status")

    def test_members_of_one_list_are_told_apart(self) -> None:
        request = post(b"", target="/a?meta%5Btitle%5D=t&meta%5Bbody%5D=b")
        assert request.query_value("meta[title]") == "t"
        with pytest.raises(UnreadableBody):
            request.query_value("meta")

    @given(st.lists(st.tuples(text, text)))
    def test_reads_what_python_encodes(self, pairs: list[tuple[str, str]]) -> None:
        assert post(b"", target="/a?" + urlencode(pairs)).query == tuple(pairs)


class TestUrlencoded:
    @given(st.lists(st.tuples(text, text)))
    def test_reads_what_python_encodes(self, pairs: list[tuple[str, str]]) -> None:
        assert form(urlencode(pairs).encode()).fields == tuple(pairs)

    def test_an_empty_body_is_an_empty_form(self) -> None:
        assert form(b"") == Form((), ())

    def test_a_field_that_stands_alone_has_a_value(self) -> None:
        read = form(b"title=a+b&tag=x&tag=y&empty=")
        assert (read.get("title"), read.get("empty"), read.get("gone")) == ("a b", "", None)
        with pytest.raises(UnreadableBody):
            read.get("tag")
        assert read.all("tag") == ("x", "y")
        assert list(read) == ["title", "tag", "empty"]
        assert "title" in read
        assert "gone" not in read

    def test_a_field_that_php_takes_for_the_same_is_a_repeat(self) -> None:
        for body, name in (
            (b"post_status=draft&post.status=publish", "post_status"),
            (b"status=draft&status%5B%5D=publish", "status"),
            (b"status%00=publish", "status"),
            (b"+status=publish", "status"),
        ):
            with pytest.raises(UnreadableBody):
                form(body).get(name)
            assert name in form(body)

    @pytest.mark.parametrize(
        "body",
        [
            pytest.param(b"a", id="no equals sign"),
            pytest.param(b"a=1&&b=2", id="empty field"),
            pytest.param(b"a=1;b=2", id="semicolon, a separator for some"),
            pytest.param(b"a=100%", id="broken escape"),
            pytest.param(b"a=%zz", id="escape that is not hexadecimal"),
            pytest.param(b"a=%ff", id="not UTF-8"),
            pytest.param("a=é".encode(), id="bytes that a serialiser escapes"),
        ],
    )
    def test_refuses_what_is_read_in_two_ways(self, body: bytes) -> None:
        with pytest.raises(UnreadableBody):
            _ = form(body)

    @pytest.mark.parametrize("charset", ["iso-8859-1", '"windows-1252"', "utf-16"])
    def test_refuses_another_charset(self, charset: str) -> None:
        with pytest.raises(UnreadableBody, match="charset"):
            _ = form(b"a=%C3%A9", f"{FORM}; charset={charset}")

    @pytest.mark.parametrize("charset", ["UTF-8", "utf8", '"utf-8"'])
    def test_takes_utf8_by_name(self, charset: str) -> None:
        assert form(b"a=%C3%A9", f"{FORM};charset={charset}").get("a") == "é"


class TestMultipart:
    def test_reads_fields_and_files_byte_by_byte(self) -> None:
        read = read_parts(
            part("título", "é\r\n\n\r".encode()),
            part("file", b"\x00\xff\r\n\r\n", more='; filename="a b.png"', head="Content-Type: image/png\r\n"),
        )
        assert read.fields == (("título", "é\r\n\n\r"),)
        assert read.files == (upload("file", "a b.png", b"\x00\xff\r\n\r\n", "image/png"),)

    def test_the_line_end_before_a_boundary_belongs_to_the_boundary(self) -> None:
        assert read_parts(part("a", b"x\r\n")).get("a") == "x\r\n"
        assert read_parts(part("a", b"")).get("a") == ""

    def test_no_part_at_all(self) -> None:
        assert form(f"--{BOUNDARY}--\r\n".encode(), f"multipart/form-data; boundary={BOUNDARY}") == Form((), ())

    def test_a_file_by_a_fields_name_is_a_repeat(self) -> None:
        read = read_parts(part("a", b"1"), part("a", b"2", more='; filename="a"'))
        with pytest.raises(UnreadableBody):
            read.get("a")
        assert "a" in read_parts(part("a", b"2", more='; filename="a"'))

    @given(st.lists(st.tuples(st.text("abz_[]-é %", min_size=1, max_size=8), st.binary(max_size=60)), max_size=5))
    def test_reads_what_was_framed(self, parts: list[tuple[str, bytes]]) -> None:
        read = read_parts(*(part(name, content, more='; filename="f"') for name, content in parts))
        assert read.files == tuple(upload(name, "f", content) for name, content in parts)

    @given(
        st.lists(st.binary(max_size=40) | st.just(b"\r\n--" + BOUNDARY.encode()[:-1]), max_size=4),
        st.integers(1, 60),
    )
    def test_reads_the_same_in_pieces_of_any_size(self, contents: list[bytes], size: int) -> None:
        body = multipart(
            part("a", b"1"), *(part("f", one, more='; filename="n"') for one in contents), part("b", b"\r\n")
        )
        reader = Multipart(f"multipart/form-data; boundary={BOUNDARY}")
        for start in range(0, len(body), size):
            reader.feed(body[start : start + size])
        assert reader.close() == form(body, f"multipart/form-data; boundary={BOUNDARY}")

    def test_holds_files_by_their_digests_alone_and_no_more_of_the_fields_than_fits(self) -> None:
        reader = Multipart(f"multipart/form-data; boundary={BOUNDARY}")
        head, _, tail = multipart(part("f", b"|", more='; filename="n"')).partition(b"|")
        reader.feed(head)
        for _ in range(20):
            reader.feed(b"x" * 1024 * 1024)
        assert reader.held < 1024
        reader.feed(tail)
        (file,) = reader.close().files
        assert (file.size, file.sha256) == (20 * 1024 * 1024, hashlib.sha256(b"x" * 20 * 1024 * 1024).hexdigest())
        greedy = Multipart(f"multipart/form-data; boundary={BOUNDARY}")
        with pytest.raises(UnreadableBody, match="hold more"):
            greedy.feed(multipart(part("a", b"x" * (MAX_FIELD_BYTES + 1))))

    def test_a_file_is_asked_for_by_its_field(self) -> None:
        read = read_parts(
            part("a", b"1"),
            part("f", b"2", more='; filename="n"', head="Content-Type: image/png; x=y\r\n"),
            part("f[]", b"3", more='; filename="n"'),
            part("g", b"", more='; filename=""', head="Content-Type: application/octet-stream\r\n"),
        )
        assert read.upload("g") == upload("g", "", b"", "application/octet-stream")
        assert read.upload("h") is None
        for name in ("a", "f"):
            with pytest.raises(UnreadableBody):
                read.upload(name)

    @given(st.binary(max_size=400))
    def test_reads_noise_as_nothing_or_refuses_it(self, body: bytes) -> None:
        with pytest.raises(UnreadableBody):
            _ = form(body, f"multipart/form-data; boundary={BOUNDARY}")

    @pytest.mark.parametrize("offset", range(len(BOUNDARY) + 4))
    def test_a_lost_byte_of_a_boundary_never_leaves_the_field_as_it_was(self, offset: int) -> None:
        body = multipart(part("status", b"draft"), part("title", b"t"))
        lost = body.index(b"--" + BOUNDARY.encode(), 5) + offset
        try:
            read = form(body[:lost] + body[lost + 1 :], f"multipart/form-data; boundary={BOUNDARY}")
        except UnreadableBody:
            return
        assert "title" not in list(read)
        try:
            assert read.get("status") != "draft"
        except UnreadableBody:
            return

    def test_an_inner_boundary_that_begins_like_the_outer_is_refused(self) -> None:
        inner = b"--" + BOUNDARY.encode() + b"2\r\n" + part("status", b"publish") + b"\r\n"
        with pytest.raises(UnreadableBody, match=r"framed|head"):
            _ = read_parts(part("status", b"draft\r\n" + inner))

    def test_multipart_inside_a_part_is_refused(self) -> None:
        inner = multipart(part("status", b"publish"), boundary="inner")
        with pytest.raises(UnreadableBody, match="itself multipart"):
            _ = read_parts(part("a", inner, head="Content-Type: multipart/mixed; boundary=inner\r\n"))

    @pytest.mark.parametrize(
        "body",
        [
            pytest.param(multipart(part("a", b"1")).replace(b"\r\n", b"\n"), id="bare line feeds"),
            pytest.param(b"x" + multipart(part("a", b"1")), id="text before the first boundary"),
            pytest.param(b" \r\n" + multipart(part("a", b"1")), id="blank before the first boundary"),
            pytest.param(multipart(part("a", b"1")) + b"x", id="text after the last boundary"),
            pytest.param(multipart(part("a", b"1"))[:-4], id="last boundary not closed"),
            pytest.param(multipart(part("a", b"1")) + multipart(part("b", b"2")), id="parts after the end"),
            pytest.param(multipart(part("a", b"1\n--" + BOUNDARY.encode() + b"\nx")), id="boundary after a line feed"),
            pytest.param(multipart(part("a", b"see --" + BOUNDARY.encode())), id="boundary inside a line"),
            pytest.param(multipart(b"a=1"), id="part without head"),
            pytest.param(multipart(b"\r\n1"), id="part with empty head"),
            pytest.param(multipart(b"Content-Type: text/plain\r\n\r\n1"), id="no disposition"),
            pytest.param(multipart(b"Content-Disposition: form-data\r\n\r\n1"), id="no name"),
            pytest.param(multipart(b'Content-Disposition: attachment; name="a"\r\n\r\n1'), id="not form data"),
            pytest.param(multipart(b'Content-Disposition: form-data; name="a"; name="b"\r\n\r\n1'), id="two names"),
            pytest.param(multipart(b"Content-Disposition: form-data; name*=utf-8''a\r\n\r\n1"), id="extended name"),
            pytest.param(multipart(b'Content-Disposition: form-data; name="a\\"b"\r\n\r\n1'), id="backslash in name"),
            pytest.param(multipart(b'Content-Disposition : form-data; name="a"\r\n\r\n1'), id="blank before colon"),
            pytest.param(multipart(b'Content-Disposition: form-data;\r\n name="a"\r\n\r\n1'), id="folded header"),
            pytest.param(multipart(b'Content-Disposition: form-data; name="a"\n\nX: y\r\n\r\n1'), id="feed in head"),
            pytest.param(multipart(part("a", b"1", head='Content-Disposition: form-data; name="b"\r\n')), id="twice"),
            pytest.param(
                multipart(part("a", b"MQ==", head="Content-Transfer-Encoding: base64\r\n")), id="transfer encoding"
            ),
            pytest.param(multipart(part("a", b"1", head="Content-Type: text/plain; charset=latin1\r\n")), id="charset"),
            pytest.param(multipart(part("a", b"\xff")), id="field not UTF-8"),
            pytest.param(multipart(part("a", b"1")).replace(b'"a"', b'"\xff"'), id="name not UTF-8"),
            pytest.param(b"", id="nothing"),
        ],
    )
    def test_refuses_what_is_read_in_two_ways(self, body: bytes) -> None:
        with pytest.raises(UnreadableBody):
            _ = form(body, f"multipart/form-data; boundary={BOUNDARY}")

    @pytest.mark.parametrize(
        "content_type",
        [
            "multipart/form-data",
            "multipart/form-data; boundary=",
            f"multipart/form-data; boundary={BOUNDARY}; boundary=other",
            f"multipart/form-data; boundary*0={BOUNDARY}",
            f"multipart/form-data; charset=utf-8; boundary={BOUNDARY}",
            f"multipart/mixed; boundary={BOUNDARY}",
            "multipart/form-data; boundary=ü",
        ],
    )
    def test_refuses_a_content_type_that_names_no_one_boundary(self, content_type: str) -> None:
        with pytest.raises(UnreadableBody):
            _ = read_parts(part("a", b"1"), content_type=content_type)

    def test_a_name_in_encoded_words_is_taken_as_written(self) -> None:
        assert read_parts(part("=?utf-8?q?status?=", b"draft")).get("status") is None

    def test_takes_a_quoted_boundary(self) -> None:
        assert read_parts(part("a", b"1"), content_type=f'Multipart/Form-Data; boundary="{BOUNDARY}"').get("a") == "1"


class TestJson:
    def read(self, body: bytes, content_type: str = "application/json") -> Any:
        return post(body, ("content-type", content_type)).json

    @given(json_values)
    def test_reads_what_python_writes(self, value: Any) -> None:
        assert self.read(json.dumps(value).encode()) == value
        assert self.read(json.dumps(value, ensure_ascii=False).encode(), "application/vnd.api+json") == value

    @pytest.mark.parametrize(
        "body",
        [
            pytest.param(b'{"status":"draft","status":"publish"}', id="repeated member"),
            pytest.param(b'{"a":[{"b":1,"b":1}]}', id="repeated member, deep and equal"),
            pytest.param(b'{"status":"draft","st\\u0061tus":"publish"}', id="repeated member, escaped"),
            pytest.param(b'{"a":NaN}', id="NaN"),
            pytest.param(b"[-Infinity]", id="infinity"),
            pytest.param(b"[1e999]", id="number out of range"),
            pytest.param(b"[" + b"9" * 5000 + b"]", id="number too long to read"),
            pytest.param(b'["\\ud800"]', id="half a surrogate pair"),
            pytest.param(b"\xef\xbb\xbf{}", id="byte order mark"),
            pytest.param('{"a":1}'.encode("utf-16"), id="UTF-16"),
            pytest.param(b'["\xff"]', id="not UTF-8"),
            pytest.param(b'["a\nb"]', id="bare control character"),
            pytest.param(b"{'a':1}", id="not JSON"),
            pytest.param(b"{} {}", id="two values"),
            pytest.param(b"[1,]", id="trailing comma"),
            pytest.param(b"", id="nothing"),
            pytest.param(b"[" * 100_000, id="too deep"),
        ],
    )
    def test_refuses_what_is_read_in_two_ways(self, body: bytes) -> None:
        with pytest.raises(UnreadableBody):
            self.read(body)
        with pytest.raises(UnreadableBody):
            _ = Answer(200, (), body).json

    @pytest.mark.parametrize("content_type", ["", "text/plain", FORM, "application/jsonp", "text/json"])
    def test_reads_nothing_else_as_json(self, content_type: str) -> None:
        with pytest.raises(UnreadableBody, match="not JSON"):
            self.read(b"{}", content_type)

    def test_a_surrogate_pair_is_text(self) -> None:
        assert self.read(b'["\\ud83d\\ude00"]') == ["😀"]


class TestBodyThatNobodyMayRead:
    @pytest.mark.parametrize("reader", ["form", "json"])
    def test_invisible_to_the_gate(self, reader: str) -> None:
        kind = FORM if reader == "form" else "application/json"
        with pytest.raises(UnreadableBody, match="not visible"):
            getattr(post(b"", ("content-type", kind), known=False), reader)

    @pytest.mark.parametrize("coding", ["gzip", "identity", "br"])
    @pytest.mark.parametrize("reader", ["form", "json"])
    def test_encoded(self, reader: str, coding: str) -> None:
        kind = FORM if reader == "form" else "application/json"
        with pytest.raises(UnreadableBody, match="encoded"):
            getattr(post(gzip.compress(b"{}"), ("content-type", kind), ("content-encoding", coding)), reader)

    def test_two_content_types(self) -> None:
        request = post(b"{}", ("content-type", "application/json; a=b"), ("content-type", FORM))
        with pytest.raises(UnreadableBody, match="more than once"):
            _ = request.json

    def test_neither_form_nor_named(self) -> None:
        with pytest.raises(UnreadableBody, match="absent"):
            _ = post(b"a=1").form


class TestAnswer:
    @given(st.binary(max_size=2000))
    def test_undoes_what_python_encodes(self, body: bytes) -> None:
        assert answer(gzip.compress(body), "gzip").content == body
        assert answer(gzip.compress(body), "X-GZIP").content == body
        assert answer(zlib.compress(body), "deflate").content == body
        assert answer(body).content == answer(body, "identity").content == body

    def test_an_answer_without_body_has_no_content(self) -> None:
        assert answer(b"", "gzip").content == b""

    def test_a_bomb_is_not_read(self) -> None:
        bomb = gzip.compress(bytes(MAX_DECODED + 1), 1)
        assert len(bomb) < MAX_DECODED / 100
        with pytest.raises(UnreadableBody, match="more than"):
            _ = answer(bomb, "gzip").content
        with pytest.raises(UnreadableBody, match="more than"):
            _ = answer(zlib.compress(bytes(MAX_DECODED + 1), 1), "deflate").content

    def test_the_bound_itself_is_read(self) -> None:
        assert len(answer(gzip.compress(bytes(MAX_DECODED), 1), "gzip").content) == MAX_DECODED

    @pytest.mark.parametrize("coding", ["gzip", "deflate"])
    @pytest.mark.parametrize("harm", ["cut", "tail", "second", "changed", "plain"])
    def test_a_damaged_body_is_not_read(self, coding: str, harm: str) -> None:
        whole = gzip.compress(b'{"id":1}') if coding == "gzip" else zlib.compress(b'{"id":1}')
        body = {
            "cut": whole[:-1],
            "tail": whole + b"x",
            "second": whole + whole,
            "changed": whole[:-6] + bytes([whole[-6] ^ 1]) + whole[-5:],
            "plain": b'{"id":1}',
        }[harm]
        with pytest.raises(UnreadableBody):
            _ = answer(body, coding).json

    @pytest.mark.parametrize("coding", ["br", "zstd", "gzip, gzip", "compress"])
    def test_other_codings_are_not_read(self, coding: str) -> None:
        with pytest.raises(UnreadableBody, match="no contract reads"):
            _ = answer(b"x", coding).content

    def test_text_never_fails_on_bytes(self) -> None:
        assert answer(b"a\xff").text == "a\ufffd"


class TestHeaders:
    def test_repeats_are_joined_and_kept(self) -> None:
        request = post(b"", ("accept", "a"), ("x", "1"), ("accept", "b"))
        assert request.header("Accept") == "a, b"
        assert request.header_values("ACCEPT") == ("a", "b")
        assert request.header("gone", "-") == "-"

    def test_cookies_in_the_order_sent(self) -> None:
        request = post(b"", ("cookie", 'sid=a=b; theme="x y";nameless; empty='), ("cookie", "sid=2"))
        assert request.cookies == (("sid", "a=b"), ("theme", '"x y"'), ("empty", ""), ("sid", "2"))

    def test_location_and_media_type(self) -> None:
        answer = Answer(302, (("location", "/done"), ("content-type", "Text/HTML; charset=x")))
        assert (answer.location, answer.content_type) == ("/done", "text/html")


class TestOrigins:
    @pytest.mark.parametrize(
        ("url", "origin"),
        [
            ("https://a.example:443/x?y", "https://a.example"),
            ("http://a.example:443/", "http://a.example:443"),
            ("HTTP://A.example/", "http://a.example"),
            ("http://[::1]:8080/", "http://[::1]:8080"),
            ("http://[::1]/", "http://[::1]"),
        ],
    )
    def test_of_a_url(self, url: str, origin: str) -> None:
        assert origin_of_url(url) == origin

    @pytest.mark.parametrize("url", ["", "/a", "ftp://a", "http://", "http://a:99999/", "javascript:1"])
    def test_of_nothing_else(self, url: str) -> None:
        with pytest.raises(ValueError):
            origin_of_url(url)

    def test_of_a_request(self) -> None:
        request = OutgoingRequest("GET", "http", "::1", 8080, "/a?b")
        assert (request.origin, request.url) == ("http://[::1]:8080", "http://[::1]:8080/a?b")
        assert origin_of("https", "a", 443) == "https://a"
