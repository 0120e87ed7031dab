"""One PostgreSQL server for a whole test session, started when the first test of any worker asks for it."""

from multiprocessing.connection import Client, Listener
from threading import Lock, Thread

from tests.servers.postgres import HOST, PrivatePostgres, RunningPostgres


class SharedPostgres:
    """Lives in the process that outlives all others, the xdist controller, and answers where the server is."""

    def __init__(self) -> None:
        # A port leaves nothing behind when the session is killed; a socket file would.
        self._listener = Listener((HOST, 0))
        self._lock = Lock()
        self._server: PrivatePostgres | None = None
        self._answer: RunningPostgres | Exception | None = None
        self._closed = False
        Thread(target=self._answer_all, name="shared-postgres", daemon=True).start()

    @property
    def port(self) -> int:
        return int(self._listener.address[1])

    def close(self) -> None:
        # The lock waits for a start under way, so that there is something whole to stop.
        with self._lock:
            self._closed = True
            self._listener.close()
            if self._server is not None:
                self._server.stop()

    def _answer_all(self) -> None:
        while not self._closed:
            try:
                with self._listener.accept() as connection:
                    connection.send(self._start_once())
            except OSError:
                # The listener was closed, or a worker went away while it waited.
                continue

    def _start_once(self) -> RunningPostgres | Exception:
        with self._lock:
            if self._answer is None and not self._closed:
                try:
                    self._server = PrivatePostgres(in_memory=True)
                    self._server.start()
                    self._answer = RunningPostgres(self._server.binaries, self._server.port)
                except Exception as error:
                    # Whoever asked raises it; trying again for every test would only take longer.
                    self._answer = error
            return self._answer or RuntimeError("the test session is over")


def ask(port: int) -> RunningPostgres:
    """Where the session's server is; starts it if nobody asked before."""
    with Client((HOST, port)) as connection:
        answer = connection.recv()
    if isinstance(answer, Exception):
        raise answer
    assert isinstance(answer, RunningPostgres)
    return answer
