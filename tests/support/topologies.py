"""Topologies of real servers: one server, TLS, an ACL user, a replica, Sentinel, a cluster."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Self

import redis
import redis.asyncio
from redis.asyncio.cluster import ClusterNode as AsyncClusterNode
from redis.asyncio.retry import Retry as AsyncRetry
from redis.asyncio.sentinel import Sentinel as AsyncSentinel
from redis.backoff import NoBackoff
from redis.cluster import ClusterNode
from redis.crc import key_slot
from redis.retry import Retry
from redis.sentinel import Sentinel

from sluicegate._redis.compat import CONNECTION_FOR
from tests.support import access_rights
from tests.support.servers import START_SECONDS, RedisServer, free_port
from tests.support.waiting import wait_until

SERVICE = "gate"
_SOCKET_TIMEOUT_SECONDS = 20
_DOWN_AFTER_MS = 1000


class Server(RedisServer):
    """A server that can be killed."""

    def kill(self) -> None:
        """Kill the process, as a crash would."""
        assert self._process is not None
        self._process.kill()
        self._process.wait(timeout=START_SECONDS)
        self._process = None


class Topology:
    """Servers and their clients; use it in a `with` block, or call `start` and `remove`.

    Attributes:
        name: for test ids.
        url: for `RedisMessageQueue(url=…)`.
        servers: the servers that hold data; their clients may do everything.
    """

    name = "tcp"

    def __init__(self, program: Path) -> None:
        self.program = program
        self.servers: list[Server] = []

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.servers[0].port}/0"

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.remove()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self.remove()

    def start(self) -> Topology:
        self._serve(port=free_port())
        return self

    def client(self, **options: Any) -> Any:
        """Return a client for `RedisMessageQueue(client=…)`."""
        return redis.Redis(**self._where(), **_quiet(Retry(NoBackoff(), 0)), **options)

    def async_client(self, **options: Any) -> Any:
        """Return the same for asyncio; call it in the loop."""
        return redis.asyncio.Redis(**self._where(), **_quiet(AsyncRetry(NoBackoff(), 0)), **options)

    def primary(self, key: bytes) -> redis.Redis:
        """Return a client of the server that has a key; it may do everything."""
        return self.servers[0].client()

    def inspectors(self) -> list[redis.Redis]:
        """Return a client of each primary; it may do everything."""
        return [server.client() for server in self._primaries()]

    def empty(self) -> None:
        for server in self._primaries():
            with server.client() as client:
                client.flushall()

    def remove(self) -> None:
        for server in reversed(self.servers):
            server.remove()

    def _where(self) -> dict[str, Any]:
        return {"host": "127.0.0.1", "port": self.servers[0].port}

    def _primaries(self) -> list[Server]:
        return self.servers[:1]

    def _serve(self, *options: str, port: int = 0) -> Server:
        server = Server(self.program, *options, port=port)
        self.servers.append(server)
        server.start()
        return server


class UnixServer(Topology):
    """One server on a unix socket."""

    name = "unix"

    @property
    def url(self) -> str:
        return f"unix://{self.servers[0].socket}"

    def start(self) -> Topology:
        self._serve()
        return self

    def _where(self) -> dict[str, Any]:
        return {"unix_socket_path": str(self.servers[0].socket)}


class TlsServer(Topology):
    """One server that speaks TLS, with a certificate signed by a CA made here. Tests inspect it on its unix socket."""

    name = "tls"

    def start(self) -> Topology:
        self.folder = Path(tempfile.mkdtemp(prefix="sg-tls-"))
        make_certificates(self.folder)
        self.port = free_port()
        files = {"cert": "server.crt", "key": "server.key", "ca-cert": "ca.crt"}
        options = [text for name, file in files.items() for text in (f"--tls-{name}-file", str(self.folder / file))]
        self._serve("--tls-port", str(self.port), "--tls-auth-clients", "no", *options)
        return self

    @property
    def url(self) -> str:
        return f"rediss://localhost:{self.port}/0?ssl_ca_certs={self.folder}/ca.crt"

    def remove(self) -> None:
        super().remove()
        shutil.rmtree(self.folder)

    def _where(self) -> dict[str, Any]:
        authority = str(self.folder / "ca.crt")
        return {"host": "localhost", "port": self.port, "ssl": True, "ssl_ca_certs": authority}


class AclServer(Topology):
    """One server on which the queue's user has the rights of `access_rights.RULE` and no others."""

    name = "acl"
    user, password, variable = "worker", "s3cret:/@", "SLUICEGATE_TEST_ACL_PASSWORD"
    options: tuple[str, ...] = ()

    def start(self) -> Topology:
        os.environ[self.variable] = self.password
        self._serve(*self.options, port=free_port())
        self.allow(*access_rights.RULE)
        return self

    def allow(self, *rule: str) -> None:
        """Replace the user by one with these rights."""
        for server in self.servers:
            with server.client() as client:
                client.execute_command("ACL", "SETUSER", self.user, "reset", "on", f">{self.password}", *rule)
                client.acl_log_reset()

    def refused(self) -> set[str]:
        """Return the commands that were refused since then."""
        found: set[str] = set()
        for server in self.servers:
            with server.client() as client:
                found |= {entry["object"].lower() for entry in client.acl_log()}
        return found

    @property
    def url(self) -> str:
        return f"redis://{self.user}@127.0.0.1:{self.servers[0].port}/0?password_env={self.variable}"

    def remove(self) -> None:
        super().remove()
        os.environ.pop(self.variable, None)

    def _where(self) -> dict[str, Any]:
        return {**super()._where(), "username": self.user, "password": self.password}


