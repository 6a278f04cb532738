"""What errors of Kafka mean: whether another attempt may help, and a sentence with the remedy."""

from __future__ import annotations

import socket
import ssl
from typing import TYPE_CHECKING

from aiokafka import errors as kafka

from tokiod.errors import Fatal, Transient

if TYPE_CHECKING:
    from tokiod.errors import CollectError

_LOGIN_ERRORS = (
    kafka.SaslAuthenticationFailed,
    kafka.AuthenticationFailedError,
    kafka.UnsupportedSaslMechanismError,
    kafka.IllegalSaslStateError,
)
_OTHER_LISTENER = "check tls, tls_cert, login and the port: a listener takes all clients by TLS or none, and all with a login or none"

_Meaning = tuple[tuple[type[Exception], ...], type[Transient] | type[Fatal], str]
_OF_TOPICS: tuple[_Meaning, ...] = (
    (
        (kafka.TopicAuthorizationFailedError, kafka.ClusterAuthorizationFailedError),
        Fatal,
        "{user} may not write to topic {topic!r}: grant WRITE and DESCRIBE on it, and CREATE if it does not exist",
    ),
    (
        (kafka.UnknownTopicOrPartitionError,),
        Fatal,
        "topic {topic!r} does not exist and the brokers don't create it: create it with cleanup.policy=compact,delete",
    ),
    ((kafka.InvalidTopicError,), Fatal, "the brokers don't accept the name of topic {topic!r}: change `topic`"),
    (
        (kafka.MessageSizeTooLargeError, kafka.RecordListTooLargeError, kafka.RecordTooLargeError),
        Fatal,
        "a message for topic {topic!r} is too large: raise its max.message.bytes to 1 MiB, or set a shorter `window`",
    ),
    ((kafka.PolicyViolationError,), Fatal, "a policy of the brokers refuses topic {topic!r}: {error}"),
    (
        (kafka.NotEnoughReplicasError, kafka.NotEnoughReplicasAfterAppendError),
        Transient,
        "topic {topic!r} has fewer replicas in sync than its min.insync.replicas",
    ),
    ((Exception,), Transient, "the brokers don't take messages for topic {topic!r}: {error}"),
)


def of_topic(error: Exception, topic: str, user: str | None) -> CollectError:
    """Return what an error of messages to a topic means. user: who logged in."""
    kind, sentence = next((kind, sentence) for types, kind, sentence in _OF_TOPICS if isinstance(error, types))
    who = "this client" if user is None else f"user {user!r}"
    return kind(sentence.format(user=who, topic=topic, error=_text(error)))


def of_connection(error: Exception, server: str, user: str | None) -> CollectError:
    """Return what an error of a connection to a broker means. server: host:port; user: who logs in."""
    kind: type[Transient | Fatal] = Transient
    match error:
        case _ if isinstance(error, _LOGIN_ERRORS):
            who = "the ticket" if user is None else f"user {user!r}"
            kind, sentence = Fatal, f"Kafka {server} does not accept {who}: {_text(error)}; check login, user and password, and the port"
        case ssl.SSLCertVerificationError():
            sentence = f"the certificate of Kafka {server} is not trusted: {error.verify_message}; check tls_ca and the name in `servers`"
            kind = Fatal
        case ssl.SSLError():
            kind, sentence = Fatal, f"Kafka {server} refuses TLS: {error.reason or error}; check the port, tls_cert and tls_key"
        case socket.gaierror():
            kind = Transient if error.errno == socket.EAI_AGAIN else Fatal
            sentence = f"the host of Kafka {server} is unknown: {error.strerror}; check `servers` and the name service"
        case TimeoutError():
            sentence = f"Kafka {server} does not answer; {_OTHER_LISTENER}"
        case ConnectionError() if not isinstance(error, ConnectionRefusedError):
            sentence = f"Kafka {server} closes the connection; {_OTHER_LISTENER}"
        case OSError():
            sentence = f"Kafka {server} can't be reached: {error.strerror or error}"
        case _ if type(error).__module__.startswith("gssapi"):
            kind = Fatal
            sentence = f"Kerberos gives no ticket for Kafka {server}: {_line(error)}; check KRB5_CLIENT_KTNAME and kerberos_service"
        case AssertionError():
            kind, sentence = Fatal, f'Kerberos for Kafka {server}: {_line(error)}: pip install "tokiod[kerberos]"'
        case _:
            sentence = f"Kafka {server} closes the connection: {_text(error)}; {_OTHER_LISTENER}"
    return kind(sentence)


def _text(error: Exception) -> str:
    """Return the text of an error without its number and class; the class alone for an error without a text."""
    text = _line(error)
    if text.startswith("[Error"):
        name, _, said = text.partition("] ")[2].partition(": ")
        return said or name
    return text or type(error).__name__


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:300]
