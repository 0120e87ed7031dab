"""`backstay serve`: what it says when it starts, when it cannot, and when it ends."""

import re
import signal
import socket
import urllib.error
import urllib.request

import pytest

from tests.cli.shell import Running, Shell, eventually


def where(running: Running) -> str:
    """The address that it says it serves on."""
    found = eventually(lambda: re.search(r"serving on (http://\S+) ", running.said))
    return str(found[1])


@pytest.mark.slow
@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM])
def test_it_says_where_it_is_when_it_is_there_and_ends_in_order(sqlite_shell: Shell, end: signal.Signals) -> None:
    with sqlite_shell.start("serve", "--port", 0) as running:
        with urllib.request.urlopen(f"{where(running)}/livez", timeout=30) as answer:
            assert answer.read() == b'{"status":"ok"}'
        running.send(end)
        assert running.wait() == (130 if end is signal.SIGINT else -signal.SIGTERM)
        assert (
            "batches are refused: no --base-url or --provider is given, so their requests have no destination"
            in running.said
        )
        assert "worker stopped" in running.said
        assert "needs a key" not in running.said


@pytest.mark.slow
def test_off_this_machine_it_says_that_a_key_is_needed_and_asks_for_it(sqlite_shell: Shell) -> None:
    upstream = ("--base-url", "http://127.0.0.1:1/v1")
    with sqlite_shell.start("serve", "--port", 0, "--host", "0.0.0.0", *upstream) as running:
        port = where(running).rpartition(":")[2]
        assert "every request needs a key, `backstay key create` creates one" in eventually(lambda: running.said)
        with pytest.raises(urllib.error.HTTPError, match="401"):
            urllib.request.urlopen(f"http://127.0.0.1:{port}/api/jobs", timeout=30)
        assert "batches are refused" not in running.said


def opens_without_a_key(shell: Shell, *options: str) -> bool:
    with shell.start("serve", "--port", 0, *options) as running:
        try:
            urllib.request.urlopen(f"{where(running)}/api/jobs", timeout=30).close()
        except urllib.error.HTTPError as error:
            return {401: "every request needs a key" not in eventually(lambda: running.said)}[error.code]
        return True


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "options", "opens"),
    [
        ({}, [], True),
        ({}, ["--require-key"], False),
        ({"BACKSTAY_PUBLIC_URL": "http://localhost:8000"}, [], True),
        ({"BACKSTAY_PUBLIC_URL": "https://backstay.example"}, [], False),
        ({"BACKSTAY_PUBLIC_URL": "https://backstay.example"}, ["--no-require-key"], True),
        ({"BACKSTAY_TRUSTED_PROXIES": "127.0.0.1"}, [], False),
    ],
)
def test_a_service_that_is_reached_from_elsewhere_asks_for_a_key_here_as_well(
    settings: dict[str, str], options: list[str], opens: bool, sqlite_shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    assert opens_without_a_key(sqlite_shell, *options) is opens


def test_a_port_in_use_is_said_before_anything_begins(sqlite_shell: Shell) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ran = sqlite_shell("serve", "--port", port)
    assert (ran.code, ran.said) == (
        2,
        [
            f"backstay: error: port {port} of 127.0.0.1 is in use. "
            "stop the program that uses it, or choose another --port.",
        ],
    )


@pytest.mark.parametrize(
    ("options", "settings", "says"),
    [
        (["--host", "nowhere.invalid"], {}, "the host 'nowhere.invalid' has no address to listen on"),
        (["--host", "203.0.113.7"], {}, "this machine has no address 203.0.113.7"),
        (["--data", "shop.py"], {}, "cannot create the folder shop.py"),
        ([], {"BACKSTAY_REDIS_URL": "here"}, "the Redis URL is not valid"),
        ([], {"BACKSTAY_GATEWAY_URL": "here"}, "the gateway's URL must begin with http:// or https://"),
        ([], {"BACKSTAY_PUBLIC_URL": "here:80"}, "public_url must begin with http:// or https://"),
        ([], {"BACKSTAY_TRUSTED_PROXIES": "nginx"}, "trusted_proxies: 'nginx' is not an address or a network"),
        (
            ["--host", "0.0.0.0", "--no-require-key"],
            {},
            "--no-require-key works only for a service that listens on this",
        ),
        ([], {"BACKSTAY_REMOTE_KINDS": "writing"}, "'writing' is not valid: write kind:seconds"),
        ([], {"BACKSTAY_INSIDE_HOSTS": "here"}, "inside_hosts: 'here' has no port"),
        (["--base-url", "https://api.openai.com/v1"], {"OPENAI_API_KEY": ""}, "OPENAI_API_KEY is not set"),
        (["--base-url", "127.0.0.1:9000"], {}, "the base URL must begin with http:// or https://"),
    ],
)
def test_what_keeps_it_from_starting_is_one_line(
    options: list[str], settings: dict[str, str], says: str, sqlite_shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    ran = sqlite_shell("serve", "--port", 0, *options)
    assert (ran.code, len(ran.said)) == (2, 1), ran.err
    assert says in ran.err


def test_a_database_that_is_not_there_has_the_exit_code_of_that(
    sqlite_shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BACKSTAY_START_WAIT_SECONDS", "0")
    ran = sqlite_shell("serve", "--port", 0, "--db", "postgresql://nobody@127.0.0.1:1/nothing", "--data", "files")
    assert (ran.code, len(ran.said)) == (8, 1), ran.err