class ReplicatedServers(Topology):
    """A primary and synchronized replicas, for calls that wait for replicas."""

    name = "replicated"

    def __init__(self, program: Path, replicas: int = 1) -> None:
        super().__init__(program)
        self._replicas = replicas

    def start(self) -> Topology:
        primary = self._serve("--repl-diskless-sync-delay", "0", port=free_port())
        following = ("--replicaof", "127.0.0.1", str(primary.port), "--repl-diskless-sync-delay", "0")
        for replica in [self._serve(*following, port=free_port()) for _ in range(self._replicas)]:
            in_step(replica)
        return self


class SentinelServers(ReplicatedServers):
    """A primary and a replica, watched by Sentinels that name the primary."""

    name = "sentinel"

    def __init__(self, program: Path, sentinels: int = 1, replicas: int = 1) -> None:
        super().__init__(program, replicas)
        self.sentinels: list[SentinelProcess] = []
        self._count = sentinels

    def start(self) -> Topology:
        super().start()
        quorum = self._count // 2 + 1
        for _ in range(self._count):
            self.sentinels.append(SentinelProcess(self.program, self.servers[0].port, quorum))
        for sentinel in self.sentinels:
            reported = partial(sentinel.sees, replicas=len(self.servers) - 1, others=self._count - 1)
            wait_until(reported, "Sentinel knows the replicas and the other Sentinels")
        return self

    @property
    def url(self) -> str:
        return f"redis+sentinel://{','.join(f'127.0.0.1:{each.port}' for each in self.sentinels)}/{SERVICE}"

    def client(self, **options: Any) -> Any:
        manager = Sentinel(self._addresses(), sentinel_kwargs={"socket_timeout": 1})
        return manager.master_for(SERVICE, **_quiet(Retry(NoBackoff(), 0)), **options)

    def async_client(self, **options: Any) -> Any:
        manager = AsyncSentinel(self._addresses(), sentinel_kwargs={"socket_timeout": 1})
        return manager.master_for(SERVICE, **_quiet(AsyncRetry(NoBackoff(), 0)), **options)

    def primary(self, key: bytes) -> redis.Redis:
        return self._primaries()[0].client()

    def failover(self, key: bytes = b"") -> None:
        """Make a replica the primary. Until the old primary is made a replica, it accepts writes, which are lost."""
        (before,) = self._primaries()
        wait_until(self._agrees_to_failover, "Sentinel finds a replica that is good enough")
        wait_until(lambda: self.sentinels[0].primary_port() != before.port, "another primary")
        with before.client() as client:  # Sentinel does the same about ten seconds later
            client.replicaof("127.0.0.1", str(self.sentinels[0].primary_port()))

    def crash(self, key: bytes = b"") -> None:
        """Kill the primary, and wait until Sentinel names another."""
        (before,) = self._primaries()
        before.kill()
        wait_until(lambda: self.sentinels[0].primary_port() != before.port, "another primary")

    def remove(self) -> None:
        for sentinel in self.sentinels:
            sentinel.remove()
        super().remove()

    def _agrees_to_failover(self) -> bool:
        with suppress(redis.ResponseError):  # NOGOODSLAVE: Sentinel does not know enough of the replicas yet
            return bool(self.sentinels[0].ask("FAILOVER", SERVICE))
        return False

    def _addresses(self) -> list[tuple[str, int]]:
        return [("127.0.0.1", each.port) for each in self.sentinels]

    def _primaries(self) -> list[Server]:
        port = self.sentinels[0].primary_port()
        return [server for server in self.servers if server.port == port]


