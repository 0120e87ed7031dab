"""The command `backstay`: finds the sub-command, and turns every failure into one line and an exit code."""

import gc
import io
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

import click

import backstay
from backstay.cli.command import LazyGroup
from backstay.cli.output import note
from backstay.core.errors import BackstayError

OBJECTS_PER_COLLECTION = 10_000  # Python's default is 700; a command loads many objects, and nearly all of them stay

EXIT_CODES = {
    0: "fine",
    1: "the command failed",
    2: "wrong usage or configuration",
    3: "the job ended with failed items",
    5: "no such job, item, provider or schedule",
    6: "timed out while waiting",
    7: "a run was stopped by its budget",
    8: "the database or the broker cannot be reached",
    9: "the provider refused the first requests of a run",
    130: "interrupted",
}

COMMANDS = {
    "run": ("backstay.cli.run:run", "Send a file of LLM requests and write the results; run it again to resume."),
    "worker": ("backstay.cli.worker:worker", "Run the items of an application until stopped."),
    "tick": ("backstay.cli.worker:tick", "Work once within limits, for cron or a serverless trigger."),
    "relay": ("backstay.cli.broker:relay", "Publish messages from the outbox to a broker and to webhooks."),
    "serve": ("backstay.cli.serve:serve", "Serve the dashboard, the HTTP API and OpenAI's Files and Batches."),
    "key": ("backstay.cli.serve:key", "Create, list, revoke or rotate API keys of the HTTP service."),
    "plan": ("backstay.cli.plan:plan", "Estimate a file of requests: tokens, cost, time."),
    "show": ("backstay.cli.show:show", "Show the prompts and answers in a file of results."),
    "submit": ("backstay.cli.submit:submit", "Queue the lines of a JSON Lines file as the items of a job."),
    "jobs": ("backstay.cli.jobs:jobs", "List jobs, the newest first."),
    "job": ("backstay.cli.job:job", "Show, watch, pause, resume, cancel or retry a job; read its results."),
    "item": ("backstay.cli.jobs:item", "Show an item and why it is not running, or retry it."),
    "deadletters": (
        "backstay.cli.deadletters:deadletters",
        "List, replay, archive or restore dead letters (failed items).",
    ),
    "cache": ("backstay.cli.show:cache", "Show or clear the stored answers that later runs reuse."),
    "prune": ("backstay.cli.upkeep:prune", "Delete old jobs; archive them first if you like."),
    "schedule": ("backstay.cli.schedule:schedule", "Add, list, pause, resume, run or remove schedules (cron lines)."),
    "broker": ("backstay.cli.broker:broker", "Show or declare RabbitMQ queues, replay their dead messages."),
    "budget": ("backstay.cli.bounds:budget", "Set, list or remove budgets that several jobs share."),
    "provider": ("backstay.cli.provider:provider", "List, hold or release providers (the services you call)."),
    "providers": ("backstay.cli.provider:providers", "List the LLM providers, and what each can do."),
    "practice": ("backstay.cli.provider:practice", "Serve a stand-in for a paid provider, with faults and a bill."),
    "bounds": ("backstay.cli.bounds:bounds", "Show the most that one hour can cost with these settings."),
    "profiles": ("backstay.cli.bounds:profiles", "Show the three predefined sets of limits."),
    "migrate": ("backstay.cli.upkeep:migrate", "Upgrade the database to the schema of this version."),
    "doctor": (
        "backstay.cli.doctor.command:doctor",
        "Check the database, files, broker and providers, and say what to fix.",
    ),
}

EXAMPLES = (
    "backstay run requests.jsonl --out results.jsonl --budget 5.00",
    "backstay worker --app shop.work:backstay",
    "backstay submit items.jsonl --app shop.work:backstay --handler summarise",
    "backstay job watch 12",
    "backstay item show 12-345",
)


@click.group(
    "backstay",
    cls=LazyGroup,
    lazy=COMMANDS,
    examples=EXAMPLES,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="\b\nExit codes:\n" + "\n".join(f"  {code:>3}  {means}" for code, means in EXIT_CODES.items()),
)
@click.version_option(backstay.__version__, prog_name="backstay", message="%(prog)s %(version)s")
@click.option("--debug", is_flag=True, help="Show the traceback of an error; BACKSTAY_DEBUG=1 does the same.")
@click.pass_context
def cli(ctx: click.Context, debug: bool) -> None:
    """Runs work that calls slow, rate-limited, paid services, and survives crashes."""
    ctx.obj = debug


def main() -> NoReturn:
    gc.set_threshold(OBJECTS_PER_COLLECTION)
    _open_closed_streams()
    if isinstance(sys.stdout, io.TextIOWrapper):
        # JSON is UTF-8 wherever it goes; a character that a terminal lacks must not end the command.
        encoding = sys.stdout.encoding if sys.stdout.isatty() else "utf-8"
        sys.stdout.reconfigure(encoding=encoding, errors="backslashreplace")
    code = run(sys.argv[1:])
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            # The reader of our output has closed it. Python would complain once more when it flushes at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    sys.exit(code)


def _open_closed_streams() -> None:
    """Otherwise the next files to be opened would get the numbers of the standard streams, and their output."""
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        if getattr(sys, name) is None:
            fd = os.open(os.devnull, os.O_RDWR)
            if fd != number:
                os.dup2(fd, number)
                os.close(fd)
            setattr(sys, name, os.fdopen(number, mode, encoding="utf-8", closefd=False))


def run(args: Sequence[str]) -> int:
    """Runs one command and returns its exit code; an error is one line on stderr."""
    try:
        with cli.make_context("backstay", list(args) or ["--help"]) as context:
            cli.invoke(context)
        sys.stdout.flush()
    except click.exceptions.Exit as end:
        return end.exit_code
    except click.ClickException as error:
        return _print_error(error, error.format_message(), _where_help_is(error), error.exit_code, args)
    except (KeyboardInterrupt, click.Abort):
        note("backstay: interrupted")
        return 130
    except BrokenPipeError:
        return 0  # the reader of our output has closed it
    except BackstayError as error:
        return _print_error(error, error.message, error.hint, error.exit_code, args)
    except Exception as error:
        said = f"unexpected {type(error).__name__}: {error}"
        return _print_error(error, said, "to see the traceback, run it again with BACKSTAY_DEBUG=1", 1, args)
    return 0


def _print_error(error: Exception, message: str, hint: str, code: int, args: Sequence[str]) -> int:
    if "--debug" in args or os.environ.get("BACKSTAY_DEBUG", "0") not in ("", "0"):
        import traceback

        trace = traceback.TracebackException.from_exception(error)
        trace.__notes__ = None  # the line below says the hint
        note("".join(trace.format()).rstrip())
    sentences = [_sentence(part) for part in (message, hint) if part]
    note(f"backstay: error: {' '.join(sentences)}")
    return code


def _sentence(text: str) -> str:
    """On one line, with a full stop unless it has its own end."""
    line = " ".join(text.split())
    return line if line.endswith((".", "?", "!", "…")) else f"{line}."


def _where_help_is(error: click.ClickException) -> str:
    context = error.ctx if isinstance(error, click.UsageError) else None
    return f"see `{context.command_path} --help`" if context is not None else ""
