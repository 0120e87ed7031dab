"""Every fault is made for real in a set-up that is healthy otherwise, and found, with what to do about it."""

from collections.abc import Awaitable, Callable

import pytest

from backstay.cli.doctor import Level
from tests.doctor import inner_faults as inner
from tests.doctor import server_faults as around
from tests.doctor.doctor_rig import SECRETS, Ward

pytestmark = pytest.mark.slow

Fault = Callable[[Ward], Awaitable[None]]
WARN, FAIL = Level.WARN, Level.FAIL

FAULTS: list[tuple[Fault, str, Level, str, str]] = [
    (around.the_server_is_down, "database", FAIL, "cannot reach PostgreSQL", "check the database URL"),
    (
        around.the_password_is_wrong,
        "database",
        FAIL,
        "password authentication failed",
        "correct the user and the password",
    ),
    (around.it_is_migrated_one_short, "schema", FAIL, "is needed", "run `backstay migrate`"),
    (around.its_schema_is_newer, "schema", FAIL, "the database has schema 9999", "upgrade backstay"),
    (around.it_does_not_sync, "durability", FAIL, "fsync is off", "set fsync = on in postgresql.conf"),
    (around.it_writes_half_pages, "durability", FAIL, "full_page_writes is off", "set full_page_writes = on"),
    (around.it_commits_later, "durability", FAIL, "synchronous_commit is off", "set synchronous_commit = on"),
    (
        around.a_transaction_is_left_open,
        "old transactions",
        WARN,
        "of user postgres, application 'report', whose last query began at",
        "SELECT pg_terminate_backend(",
    ),
    (around.it_gives_few_connections, "connections", WARN, "of 27 are open", "raise max_connections"),
    (
        around.a_pooler_takes_sessions_apart,
        "connections",
        FAIL,
        "uses transaction pooling",
        "?listen=off&prepared_statem",
    ),
    (
        around.a_pooler_refuses_our_settings,
        "connections",
        FAIL,
        "uses transaction pooling",
        "?listen=off&prepared_statem",
    ),
    (around.the_clock_is_wrong, "clock", FAIL, " s from the database's", "synchronize this machine's clock with NTP"),
    (
        around.the_broker_is_down,
        "broker",
        FAIL,
        "cannot be reached",
        "start the broker, or correct BACKSTAY_BROKER_URL",
    ),
    (
        around.the_broker_has_several_nodes_and_classic_queues,
        "broker",
        WARN,
        "several nodes, and queues are classic",
        "set BACKSTAY_BROKER_QUEUES=quorum",
    ),
    (around.the_broker_refuses_the_password, "broker", FAIL, "ACCESS_REFUSED", "correct the user and the password"),
    (around.the_broker_has_no_such_vhost, "broker", FAIL, "refuses the vhost", "correct the vhost in"),
    (around.a_queue_has_other_arguments, "broker", FAIL, ".callbacks was declared differently", "delete the queue"),
    (around.the_broker_was_wiped, "broker", WARN, "nothing is declared under", "backstay broker declare"),
    (around.messages_were_set_aside, "broker", WARN, "holds 1 messages that no worker", "backstay broker replay"),
    (around.the_dead_queue_is_full, "broker", FAIL, "is full: it holds 1 messages", "BACKSTAY_BROKER_DEAD_MESSAGES"),
    (around.nobody_consumes, "broker", FAIL, "1 messages wait in", "start a worker with this broker"),
    (around.redis_is_down, "redis", FAIL, "Redis does not answer", "start it, or correct BACKSTAY_REDIS_URL"),
    (around.redis_refuses_the_password, "redis", FAIL, "Redis does not answer", "correct BACKSTAY_REDIS_URL"),
    (around.the_bucket_is_missing, "files", FAIL, "does not store files: ", "check the bucket name"),
    (around.the_folder_cannot_be_made, "files", FAIL, "cannot create the folder ", "choose another with --data"),
    (around.the_folder_cannot_be_written_to, "files", FAIL, "does not store files: ", "this user can write to it"),
    (
        around.everyone_can_read_the_folder,
        "folder permissions",
        WARN,
        "every user of this machine can read /",
        "chmod o-rwx /",
    ),
    (around.others_can_read_the_key, "folder permissions", FAIL, "other users can read /", "chmod 600 /"),
    (around.the_provider_is_down, "providers", FAIL, "cannot be reached", "check the base URL"),
    (around.the_provider_refuses_the_key, "providers", FAIL, "refuses the key of OPENAI_API_KEY", "set OPENAI_API_KEY"),
    (around.the_gateway_is_down, "providers", FAIL, "the gateway at 127", "correct BACKSTAY_GATEWAY_URL"),
    (around.a_provider_is_held, "breakers", WARN, "openai is held: the balance", "backstay provider release openai"),
    (inner.a_variable_is_misspelt, "settings", WARN, "BACKSTAY_REDIS_ULR is not a setting", "mean BACKSTAY_REDIS_URL?"),
    (inner.the_settings_file_is_broken, "settings", FAIL, "backstay.toml is not valid TOML", ""),
    (inner.a_setting_is_out_of_range, "settings", FAIL, "setting file_days", "or as BACKSTAY_FILE_DAYS"),
    (inner.an_extra_is_missing, "extras", FAIL, "the broker needs aio_pika", "pip install 'backstay[rabbitmq]'"),
    (inner.a_library_is_too_old, "versions", FAIL, "asyncpg 0.1 is installed", "pip install --upgrade 'backstay[p"),
    (inner.few_files_may_be_open, "open files", WARN, "250 files may be open, up to 300 may be needed", "ulimit -n"),
    (inner.the_disk_is_full, "disk space", FAIL, "GiB free of", "free some space"),
    (inner.there_is_no_common_key, "secret key", FAIL, "the service will not start", "set BACKSTAY_SECRET_KEY"),
    (inner.nobody_runs_the_handler, "backlog", FAIL, "echo: 2 items unfinished, 0 live workers", "start a worker"),
    (inner.a_worker_died_with_its_leases, "dead leases", WARN, "2 items leased to a worker on here", "start a worker"),
    (inner.items_are_stuck, "stuck items", FAIL, "2", "start a worker"),
    (inner.a_submit_broke_off, "unsealed jobs", WARN, "job 1 has been open for new items for 60", "job cancel 1"),
    (inner.hints_do_not_leave, "outbox", FAIL, "1 hint not published, the oldest for 12", "broker off"),
    (
        inner.no_broker_is_named_where_hints_are_written,
        "broker",
        WARN,
        "no broker URL is set here",
        "backstay broker off",
    ),
]


