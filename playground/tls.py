"""The site's own certificate authority and server certificate, made in the data directory.

Only for loopback names. The authority's private key is never written down: once the server certificate is
issued, nothing else can be issued under it.
"""

from __future__ import annotations

import ipaddress
import os
import ssl
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

VALIDITY = timedelta(days=30)
RENEW_BEFORE = timedelta(days=1)


@dataclass(frozen=True)
class TlsFiles:
    """PEM files: the authority to trust, and the server's certificate with its key."""

    ca: Path
    leaf: Path
    key: Path


def ensure(directory: Path) -> TlsFiles:
    """Certificate files in `directory`: those present while they are good for another day, else new ones."""
    files = TlsFiles(directory / "ca.pem", directory / "leaf.pem", directory / "leaf.key")
    if not _still_good(files):
        _issue(files, datetime.now(UTC))
    return files


def server_context(files: TlsFiles, *, http2: bool = False) -> ssl.SSLContext:
    """With `http2` the client may agree upon HTTP/2 (ALPN), and need not."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.leaf, files.key)
    context.set_alpn_protocols(["h2", "http/1.1"] if http2 else ["http/1.1"])
    return context


def _still_good(files: TlsFiles) -> bool:
    if not (files.ca.exists() and files.leaf.exists() and files.key.exists()):
        return False
    leaf = x509.load_pem_x509_certificate(files.leaf.read_bytes())
    return leaf.not_valid_after_utc > datetime.now(UTC) + RENEW_BEFORE


def _issue(files: TlsFiles, now: datetime) -> None:
    ca_key = ec.generate_private_key(ec.SECP256R1())
    leaf_key = ec.generate_private_key(ec.SECP256R1())
    ca_name = _name("Playground local authority")
    ca_id = x509.SubjectKeyIdentifier.from_public_key(ca_key.public_key())
    ca_usage = _usage(key_cert_sign=True, crl_sign=True)
    ca = (
        _builder(ca_name, ca_name, ca_key.public_key(), now)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(ca_usage, critical=True)
        .add_extension(ca_id, critical=False)
        .sign(ca_key, hashes.SHA256())
    )
    names = x509.SubjectAlternativeName([x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    leaf = (
        _builder(_name("localhost"), ca_name, leaf_key.public_key(), now)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(digital_signature=True), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(names, critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(leaf_key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(ca_id), critical=False)
        .sign(ca_key, hashes.SHA256())
    )
    key_pem = leaf_key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    descriptor = os.open(files.key, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(key_pem)
    files.leaf.write_bytes(leaf.public_bytes(serialization.Encoding.PEM))
    files.ca.write_bytes(ca.public_bytes(serialization.Encoding.PEM))


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + VALIDITY)
    )


def _usage(*, digital_signature: bool = False, key_cert_sign: bool = False, crl_sign: bool = False) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=digital_signature,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=key_cert_sign,
        crl_sign=crl_sign,
        encipher_only=False,
        decipher_only=False,
    )
