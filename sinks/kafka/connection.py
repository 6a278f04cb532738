"""Connections to brokers: the options of the client, and what is wrong where none can be made."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from aiokafka.conn import create_conn

from sinks.kafka.errors import of_connection
from tokiod.errors import ConfigError, Fatal
from tokiod.toolkit.tls import client_context

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sinks.kafka.config import Config

DEFAULT_PORT = 9092
_OF_CONNECTIONS = ("request_timeout_ms", "security_protocol", "ssl_context", "sasl_mechanism", "sasl_plain_username", "sasl_plain_password")
_OF_KERBEROS = ("sasl_kerberos_service_name", "sasl_kerberos_domain_name")

# Its own lines repeat at each retry; the errors of tokiod are the report.
logging.getLogger("aiokafka").setLevel(logging.CRITICAL)


def client_options(config: Config, secret: Callable[[str], str]) -> dict[str, Any]:
    """Return the options of the client. Raises Fatal for a missing secret or file."""
    security = {(False, False): "PLAINTEXT", (True, False): "SSL", (False, True): "SASL_PLAINTEXT", (True, True): "SASL_SSL"}
    options: dict[str, Any] = {
        "security_protocol": security[config.tls, config.login is not None],
        # The producer may wait twice as long.
        "request_timeout_ms": max(config.timeout * 400, 400),
        "client_id": f"tokiod-sink-{config.name}",
    }
    try:
        if config.tls:
            options["ssl_context"] = client_context(config.tls_ca, config.tls_cert, config.tls_key)
        if config.login is not None:
            options |= {"sasl_mechanism": config.login, "sasl_kerberos_service_name": config.kerberos_service}
        if config.user is not None:
            reference = f"file:{config.password_file}" if config.password_file else f"env:{config.password_env}"
            options |= {"sasl_plain_username": config.user, "sasl_plain_password": secret(reference)}
    except ConfigError as error:
        raise Fatal(str(error)) from None
    except OSError as error:
        raise Fatal(f"tls_ca, tls_cert or tls_key can't be read: {error.strerror or error}") from None
    return options


async def check_a_server(servers: Sequence[str], options: dict[str, Any]) -> None:
    """Raise what is wrong with the first server, unless one of them accepts a connection. Raises Transient and Fatal.

    The client raises only that it can't use any server, and logs why. options: those of the client; others are ignored.
    """
    own = {name: options[name] for name in (*_OF_CONNECTIONS, *_OF_KERBEROS) if name in options}
    errors = list[Exception]()
    for server in servers:
        host, port = host_and_port(server)
        try:
            (await create_conn(host, port, **own)).close()
        except Exception as error:  # noqa: BLE001 - also those of gssapi, which may not be installed
            errors.append(of_connection(error, server, options.get("sasl_plain_username")))
        else:
            return
    raise errors[0]


def host_and_port(server: str) -> tuple[str, int]:
    """Return the parts of host:port; an IPv6 address is in brackets."""
    host, colon, port = server.rpartition(":")
    if not colon or server.endswith("]"):
        host, port = server, str(DEFAULT_PORT)
    return host.strip("[]"), int(port)