# A fault that others follow from.
FOLLOWED: dict[Fault, set[str]] = {
    around.a_pooler_refuses_our_settings: {"database"},  # it takes no session settings from anybody
    inner.nobody_runs_the_handler: {"broker"},  # no worker has made its queue yet
    inner.a_worker_died_with_its_leases: {"broker"},
    inner.items_are_stuck: {"broker"},
    inner.a_submit_broke_off: {"broker"},
}


async def test_a_healthy_set_up_shows_no_finding(ward: Ward) -> None:
    assert await ward.ills() == []


@pytest.mark.parametrize(
    ("fault", "check", "level", "says", "advice"), FAULTS, ids=[fault.__name__ for fault, *_ in FAULTS]
)
async def test_a_fault_is_found(ward: Ward, fault: Fault, check: str, level: Level, says: str, advice: str) -> None:
    await fault(ward)
    ills = await ward.ills()
    found = [finding for name, finding in ills if name == check]
    assert [finding.level for finding in found] == [level], ills
    assert says in found[0].says
    assert advice in found[0].advice
    assert {name for name, _ in ills} - FOLLOWED.get(fault, set()) == {check}, ills


@pytest.mark.parametrize(
    "fault",
    [
        around.the_password_is_wrong,
        around.the_broker_refuses_the_password,
        around.redis_refuses_the_password,
        around.the_provider_refuses_the_key,
    ],
)
async def test_no_secret_is_told(ward: Ward, fault: Fault) -> None:
    await fault(ward)
    said = " ".join(f"{finding.says} {finding.advice}" for _, finding in await ward.examined())
    assert "canary" not in said
    assert not any(secret in said for secret in SECRETS.values())
    assert "secret_key is set, and not shown, from BACKSTAY_SECRET_KEY" in said