class SentinelProcess:
    """One Sentinel that watches one primary; it rewrites its configuration file as it goes."""

    def __init__(self, program: Path, watched: int, quorum: int) -> None:
        self.port = free_port()
        self._folder = Path(tempfile.mkdtemp(prefix="sg-sentinel-"))
        file = self._folder / "sentinel.conf"
        file.write_text(
            f"port {self.port}\ndir {self._folder}\nsentinel monitor {SERVICE} 127.0.0.1 {watched} {quorum}\n"
            f"sentinel down-after-milliseconds {SERVICE} {_DOWN_AFTER_MS}\nsentinel failover-timeout {SERVICE} 5000\n"
        )
        with (self._folder / "log").open("ab") as log:
            command = [program, file, "--sentinel"]
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        wait_until(self._answers, "Sentinel answers")

    def ask(self, *words: str) -> Any:
        with redis.Redis(port=self.port, protocol=2, retry=Retry(NoBackoff(), 0)) as client:
            return raw(client, "SENTINEL", *words)

    def primary_port(self) -> int:
        return int(self.ask("GET-MASTER-ADDR-BY-NAME", SERVICE)[1])

    def sees(self, *, replicas: int, others: int) -> bool:
        reported = self.ask("MASTER", SERVICE)
        found = dict(zip(reported[::2], reported[1::2], strict=True))
        return (int(found[b"num-slaves"]), int(found[b"num-other-sentinels"])) == (replicas, others)

    def remove(self) -> None:
        self._process.terminate()
        self._process.wait(timeout=20)
        shutil.rmtree(self._folder)

    def _answers(self) -> bool:
        assert self._process.poll() is None, (self._folder / "log").read_text()
        with suppress(redis.ConnectionError):
            return bool(self.ask("MASTERS"))
        return False


