"""What a [[sink]] of this kind takes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from tokiod.bus.keyed_messages import ValueForm  # noqa: TC001 - msgspec reads annotations
from tokiod.change_sink import SinkConfig
from tokiod.collector import LOCAL_HOSTS
from tokiod.option import option
from tokiod.units import Duration

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_WINDOW_SECONDS = 3600
SYSTEM = "{system}"
MAX_TOPIC_CHARS = 249
"""Of Kafka."""

_is_server = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(:(?P<port>[0-9]{1,5}))?").fullmatch
_is_topic = re.compile(r"[A-Za-z0-9._-]+").fullmatch

Login = Literal["SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN", "GSSAPI"]


class Config(SinkConfig, kw_only=True, forbid_unknown_fields=True, frozen=True):
    """Topics of a Kafka cluster. It is written to with TLS, a user and a password, or a Kerberos ticket, or with neither."""

    needs: ClassVar[tuple[str, str] | None] = ("aiokafka", "kafka")

    servers: Annotated[
        tuple[str, ...], option("Brokers to begin with; they name the others.", '["broker1:9092", "broker2:9092"]', values="host:port")
    ]
    topic: Annotated[
        str,
        option("The topic of a system.", values=f"letters, digits, `.`, `_`, `-` and `{SYSTEM}`, which stands for the system's name"),
    ] = f"tokiod.{SYSTEM}"
    window: Annotated[
        Duration,
        option(
            "The rows of one key. A change of any row sends the rows of its window again.",
            values="1 s to 1 h, a divisor of 1 h",
            effect="the next rows; rewind the sink into an empty topic, or consumers keep rows of windows that are no longer sent",
        ),
    ] = Duration(60)
    value: Annotated[
        ValueForm,
        option('The form of the values: "wire" is that of the feed; "json", for consumers without numpy, is larger.'),
    ] = "wire"
    compression: Annotated[Literal["none", "gzip"], option("How messages are compressed. A topic may compress them, too.")] = "none"
    tls: Annotated[bool, option("Whether to connect with TLS.")] = False
    tls_ca: Annotated[
        str | None, option("The authorities of the brokers' certificates; default: those of the system.", '"/etc/tokiod/kafka-ca.pem"')
    ] = None
    tls_cert: Annotated[
        str | None, option("The client's certificate, if the brokers require one; with tls_key.", '"/etc/tokiod/kafka-client.pem"')
    ] = None
    tls_key: Annotated[str | None, option("The key of the client's certificate.", '"/etc/tokiod/kafka-client.key"')] = None
    login: Annotated[
        Login | None,
        option(
            "How to log in. GSSAPI is Kerberos: it needs the extra `kerberos`, and takes a ticket of the user of the process, or the key "
            "in the file that the environment variable KRB5_CLIENT_KTNAME names.",
            '"SCRAM-SHA-512"',
        ),
    ] = None
    user: Annotated[str | None, option("The user, with login and a password.", '"tokiod"')] = None
    password_file: Annotated[
        str | None, option("A file of secrets, or systemd credential, with the user's password.", '"kafka-password"')
    ] = None
    password_env: Annotated[
        str | None, option("An environment variable with the user's password, instead of a file.", '"KAFKA_PASSWORD"')
    ] = None
    kerberos_service: Annotated[str, option("The first part of the brokers' principals, with GSSAPI.")] = "kafka"

    def topic_of(self, system: str) -> str:
        """Return the topic of a system."""
        return self.topic.replace(SYSTEM, system)

    def faults(self) -> list[str]:
        """Return the errors of servers, topic and window, and of options that contradict each other."""
        return [*self._server_faults(), *self._topic_faults(), *self._access_faults()]

    def _server_faults(self) -> Iterator[str]:
        if not self.servers:
            yield "servers: at least one is required"
        for server in self.servers:
            found = _is_server(server)
            if found is None or not 0 < int(found["port"] or 1) < 2**16:
                yield f'servers: expected "host:port", got {server!r}'

    def _topic_faults(self) -> Iterator[str]:
        plain = self.topic_of("x")
        if not _is_topic(plain) or plain in {".", ".."} or len(plain) > MAX_TOPIC_CHARS:
            yield f"topic: {self.topic!r} is not a name of a topic: use letters, digits, `.`, `_`, `-` and `{SYSTEM}`"
        if not 0 < self.window <= MAX_WINDOW_SECONDS or MAX_WINDOW_SECONDS % self.window:
            yield "window: must be 1 s to 1 h, and divide 1 h"

    def _access_faults(self) -> Iterator[str]:
        if self.password_file and self.password_env:
            yield "password_env: password_file is set already"
        has_password = bool(self.password_file or self.password_env)
        if self.login in {None, "GSSAPI"}:
            if self.user or has_password:
                yield 'user: user and password require login = "SCRAM-SHA-512", "SCRAM-SHA-256" or "PLAIN"'
        elif not self.user or not has_password:
            yield f"login: {self.login} requires user, and password_file or password_env"
        if (self.tls_cert is None) != (self.tls_key is None):
            yield "tls_cert: tls_cert and tls_key are required together"
        if not self.tls and (self.tls_ca or self.tls_cert or self.tls_key):
            yield "tls: must be true if tls_ca, tls_cert or tls_key is set"

    def warnings(self) -> list[str]:
        """Return a warning if the password crosses a network in the clear."""
        is_open = self.login == "PLAIN" and not self.tls
        remote = [server for server in self.servers if server.rpartition(":")[0] not in LOCAL_HOSTS]
        return [f"login: the password goes to {remote[0]} in the clear: set tls"] if is_open and remote else []
