"""A PostgreSQL primary and its standby, both private: the primary dies for good, and the standby takes over."""

from types import TracebackType
from typing import Self

from typing_extensions import override

from tests.servers.postgres import HOST, PrivatePostgres


class StandbyPostgres(PrivatePostgres):
    """A copy of another server, which it follows until it is promoted."""

    def __init__(self, primary: PrivatePostgres, port: int | None = None) -> None:
        super().__init__(in_memory=True)
        self._primary = primary
        self._own_port = port

    @override
    def _make_data(self) -> None:
        source = f"host={HOST} port={self._primary.port} user=postgres application_name=standby"
        self._run("pg_basebackup", "-d", source, "--write-recovery-conf", "--checkpoint=fast", "--no-sync")

    @override
    def _start_on_free_port(self) -> None:
        if self._own_port is None:
            super()._start_on_free_port()
        else:
            self.port = self._own_port
            self._start_on(self.port)

    def promote(self) -> None:
        """From here on it takes writes."""
        self._run("pg_ctl", "promote", "-w")


class PostgresPair:
    """`with PostgresPair() as pair:` has two servers, on two ports that stay. If they are synchronous, a commit waits
    until both have it."""

    def __init__(self, synchronous: bool) -> None:
        self._synchronous = synchronous
        self.primary = PrivatePostgres(in_memory=True)
        self.standby: StandbyPostgres | None = None

    def __enter__(self) -> Self:
        self.primary.start()
        try:
            if self._synchronous:  # the standby copies the setting, which counts when it is promoted
                self.primary.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
            self.add_standby()
            self.primary.execute("SELECT pg_reload_conf()")
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        if self.standby is not None:
            self.standby.stop()
        self.primary.stop()

    def url(self, dbname: str) -> str:
        assert self.standby is not None
        return f"postgresql://postgres@{HOST}:{self.primary.port},{HOST}:{self.standby.port}/{dbname}"

    def fail_over(self) -> None:
        """The primary is gone for good, and the standby takes its place. With `synchronous` nobody can commit before
        there is a new standby."""
        assert self.standby is not None
        self.primary.kill9()
        self.standby.promote()
        self._lost_port = self.primary.port
        self.primary.stop()
        self.primary, self.standby = self.standby, None

    def add_standby(self) -> None:
        self.standby = StandbyPostgres(self.primary, getattr(self, "_lost_port", None))
        self.standby.start()
