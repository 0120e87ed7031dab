"""Three private RabbitMQ nodes that are one cluster. Each can be killed, cut off from the two others, and come back."""

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Self

from typing_extensions import override

from tests.servers.rabbitmq import HOST, START_TRIES_MAX, PrivateRabbitMQ, free_port

NODES = 3
COOKIE = "backstay"
# A node that is cut off from the majority stops serving, and goes on by itself when it has found the others again.
# All nodes start at once, and the lock by which they agree on who begins is asked for again after this time.
CONFIG = """
cluster_partition_handling = pause_minority
cluster_formation.peer_discovery_backend = classic_config
cluster_formation.internal_lock_retries = 60
"""
# A node that knows a wrong cookie of another neither connects to it nor lets it connect.
CUT = "[begin erlang:set_cookie(N, cut), erlang:disconnect_node(N) end || N <- [{others}]]."
JOIN = "[erlang:set_cookie(N, {cookie}) || N <- [{others}]]."


class ClusterNode(PrivateRabbitMQ):
    """A node whose port and peers are known before it starts."""

    def __init__(self, mapper_port: int, port: int) -> None:
        super().__init__(mapper_port)
        self.port = port
        self.peers: list[ClusterNode] = []

    @override
    def _start_on_free_port(self) -> None:
        self._write("rabbitmq.conf", CONFIG + "".join(self._peer_lines()))
        self._write(".erlang.cookie", COOKIE)
        self._start()

    def _peer_lines(self) -> list[str]:
        names = sorted(node.name for node in (self, *self.peers))
        return [f"cluster_formation.classic_config.nodes.{at} = {name}\n" for at, name in enumerate(names, 1)]

    def _write(self, name: str, text: str) -> None:
        path: Path = self.folder / name
        path.write_text(text)
        path.chmod(0o400)
        if self._account:
            shutil.chown(path, self._account, self._account)

    def cut_off(self) -> None:
        """No other node reaches it, and it reaches none, so it stops serving clients."""
        self.control("eval", CUT.format(others=self._others()))

    def join_again(self) -> None:
        """Returns when it serves clients again."""
        self.control("eval", JOIN.format(others=self._others(), cookie=COOKIE))
        self._wait_until_open()

    def _others(self) -> str:
        return ", ".join(f"'{node.name}'" for node in self.peers)


class RabbitMQCluster:
    """`with RabbitMQCluster() as cluster:` has three nodes, on three ports that stay."""

    def __init__(self) -> None:
        self.nodes: list[ClusterNode] = []

    def __enter__(self) -> Self:
        for left in reversed(range(START_TRIES_MAX)):
            self.nodes = _unstarted()
            try:
                self._all("__enter__")
                break
            except RuntimeError:
                # Somebody may have taken a port since; others are free.
                self.stop()
                if not left:
                    raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    def stop(self) -> None:
        """At once, because their mapper stays as long as it knows of one of them."""
        self._all("stop")

    @property
    def url(self) -> str:
        places = ",".join(f"{HOST}:{node.port}" for node in self.nodes)
        return f"amqp://guest:guest@{places}/"

    def prefix(self) -> str:
        """A name that no other test on this cluster has."""
        return self.nodes[0].prefix()

    def _all(self, act: str) -> None:
        with ThreadPoolExecutor(NODES) as pool:
            for done in [pool.submit(getattr(node, act)) for node in self.nodes]:
                done.result()


def _unstarted() -> list[ClusterNode]:
    mapper_port = free_port()
    nodes = [ClusterNode(mapper_port, free_port()) for _ in range(NODES)]
    for node in nodes:
        node.peers = [peer for peer in nodes if peer is not node]
    return nodes
