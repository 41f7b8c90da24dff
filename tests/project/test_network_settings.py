"""From `settings.toml` to the way that a gate goes: whose proxy, authorities and certificate, for each host."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from pydantic import ValidationError

from executor.errors import NotReady
from executor.gate.dialling import Route, Site
from executor.network import routes_of_a_run
from executor.settings import Settings

OWN, OTHER, UNNAMED = (Site("https", host, 443) for host in ("cms.example", "media.example", "cdn.example"))


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("INTERLOCK_HOME", str(tmp_path))
    return tmp_path


@pytest.fixture
def certificate(home: Path) -> Path:
    """A certificate with its key, in one file that its owner alone may read."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "caller")])
    now = dt.datetime.now(dt.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    file = home / "caller.pem"
    file.touch(mode=0o600)
    file.write_bytes(
        made.public_bytes(serialization.Encoding.PEM)
        + key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return file


def ways(home: Path, text: str, flow: str = "wordpress") -> dict[Site, Route]:
    (home / "settings.toml").write_text(text, encoding="utf-8")
    routes = routes_of_a_run(Settings(), flow, "https://cms.example/news")
    return {site: routes.to(site) for site in (OWN, OTHER, UNNAMED)}


def test_each_host_goes_its_own_way(home: Path, certificate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROXY_LOGIN", "agent:very secret")
    found = ways(
        home,
        """
        upstream_proxy = "http://proxy.example:3128/"
        no_proxy = ["cms.example"]
        [flow."wordpress"]
        upstream_proxy_credentials = "env:PROXY_LOGIN"
        [site."https://media.example"]
        upstream_proxy = "https://[2001:db8::1]:8443"
        """,
    )
    assert found[OWN].proxy_for(OWN) is None
    common, own = found[UNNAMED].proxy_for(UNNAMED), found[OTHER].proxy_for(OTHER)
    assert common is not None and own is not None
    assert (common.scheme, common.host, common.port) == ("http", "proxy.example", 3128)
    assert common.authorization == "Basic YWdlbnQ6dmVyeSBzZWNyZXQ="
    assert (own.scheme, own.host, own.port) == ("https", "2001:db8::1", 8443)
    assert "very secret" not in repr(found) and "YWdl" not in repr(found)
    assert ways(home, 'upstream_proxy = "http://p:1"\n[flow."wordpress"]\nupstream_proxy = ""')[OWN].proxy is None


def test_a_certificate_is_shown_to_the_runs_own_site_and_where_a_table_names_it(home: Path, certificate: Path) -> None:
    general = f'client_certificate = "{certificate}"\n'
    table = f'[site."https://media.example"]\nclient_certificate = "{certificate}"\n'
    for text, shown in (
        (general, [OWN]),
        (f'{general}[site."https://media.example"]\nlook_s = 9\n', [OWN]),
        (table, [OTHER]),
        (general + table, [OWN, OTHER]),
        ("", []),
    ):
        found = ways(home, text)
        assert [site for site, route in found.items() if route.trust.presents_certificate] == shown, text


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('upstream_proxy = "http://agent:secret@proxy.example:3128"', "an address holds no credentials"),
        ('upstream_proxy = "proxy.example:3128"', "a proxy is http://HOST:PORT"),
        ('upstream_proxy = "http://proxy.example:70000"', "a proxy is http://HOST:PORT"),
        ('upstream_proxy = "socks5://proxy.example:1080"', "a proxy is http://HOST:PORT"),
        ('no_proxy = ["*.intranet.example"]', r"'\*.intranet.example' is no HOST"),
        ('client_key = "key.pem"', "mean nothing without client_certificate"),
    ],
)
def test_what_cannot_be_meant_is_refused(text: str, said: str, home: Path) -> None:
    with pytest.raises(ValidationError, match=said) as refused:
        ways(home, text)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("upstream_proxy_credentials = 'env:NOT_THERE'", "in the variable NOT_THERE, which is not set"),
        ("upstream_proxy_credentials = '{home}/none'", "cannot be read: No such file"),
        ("upstream_proxy_credentials = '{home}/open'", "is open to others: chmod 600"),
        ("upstream_proxy_credentials = '{home}/wordless'", "not one line of the form user:password"),
        ("client_certificate = '{home}/open'", "is open to others: chmod 600"),
        ("client_certificate = '{home}/wordless'", "holds no certificate in PEM form. Nothing was dispatched"),
        ("client_certificate = '{home}/caller.pem'\nclient_key_password = '{home}/open'", "is open to others"),
        ("trust = ['{home}/wordless']", "holds no certificate in PEM form"),
    ],
)
def test_files_that_cannot_be_used_are_named_in_one_sentence(
    text: str, said: str, home: Path, certificate: Path
) -> None:
    for name, mode, words in (("open", 0o644, "a:b"), ("wordless", 0o600, "word")):
        file = home / name
        file.write_text(words, encoding="utf-8")
        file.chmod(mode)
    proxied = 'upstream_proxy = "http://proxy.example:3128"\n'
    with pytest.raises(NotReady, match=said) as refused:
        ways(home, proxied + text.format(home=home))
    assert "\n" not in str(refused.value)
