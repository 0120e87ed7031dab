"""The exceptions of backstay as one tree: those that a person can act on, and those that a handler may raise.

BackstayError                 exit 1
├── UsageError                exit 2
├── SchemaBehind              exit 2
├── SchemaNewer               exit 2
├── NotAllowed                exit 2
├── IdempotencyConflict       exit 2
├── NotFound                  exit 5
├── WaitTimeout               exit 6
├── DatabaseUnreachable       exit 8
│   └── DatabaseRefused       exit 8; waiting does not help
├── FilesUnreachable          exit 8
├── BrokerUnreachable         exit 8
├── RequestsRefused           exit 1; of `map`
├── RowsFailed                exit 1; of `map`
└── HandlerError              raised by handlers, turned into an outcome of the item
    ├── Transient             retried
    ├── Throttled             retried, costs no attempt
    ├── Permanent             not retried
    ├── ProviderHeld          the provider is held, the item goes back without an attempt
    ├── OutcomeUnknown        looked up at the provider before it is sent again
    └── Skip                  the item is skipped, which is not a failure

The docstring of a class is its default message.
"""

from enum import StrEnum

from backstay.core.display import NextCommand, Sentence


class ErrorCode(StrEnum):
    """The public error codes; there are no others."""

    NOT_PDF = "NOT_PDF"
    TOO_LARGE = "TOO_LARGE"
    GW_4XX = "GW_4XX"
    GW_5XX = "GW_5XX"
    GW_TIMEOUT = "GW_TIMEOUT"
    IO_ERROR = "IO_ERROR"
    NOT_READY = "NOT_READY"
    EXPIRED = "EXPIRED"
    FORBIDDEN = "FORBIDDEN"
    UNKNOWN = "UNKNOWN"


MAYBE_DONE = frozenset({ErrorCode.GW_TIMEOUT, ErrorCode.UNKNOWN})  # a call may still have been processed and paid


class BackstayError(Exception):
    """Backstay could not do what was asked."""

    exit_code: int = 1
    hint: str = ""

    def __init__(self, message: str = "", *, hint: str | None = None) -> None:
        super().__init__(message or _default_message(type(self)))
        if hint is not None:
            self.hint = hint
        if self.hint:
            self.add_note(f"Hint: {self.hint}")  # printed by a traceback; not part of str(error)

    @property
    def message(self) -> str:
        return str(self)


def _default_message(error: type[BackstayError]) -> str:
    # Python -OO drops docstrings; the class name is then the only text there is.
    return (error.__doc__ or error.__name__).strip().splitlines()[0]


class UsageError(BackstayError):
    """The request is not valid."""

    exit_code = 2


class SchemaBehind(BackstayError):
    """The database schema is older than this version of backstay."""

    exit_code = 2
    hint = Sentence("run `", NextCommand("migrate"), "`")


class SchemaNewer(BackstayError):
    """The database schema is newer than this version of backstay."""

    exit_code = 2
    hint = "upgrade backstay"


class NotAllowed(BackstayError):
    """This is not allowed in the present state."""

    exit_code = 2


class IdempotencyConflict(BackstayError):
    """The idempotency key was used before with a different body."""

    exit_code = 2
    hint = "send the same body again, or use a new key"


class NotFound(BackstayError):
    """The requested object does not exist."""

    exit_code = 5


class WaitTimeout(BackstayError):
    """The job did not finish in the time given."""

    exit_code = 6
    hint = "the job continues; wait again, or wait longer"


class DatabaseUnreachable(BackstayError):
    """The database cannot be reached."""

    exit_code = 8
    hint = "check the database URL, and whether the server is running"


class DatabaseRefused(DatabaseUnreachable):
    """The database server refuses this account."""

    hint = "check the user, the password and the database name in the URL"


class FilesUnreachable(BackstayError):
    """The place where files are kept cannot be reached."""

    exit_code = 8
    hint = "check the folder or the bucket in BACKSTAY_DATA"


class BrokerUnreachable(BackstayError):
    """The broker cannot be reached."""

    exit_code = 8
    hint = "start the broker, or correct BACKSTAY_BROKER_URL; until then workers poll the database"


class HandlerError(BackstayError):
    """The handler could not finish the item."""


class Transient(HandlerError):
    """The provider failed for now; the item is tried again."""

    def __init__(
        self, message: str = "", code: ErrorCode = ErrorCode.GW_5XX, retry_after_seconds: float | None = None
    ) -> None:
        super().__init__(message)
        self.code = code
        self.retry_after_seconds = retry_after_seconds


class Throttled(HandlerError):
    """The provider asked for fewer calls; the item waits and loses no attempt."""

    def __init__(self, message: str = "", retry_after_seconds: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


class Permanent(HandlerError):
    """The item can never succeed as it is."""

    def __init__(self, message: str = "", code: ErrorCode = ErrorCode.UNKNOWN) -> None:
        super().__init__(message)
        self.code = code


class ProviderHeld(HandlerError):
    """The provider refuses the account: credentials, quota or balance."""

    def __init__(self, message: str = "") -> None:
        super().__init__(message)


class OutcomeUnknown(HandlerError):
    """The call may have been done and paid for."""

    def __init__(self, message: str = "") -> None:
        super().__init__(message)


class Skip(HandlerError):
    """The handler chose to skip the item."""

    def __init__(self, message: str = "") -> None:
        super().__init__(message)


class RequestsRefused(BackstayError):
    """The provider refused the first requests: the API key, the model or the requests are wrong."""


class RowsFailed(BackstayError):
    """Some rows have no answer."""
