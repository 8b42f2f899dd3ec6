"""The certificate with which a fleet's links are encrypted: one for all its machines, beside the shared key.

Both ends of a link show it, and both accept no other: it is pinned, no authority is asked. Making one needs
the package cryptography; using it does not.
"""

from __future__ import annotations

import ssl
from pathlib import Path

from fleetchat.errors import ConfigError, InputError
from fleetchat.keys import read_private

LONGEST_FILE = 64 * 1024  # bytes
NAME = "fleetchat fleet"


def certificate_file(key_file: Path) -> Path:
    """Where the certificate lies that belongs to a key file."""
    return key_file.with_suffix(".pem")


def check_certificate(path: Path) -> Path:
    """The path, when what lies there can be used. Raises ConfigError."""
    hint = "copy it with the key from the machine that made it, or run `fleetchat fleet key --tls`"
    content = read_private(path, "certificate", longest=LONGEST_FILE, hint=hint)
    if b"-----BEGIN CERTIFICATE-----" not in content or b"PRIVATE KEY-----" not in content:
        raise ConfigError(
            f"{path} does not hold a certificate and its private key",
            hint="copy the file again from the machine that made it",
        )
    return path


def tls_context(path: Path, *, server: bool) -> ssl.SSLContext:
    """TLS 1.3 or nothing, this certificate or nothing. Raises ConfigError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False  # machines have many names; the certificate itself is compared
    context.verify_mode = ssl.CERT_REQUIRED
    try:
        context.load_cert_chain(path)
        context.load_verify_locations(path)
    except (ssl.SSLError, OSError) as error:
        raise ConfigError(f"the certificate {path} cannot be used: {error}") from error
    return context


def pinned(path: Path) -> bytes:
    """The certificate in DER form, to compare with the one that the other side shows. Raises ConfigError."""
    try:
        text = path.read_text(encoding="ascii")
        begin, end = text.index("-----BEGIN CERTIFICATE-----"), text.index("-----END CERTIFICATE-----")
        return ssl.PEM_cert_to_DER_cert(text[begin:end] + "-----END CERTIFICATE-----\n")
    except (OSError, ValueError) as error:
        raise ConfigError(f"the certificate {path} cannot be used: {error}") from error


def new_certificate() -> bytes:
    """A self-signed certificate and its private key, as PEM. Raises InputError without cryptography."""
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.x509.oid import NameOID
    except ImportError:
        raise InputError(
            "making a certificate needs the package cryptography",
            hint="python -m pip install 'fleetchat[tls]' (only on this machine: the others get a copy)",
        ) from None
    from datetime import UTC, datetime

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, NAME)])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(datetime(2020, 1, 1, tzinfo=UTC))  # clocks of old machines are wrong
        .not_valid_after(datetime(2120, 1, 1, tzinfo=UTC))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return certificate.public_bytes(serialization.Encoding.PEM) + private