class ClusterServers(Topology):
    """Primaries that share the slots, each with a replica on request."""

    name = "cluster"

    def __init__(self, program: Path, *, primaries: int = 3, replicas: bool = False) -> None:
        super().__init__(program)
        self._count = primaries
        self._replicas = replicas

    def start(self) -> Topology:
        for _ in range(self._count * (2 if self._replicas else 1)):
            self._serve(
                *("--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf", "--cluster-node-timeout", "1500"),
                *("--repl-diskless-sync-delay", "0", "--cluster-replica-validity-factor", "0"),
                port=_port_with_bus(),
            )
        self._share_slots()
        self._meet()
        for replica, primary in zip(self.servers[self._count :], self._primaries(), strict=False):
            self._follow(replica, primary)
        for server in self.servers:
            wait_until(partial(self._is_whole, server), "the cluster is whole")
        return self

    @property
    def url(self) -> str:
        return f"redis+cluster://{','.join(f'127.0.0.1:{server.port}' for server in self.servers)}"

    def client(self, **options: Any) -> Any:
        nodes = [ClusterNode("127.0.0.1", server.port) for server in self.servers]
        return redis.RedisCluster(startup_nodes=nodes, socket_timeout=_SOCKET_TIMEOUT_SECONDS, **options)

    def async_client(self, **options: Any) -> Any:
        nodes = [AsyncClusterNode("127.0.0.1", server.port) for server in self.servers]
        return redis.asyncio.RedisCluster(startup_nodes=nodes, socket_timeout=_SOCKET_TIMEOUT_SECONDS, **options)

    def primary(self, key: bytes) -> redis.Redis:
        owner = self.owner(key)
        assert owner is not None, "nobody has the key"
        return owner.client()

    def owner(self, key: bytes) -> Server | None:
        """Return the server that has a key, or None while that server does not run."""
        slot = key_slot(key)
        ports = set()
        for server in self._alive():
            with server.client() as client:
                shares = raw(client, "CLUSTER", "SLOTS")
            ports |= {share[2][1] for share in shares if share[0] <= slot <= share[1]}
        found = [server for server in self._alive() if server.port in ports]
        return found[0] if len(ports) == 1 and found else None

    def failover(self, key: bytes) -> None:
        """Make the replica of a key's primary the primary, and wait until it is."""
        _, replica = self._pair(key)
        with replica.client() as client:
            raw(client, "CLUSTER", "FAILOVER")
        wait_until(lambda: self.owner(key) is replica, "the replica has become the primary")

    def crash(self, key: bytes) -> None:
        """Kill a key's primary, wait until its replica has taken over, and restart it as a replica."""
        primary, replica = self._pair(key)
        primary.kill()
        wait_until(lambda: self.owner(key) is replica, "the replica has become the primary")
        primary.start()

    def begin_to_move(self, key: bytes) -> tuple[Server, Server]:
        """Begin to move a key's slot to another primary, key by key; return both primaries."""
        source = self.owner(key)
        assert source is not None, "nobody has the key"
        target = next(server for server in self._primaries() if server is not source)
        self._set_slot(target, key, "IMPORTING", source)
        self._set_slot(source, key, "MIGRATING", target)
        return source, target

    def finish_moving(self, key: bytes, source: Server, target: Server) -> None:
        """Move the slot's keys, and announce the new owner to every primary."""
        with source.client() as client:
            keys = raw(client, "CLUSTER", "GETKEYSINSLOT", key_slot(key), 1000)
            if keys:
                raw(client, "MIGRATE", "127.0.0.1", target.port, "", 0, 5000, "KEYS", *keys)
        for server in (target, source, *(other for other in self._primaries() if other not in (source, target))):
            self._set_slot(server, key, "NODE", target)

    def _set_slot(self, server: Server, key: bytes, state: str, other: Server) -> None:
        with other.client() as client:
            name = raw(client, "CLUSTER", "MYID")
        with server.client() as client:
            raw(client, "CLUSTER", "SETSLOT", key_slot(key), state, name)

    def _alive(self) -> list[Server]:
        return [server for server in self.servers if server.runs]

    def _pair(self, key: bytes) -> tuple[Server, Server]:
        """Return the server that has a key, and the one that will have it next."""
        primary = self.owner(key)
        assert primary is not None, "nobody has the key"
        return primary, self.servers[(self.servers.index(primary) + self._count) % len(self.servers)]

    def _primaries(self) -> list[Server]:
        return self.servers[: self._count]

    def _share_slots(self) -> None:
        for position, server in enumerate(self._primaries()):
            slots = range(16384 * position // self._count, 16384 * (position + 1) // self._count)
            with server.client() as client:
                raw(client, "CLUSTER", "ADDSLOTS", *slots)
                raw(client, "CLUSTER", "SET-CONFIG-EPOCH", self.servers.index(server) + 1)

    def _meet(self) -> None:
        with self.servers[0].client() as client:
            for server in self.servers[1:]:
                raw(client, "CLUSTER", "MEET", "127.0.0.1", server.port)

    def _follow(self, replica: Server, primary: Server) -> None:
        with primary.client() as client:
            name = raw(client, "CLUSTER", "MYID")
        with replica.client() as client:
            wait_until(lambda: name in raw(client, "CLUSTER", "NODES"), "the replica knows its primary")
            raw(client, "CLUSTER", "REPLICATE", name)
        in_step(replica)

    def _is_whole(self, server: Server) -> bool:
        with server.client() as client:
            reported = raw(client, "CLUSTER", "INFO")
            known = len(raw(client, "CLUSTER", "NODES").splitlines())
            return (
                b"cluster_state:ok" in reported
                and b"cluster_size:%d" % self._count in reported
                and known == len(self.servers)
            )


class AclCluster(ClusterServers):
    """A cluster on which the queue's user has the same rights."""

    name = "acl-cluster"
    allow, refused = AclServer.allow, AclServer.refused  # type: ignore[assignment]
    user, password, variable = AclServer.user, AclServer.password, AclServer.variable

    def start(self) -> Topology:
        super().start()
        os.environ[self.variable] = self.password
        self.allow(*access_rights.RULE, *access_rights.FOR_CLUSTER)
        return self

    @property
    def url(self) -> str:
        hosts = ",".join(f"127.0.0.1:{server.port}" for server in self.servers)
        return f"redis+cluster://{self.user}@{hosts}?password_env={self.variable}"

    def client(self, **options: Any) -> Any:
        return super().client(username=self.user, password=self.password, **options)

    def async_client(self, **options: Any) -> Any:
        return super().async_client(username=self.user, password=self.password, **options)

    def remove(self) -> None:
        super().remove()
        os.environ.pop(self.variable, None)


def make_certificates(folder: Path, names: str = "DNS:localhost,IP:127.0.0.1") -> None:
    """Write `ca.crt`, `server.crt` and `server.key` for these names, valid for two days."""

    def openssl(*words: str) -> None:
        subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)

    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    openssl("req", "-x509", *key, "-keyout", "ca.key", "-out", "ca.crt", "-subj", "/CN=test authority", "-days", "2")
    openssl("req", *key, "-keyout", "server.key", "-out", "server.csr", "-subj", "/CN=test server")
    (folder / "names").write_text(f"subjectAltName={names}")
    signed = ("-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-extfile", "names")
    openssl("x509", "-req", "-in", "server.csr", "-out", "server.crt", *signed)


def in_step(replica: Server) -> None:
    """Wait until a replica has its primary's data."""
    with replica.client() as client:
        wait_until(lambda: client.info("replication").get("master_link_status") == "up", "the replica is in step")


def _quiet(retry: object) -> dict[str, Any]:
    return {"retry": retry, "socket_timeout": _SOCKET_TIMEOUT_SECONDS}


def _port_with_bus() -> int:
    """Return a free port p whose p + 10,000, the cluster bus, is free and below the ports of outgoing connections."""
    while True:
        port = free_port()
        if port < 22_000:
            with suppress(OSError), socket.create_server(("127.0.0.1", port + 10_000)):
                return port


def raw(client: redis.Redis, *words: Any) -> Any:
    """Return a reply as it came; redis-py parses some replies into structures that differ by its version."""
    connection = client.connection_pool.get_connection(*CONNECTION_FOR)
    try:
        connection.send_command(*words)
        return connection.read_response(disable_decoding=True)
    finally:
        client.connection_pool.release(connection)
