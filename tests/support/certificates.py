"""Certificates for tests, made on the spot."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
)
from cryptography.x509.oid import NameOID


def make_certificate(
    folder: Path,
    name: str = "server",
    days: tuple[int, int] = (-1, 30),
    passphrase: bytes | None = None,
    *,
    hosts: Sequence[str] = (),
    is_ca: bool = True,
) -> tuple[Path, Path]:
    """A certificate for 127.0.0.1 that signs itself, valid from and to so many days from now; with its key.

    hosts: others that it is for. is_ca: whether it may sign others, which some clients don't take for a server's.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + timedelta(days=days[0]))
        .not_valid_after(now + timedelta(days=days[1]))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1")), *map(x509.DNSName, hosts)]),
            critical=False,
        )
        .add_extension(x509.BasicConstraints(ca=is_ca, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    encryption: KeySerializationEncryption = BestAvailableEncryption(passphrase) if passphrase else NoEncryption()
    paths = folder / f"{name}.pem", folder / f"{name}.key"
    paths[0].write_bytes(certificate.public_bytes(Encoding.PEM))
    paths[1].write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption))
    return paths
