"""Certificates on both sides of the gate: leaves that the browser is shown, and whom the gate trusts upstream.

The authority's keys exist in memory only and end with the process, unless the caller brings one that is kept. Nothing
here relaxes a verification.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import ipaddress
import ssl
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_LIFETIME = timedelta(days=30)
"""Longer than any process lives; browsers accept up to 398 days."""


class CertificateAuthority:
    """An authority of this process alone, unless `key` is one that is kept: for a browser that was started before this
    process. The browser is told to accept it by its key (`spki`), for the contexts behind a gate only; it is never
    installed anywhere."""

    def __init__(self, key: ec.EllipticCurvePrivateKey | None = None) -> None:
        self._key = key or ec.generate_private_key(ec.SECP256R1())
        self._leaf_key = ec.generate_private_key(ec.SECP256R1())
        self._contexts: dict[tuple[str, tuple[str, ...]], ssl.SSLContext] = {}
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Interlock gate")])
        now = datetime.now(UTC)
        self._certificate = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name)
            .public_key(self._key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=1))
            .not_valid_after(now + _LIFETIME)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .sign(self._key, hashes.SHA256())
        )

    @cached_property
    def spki(self) -> str:
        """Base64 of the SHA-256 of the authority's public key info, as `--ignore-certificate-errors-spki-list` wants
        it. The browser looks for it in the chain that it is sent, so the chain holds the authority too."""
        info = self._key.public_key().public_bytes(
            serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        return base64.b64encode(hashlib.sha256(info).digest()).decode("ascii")

    @cached_property
    def certificate_pem(self) -> bytes:
        return self._certificate.public_bytes(serialization.Encoding.PEM)

    async def context_for(self, host: str, alpn: tuple[str, ...]) -> ssl.SSLContext:
        """The server side for one host (a DNS name in lower case or an IP address without brackets) that agrees to
        these protocols, the preferred one first; kept for the next connection. A client that names another host, or
        none, fails the handshake. Raises ValueError for a host that no certificate can name."""
        if (known := self._contexts.get((host, alpn))) is None:
            known = self._contexts[host, alpn] = await asyncio.to_thread(self._make_context, host, alpn)
        return known

    def _make_context(self, host: str, alpn: tuple[str, ...]) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(list(alpn))
        # ssl loads keys from files only: a private folder, gone before anyone connects.
        with tempfile.TemporaryDirectory(prefix="interlock-") as folder:
            file = Path(folder) / "leaf.pem"
            file.touch(mode=0o600)
            file.write_bytes(self._leaf_pem(host) + self.certificate_pem)
            context.load_cert_chain(file)
        address = _address(host)
        if address is None:

            def named(_socket: ssl.SSLObject, name: str | None, _context: ssl.SSLContext) -> int | None:
                same = name is not None and name.lower() == host
                return None if same else ssl.ALERT_DESCRIPTION_UNRECOGNIZED_NAME

            context.sni_callback = named
        return context

    def _leaf_pem(self, host: str) -> bytes:
        address = _address(host)
        now = datetime.now(UTC)
        leaf = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host[:60])]))
            .issuer_name(self._certificate.subject)
            .public_key(self._leaf_key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=1))
            .not_valid_after(now + _LIFETIME)
            .add_extension(
                x509.SubjectAlternativeName([x509.IPAddress(address) if address else x509.DNSName(host)]),
                critical=False,
            )
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        return self._leaf_key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        ) + leaf.public_bytes(serialization.Encoding.PEM)


class UnusableCertificate(Exception):
    """A certificate, a key or an authority of the settings cannot be used. The message is one sentence for a person,
    and holds no key and no password."""


@dataclass(frozen=True)
class ClientCertificate:
    """What the gate shows a site that asks who is calling: a certificate with its chain (PEM), and its key, in the same
    file where `key` is None. `password` opens the key."""

    certificate: Path
    key: Path | None = None
    password: str | None = field(default=None, repr=False)


class UpstreamTrust:
    """Whom the gate believes: the system's authorities and the private ones given (PEM files), names checked, TLS 1.2
    at least; and the certificate that it presents itself, if any. There is no way to switch the verification off."""

    def __init__(self, private_authorities: Iterable[Path] = (), client: ClientCertificate | None = None) -> None:
        self._private_authorities = tuple(private_authorities)
        self._client = client
        self._contexts: dict[tuple[str, ...], ssl.SSLContext] = {}

    @property
    def presents_certificate(self) -> bool:
        return self._client is not None

    def load(self, *offers: tuple[str, ...]) -> None:
        """Read the files now, for these offers of protocols, and not again. Raises `UnusableCertificate`."""
        for file in self._private_authorities:
            _check_authority(file)
        if self._client is not None:
            _check_client(self._client)
        for alpn in offers:
            self.context_offering(alpn)

    def context_offering(self, alpn: tuple[str, ...]) -> ssl.SSLContext:
        """The client side that offers these protocols, made once. Raises OSError (a file cannot be read) or
        ssl.SSLError (it is not what it should be)."""
        if (known := self._contexts.get(alpn)) is None:
            known = self._contexts[alpn] = self._make_context(alpn)
        return known

    def _make_context(self, alpn: tuple[str, ...]) -> ssl.SSLContext:
        context = ssl.create_default_context()
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(list(alpn))
        for file in self._private_authorities:
            context.load_verify_locations(cafile=file)
        if (client := self._client) is not None:
            # Without a word given here, OpenSSL would ask for the key's password on the terminal.
            context.load_cert_chain(client.certificate, client.key, password=client.password or "")
        return context


def _check_authority(file: Path) -> None:
    try:
        found = x509.load_pem_x509_certificates(file.read_bytes())
    except OSError as error:
        raise UnusableCertificate(f"the authority {file} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise UnusableCertificate(f"{file} holds no certificate in PEM form") from error
    if all(one.not_valid_after_utc <= datetime.now(UTC) for one in found):
        raise UnusableCertificate(f"the authority {file} has expired ({found[0].not_valid_after_utc:%Y-%m-%d})")


def _check_client(client: ClientCertificate) -> None:
    key_file = client.key or client.certificate
    try:
        leaf = x509.load_pem_x509_certificates(client.certificate.read_bytes())[0]
    except OSError as error:
        raise UnusableCertificate(
            f"the client certificate {client.certificate} cannot be read: {error.strerror}"
        ) from error
    except ValueError as error:
        raise UnusableCertificate(f"{client.certificate} holds no certificate in PEM form") from error
    now = datetime.now(UTC)
    if leaf.not_valid_after_utc <= now:
        raise UnusableCertificate(
            f"the client certificate {client.certificate} has expired ({leaf.not_valid_after_utc:%Y-%m-%d})"
        )
    if leaf.not_valid_before_utc > now:
        raise UnusableCertificate(
            f"the client certificate {client.certificate} is not valid yet ({leaf.not_valid_before_utc:%Y-%m-%d})"
        )
    try:
        text = key_file.read_bytes()
        password = client.password.encode("utf-8") if client.password is not None else None
        # A password for a key that has none is an error to this library, and none to OpenSSL.
        key = serialization.load_pem_private_key(text, password if b"ENCRYPTED" in text else None)
    except OSError as error:
        raise UnusableCertificate(f"the client key {key_file} cannot be read: {error.strerror}") from error
    except TypeError as error:
        raise UnusableCertificate(f"the client key {key_file} needs a password") from error
    except (ValueError, UnsupportedAlgorithm) as error:
        what = "the password does not open it, or it is no key" if client.password is not None else "it is no key"
        raise UnusableCertificate(f"the client key {key_file} cannot be used: {what} in PEM form") from error
    if key.public_key() != leaf.public_key():
        raise UnusableCertificate(f"the client key {key_file} does not belong to {client.certificate}")


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None
