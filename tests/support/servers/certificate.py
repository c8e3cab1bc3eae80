"""A certificate for servers that speak TLS on this machine."""

import ssl
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from socket import socket

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat


@dataclass(frozen=True)
class Certificate:
    """Files with a certificate for this machine's loopback address, and its key."""

    certificate: Path
    key: Path

    def served(self, listening: socket) -> ssl.SSLSocket:
        """What a server listens on, over TLS."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.certificate, self.key)
        return context.wrap_socket(listening, server_side=True)


def new_certificate(
    directory: Path, begins: timedelta = timedelta(days=-1), ends: timedelta = timedelta(days=1)
) -> Certificate:
    """One that signs itself: who trusts its file trusts the server. It is valid between two times from now."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + begins)
        .not_valid_after(now + ends)
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, SHA256())
    )
    files = Certificate(directory / "certificate.pem", directory / "key.pem")
    files.certificate.write_bytes(certificate.public_bytes(Encoding.PEM))
    files.key.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return files
