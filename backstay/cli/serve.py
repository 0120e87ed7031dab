"""`backstay serve`: the HTTP service, with a worker inside."""

import os
from typing import TYPE_CHECKING, Any

import click

from backstay.cli import access, output
from backstay.cli.command import Command, app_option, db_option, log_level_option
from backstay.core.errors import UsageError

if TYPE_CHECKING:
    from backstay.app import Backstay

LOOPBACK = ("127.0.0.1", "::1", "localhost")


@click.command(
    "serve",
    cls=Command,
    examples=(
        "backstay serve --base-url http://127.0.0.1:9000/v1 --db sqlite:///runs.db",
        "backstay serve --host 0.0.0.0 --port 8000 --db postgresql://… --data s3://bucket/backstay --no-worker",
    ),
)
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option(
    "--port", type=click.IntRange(0, 65_535), default=8000, show_default=True, help="The port; 0 takes a free one."
)
@click.option("--base-url", help="Where the requests of batches go, an OpenAI-compatible service.")
@click.option("--api-key-env", default="OPENAI_API_KEY", show_default=True, help="The variable that holds its key.")
@click.option("--concurrency", type=click.IntRange(1, 10_000), default=100, show_default=True, help="Calls at once.")
@click.option("--data", help="Where files are kept: a folder, or s3://bucket/prefix.")
@click.option("--worker/--no-worker", "works", default=True, show_default=True, help="Do the work in this process too.")
@click.option("--require-key", is_flag=True, help="Ask for a key on this machine as well.")
@click.option("--strict-openai", is_flag=True, help="Refuse what OpenAI refuses.")
@app_option
@db_option
@log_level_option
@click.pass_context
def serve(ctx: click.Context, /, db: str | None, app: str | None, log_level: str | None, **given: Any) -> None:
    """Serves the HTTP API, OpenAI's Files and Batches among it, and does the work that comes in.

    From this machine no key is needed unless --require-key is given; from elsewhere, always. SIGTERM or Ctrl-C ends it
    in order: running requests and items get their grace.
    """
    from backstay.cli.running import log_to_stderr

    try:
        import fastapi  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError:
        raise UsageError("the service needs its extra", hint="pip install 'backstay[service]'") from None
    loaded = access.served_app(app, db) if app else access.open_app(db, must_exist=False)
    if given["data"]:
        loaded.settings = loaded.settings.model_copy(update={"data": given["data"]})
    log_to_stderr(loaded, log_level, False)
    ctx.exit(access.run(_serve(loaded, given)))


async def _serve(loaded: "Backstay", given: dict[str, Any]) -> int:
    import uvicorn

    from backstay.clock import collect_rarely
    from backstay.llm.endpoint import Endpoint, parts_of
    from backstay.server.app import create_app
    from backstay.server.listening import Listening
    from backstay.server.service import Options

    collect_rarely()
    upstream = None
    if given["base_url"]:
        parts_of(given["base_url"])
        upstream = Endpoint(given["base_url"], key_env=given["api_key_env"])
    here = given["host"] in LOOPBACK
    options = Options(
        open_here=here and not given["require_key"],
        strict_openai=given["strict_openai"],
        upstream=upstream,
        concurrency=given["concurrency"],
        works=given["works"],
    )
    app = create_app(loaded, options)
    config = uvicorn.Config(
        app,
        *(given["host"], given["port"]),
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=int(loaded.limits.shutdown_seconds),
        timeout_keep_alive=75,
        lifespan="on",
    )
    server = Listening(config, app)
    output.note(f"backstay: serving on http://{given['host']}:{given['port']} (process {os.getpid()})")
    await server.serve()
    return 0 if server.started else 1
