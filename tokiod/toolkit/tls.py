"""TLS contexts of clients."""

from __future__ import annotations

import ssl


def client_context(ca: str | None = None, cert: str | None = None, key: str | None = None) -> ssl.SSLContext:
    """Return a context that verifies the server's certificate and host name.

    ca: a PEM file of the authorities to trust, default: the system's; cert, key: PEM files of a client certificate.
    Raises OSError for a file that cannot be read or is invalid.
    """
    context = ssl.create_default_context(cafile=ca)
    if cert:
        context.load_cert_chain(cert, key)
    return context
