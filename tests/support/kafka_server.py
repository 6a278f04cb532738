"""A real Kafka on loopback, for one run of tests: one process, KRaft. Standard library only.

kafka_server.py [--port N]    prints its address and runs until Ctrl-C
kafka_server.py fetch         puts its jars into the cache of the tests, and reports what is missing

The clients of the plain listener may do everything. Those of the others are the only user, LOGIN, who may do what ACLs grant: with TLS and
SCRAM, with TLS and a client's certificate, and without TLS with PLAIN or Kerberos. While it starts, it uses one core for some seconds.
"""

import argparse
import base64
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path

from java import java_home
from maven import Unavailable, fetch_with_dependencies

from tokiod.simulator.sources import free_port

VERSION = "4.1.0"
ARTIFACTS = (f"org.apache.kafka:kafka_2.13:{VERSION}", f"org.apache.kafka:kafka-tools:{VERSION}")
START_SECONDS = 600
"""A busy machine takes minutes."""
STOP_SECONDS = 20
HEAP = "256m"
PARTITIONS = 3
LOGIN = ("collector", "correct horse")
SETTINGS = {
    "process.roles": "broker,controller",
    "node.id": 1,
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "PLAINTEXT",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SECURED:SASL_SSL,MUTUAL:SSL,LOGIN:SASL_PLAINTEXT",
    "num.partitions": PARTITIONS,
    "offsets.topic.replication.factor": 1,
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
    "group.initial.rebalance.delay.ms": 0,
    # Of a killed broker, which must not wait for its own old session.
    "broker.session.timeout.ms": 3000,
    "listener.name.secured.sasl.enabled.mechanisms": "SCRAM-SHA-512,SCRAM-SHA-256",
    "listener.name.secured.scram-sha-512.sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required;",
    "listener.name.secured.scram-sha-256.sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required;",
    "listener.name.secured.ssl.keystore.type": "PEM",
    "listener.name.mutual.ssl.keystore.type": "PEM",
    "listener.name.mutual.ssl.truststore.type": "PEM",
    "listener.name.mutual.ssl.client.auth": "required",
    "ssl.principal.mapping.rules": "RULE:^CN=(.*)$/$1/",
    "listener.name.login.plain.sasl.jaas.config": 'org.apache.kafka.common.security.plain.PlainLoginModule required user_{}="{}";'.format(
        *LOGIN
    ),
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
LOGGING = """rootLogger.level = WARN
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d %p %c: %m%n
"""


class KafkaServer:
    """A context manager. address: HOST:PORT of the plain listener; secured: of the one with TLS and SCRAM; ca: its certificate's PEM file.

    mutual: of the one with TLS and certificates of clients, of which client_cert and client_key are LOGIN's; login: of the one with PLAIN,
    and with Kerberos where there is a realm. settings: of server.properties, in addition to SETTINGS. Addresses and data stay the same
    after a kill and start().
    """

    def __init__(self, *, settings=(), port=0, realm=None):
        self._settings = SETTINGS | dict(settings)
        self._port, self._realm = port, realm
        self._process = self._directory = None

    def __enter__(self):
        with contextlib.ExitStack() as undo:
            undo.callback(self.stop)
            self._install()
            self.start()
            undo.pop_all()
        return self

    def __exit__(self, *_):
        self.stop()

    def _install(self):
        self._jars, self._java = fetch_with_dependencies(f"kafka-{VERSION}", ARTIFACTS), java_home()
        self._directory = Path(tempfile.mkdtemp(prefix="tokiod-kafka-"))
        (self._directory / "log4j2.properties").write_text(LOGGING)
        self.address, self.secured, self.mutual = (f"127.0.0.1:{port or free_port()}" for port in (self._port, 0, 0))
        # The name in the principal of its service.
        self.login = f"localhost:{free_port()}"
        controller = f"127.0.0.1:{free_port()}"
        listeners = {"PLAINTEXT": self.address, "SECURED": self.secured, "MUTUAL": self.mutual, "LOGIN": self.login}
        advertised = ",".join(f"{name}://{address}" for name, address in listeners.items())
        keystore = self._certify()
        self._settings |= {
            "listeners": f"{advertised},CONTROLLER://{controller}",
            "advertised.listeners": advertised,
            "controller.quorum.voters": f"1@{controller}",
            "log.dirs": self._directory / "data",
            "listener.name.secured.ssl.keystore.location": keystore,
            "listener.name.mutual.ssl.keystore.location": keystore,
            "listener.name.mutual.ssl.truststore.location": self.client_cert,
            "listener.name.login.sasl.enabled.mechanisms": "PLAIN" if self._realm is None else "PLAIN,GSSAPI",
        }
        if self._realm is not None:
            options = f'useKeyTab=true storeKey=true keyTab="{self._realm.keytab("kafka/localhost")}" principal="kafka/localhost"'
            module = "com.sun.security.auth.module.Krb5LoginModule"
            self._settings["listener.name.login.gssapi.sasl.jaas.config"] = f"{module} required {options};"
            self._settings["listener.name.login.sasl.kerberos.service.name"] = "kafka"
        text = "".join(f"{name}={value}\n" for name, value in self._settings.items())
        (self._directory / "server.properties").write_text(text)
        self._format()

    def _certify(self):
        """Make certificates of the server and of its client; return the file with the server's and its key."""
        self.ca, key = self._certificate("server", "tokiod-tests", "-addext", "subjectAltName=IP:127.0.0.1")
        self.client_cert, self.client_key = self._certificate("client", LOGIN[0])
        both = self._directory / "keystore.pem"
        both.write_text(Path(key).read_text() + Path(self.ca).read_text())
        return both

    def _certificate(self, name, owner, *more):
        """Return the files of a certificate and of its key."""
        files = [str(self._directory / f"{name}.{suffix}") for suffix in ("pem", "key")]
        wanted = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={owner}", *more, "-days", "2"]
        subprocess.run(["openssl", *wanted, "-out", files[0], "-keyout", files[1]], check=True, capture_output=True)
        return files

    def _format(self):
        # The tool takes one that begins with a hyphen for an option.
        cluster = "t" + base64.urlsafe_b64encode(uuid.uuid4().bytes).decode()[1:22]
        user, password = LOGIN
        login = [f"--add-scram={name}=[name={user},password={password}]" for name in ("SCRAM-SHA-512", "SCRAM-SHA-256")]
        done = self._run("kafka.tools.StorageTool", "format", "--cluster-id", cluster, "--config", "server.properties", *login)
        assert done.returncode == 0, done.stdout + done.stderr

    def _run(self, program, *arguments):
        """Run one of its programs to its end."""
        return subprocess.run(self._command(program, *arguments), cwd=self._directory, capture_output=True, text=True, check=False)

    def _command(self, program, *arguments):
        # One compiler and one collector's thread only: it starts with a third of the processor time.
        machine = [f"-Xmx{HEAP}", "-Xms64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData"]
        if self._realm is not None:
            machine.append(f"-Djava.security.krb5.conf={self._realm.config}")
        places = [f"-Dlog4j2.configurationFile={self._directory / 'log4j2.properties'}", "-cp", f"{self._jars}/*"]
        return [str(self._java / "bin" / "java"), *machine, *places, program, *arguments]

    def grant(self, topic, *operations):
        """Let the user of the other listeners do this with a topic: "Write", "Describe", "Create", "Read"."""
        what = [word for operation in operations for word in ("--operation", operation)]
        arguments = ["--bootstrap-server", self.address, "--add", "--allow-principal", f"User:{LOGIN[0]}", *what, "--topic", topic]
        done = self._run("org.apache.kafka.tools.AclCommand", *arguments)
        assert done.returncode == 0, done.stdout + done.stderr

    def start(self):
        """Start it, or restart it with its data after a stop or a kill; returns when it answers."""
        with (self._directory / "console.log").open("ab") as log:
            # The kernel kills it when this process ends.
            command = ["setpriv", "--pdeathsig=KILL", *self._command("kafka.Kafka", "server.properties")]
            self._process = subprocess.Popen(command, cwd=self._directory, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        deadline = time.monotonic() + START_SECONDS
        while not self._answers():
            assert self._process.poll() is None, f"Kafka ended with {self._process.returncode}:\n{self.log()}"
            assert time.monotonic() < deadline, f"Kafka was not up after {START_SECONDS} s:\n{self.log()}"
            time.sleep(0.1)

    def _answers(self):
        """Return whether all listeners are open: it opens them once it knows its cluster."""
        for address in (self.address, self.secured, self.mutual, self.login):
            host, _, port = address.partition(":")
            with socket.socket() as probe:
                if probe.connect_ex((host, int(port))) != 0:
                    return False
        return True

    def log(self):
        """Return the end of its log, for a message about a server that does not start."""
        path = self._directory / "console.log"
        return path.read_text(errors="replace")[-8000:] if path.exists() else ""

    def signal(self, number):
        """Send the server a signal; return when it is gone after SIGKILL, and when all of its threads stand still after SIGSTOP."""
        self._process.send_signal(number)
        if number == signal.SIGKILL:
            self._process.wait(STOP_SECONDS)
        elif number == signal.SIGSTOP:
            os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WNOWAIT)

    def halt(self):
        """End the process and keep the data, for another start()."""
        if self._process is None:
            return
        self._process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(STOP_SECONDS)
        self._process.kill()
        self._process.wait()
        self._process = None

    def stop(self):
        self.halt()
        if self._directory:
            shutil.rmtree(self._directory, ignore_errors=True)
            self._directory = None


def missing():
    """Return why a server can't be started here, as a sentence, or None; fetch it if it is not in the cache."""
    try:
        fetch_with_dependencies(f"kafka-{VERSION}", ARTIFACTS)
        java_home()
    except Unavailable as error:
        return str(error)
    lacking = [name for name in ("setpriv", "openssl") if shutil.which(name) is None]
    return f"not installed: {' '.join(lacking)}" if lacking else None


def main():
    parser = argparse.ArgumentParser(description="Run a real Kafka until Ctrl-C.")
    parser.add_argument("command", nargs="?", choices=["fetch"])
    parser.add_argument("--port", type=int, default=0)
    wanted = parser.parse_args()
    if wanted.command == "fetch":
        if sentence := missing():
            print(f"{sentence}; the tests that need it will skip", file=sys.stderr)
        return
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with contextlib.suppress(KeyboardInterrupt), KafkaServer(port=wanted.port) as server:
        print(server.address, server.secured, server.ca, flush=True)
        server._process.wait()
        print(server.log())


if __name__ == "__main__":
    main()
