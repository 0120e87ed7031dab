"""The tree of exceptions: what they say, how the command line exits, and what a handler may attach."""

import inspect
import pickle
import traceback

import pytest

from backstay.core import errors, failures
from backstay.core.errors import BackstayError, ErrorCode, HandlerError, Permanent, Throttled, Transient

EVERY_ERROR = [cls for _, cls in inspect.getmembers(errors, inspect.isclass) if issubclass(cls, BackstayError)]


def test_there_are_ten_public_codes_and_no_other():
    codes = "NOT_PDF TOO_LARGE GW_4XX GW_5XX GW_TIMEOUT IO_ERROR NOT_READY EXPIRED FORBIDDEN UNKNOWN"
    assert " ".join(ErrorCode) == codes
    assert failures.ErrorCode is ErrorCode


@pytest.mark.parametrize("error", EVERY_ERROR)
def test_without_a_message_an_error_says_its_docstring(error):
    assert str(error()) == error.__doc__


@pytest.mark.parametrize("error", EVERY_ERROR)
def test_a_message_that_was_given_is_kept(error):
    assert str(error("the lamp is off")) == "the lamp is off"


@pytest.mark.parametrize("error", EVERY_ERROR)
def test_the_tree_at_the_top_of_the_module_names_every_error(error):
    assert f" {error.__name__} " in f" {errors.__doc__} ".replace("\n", " ")


@pytest.mark.parametrize(
    ("name", "exit_code"),
    [
        ("BackstayError", 1),
        ("UsageError", 2),
        ("SchemaBehind", 2),
        ("SchemaNewer", 2),
        ("NotAllowed", 2),
        ("IdempotencyConflict", 2),
        ("NotFound", 5),
        ("WaitTimeout", 6),
        ("DatabaseUnreachable", 8),
    ],
)
def test_each_error_has_its_exit_code(name, exit_code):
    assert getattr(errors, name)().exit_code == exit_code


def test_a_schema_that_is_behind_says_to_migrate_and_one_that_is_newer_to_upgrade():
    assert "backstay migrate" in errors.SchemaBehind().hint
    assert "upgrade backstay" in errors.SchemaNewer().hint


def test_a_hint_of_ones_own_belongs_to_the_one_error_only():
    assert errors.NotFound("no job 7", hint="list them").hint == "list them"
    assert errors.NotFound("no job 8").hint == ""


@pytest.mark.parametrize("error", [errors.NotFound("no job 7", hint="list them"), errors.SchemaBehind()])
def test_a_traceback_says_the_hint_once_and_the_message_is_without_it(error):
    trace = "".join(traceback.format_exception(error))
    assert trace.endswith(f"{error.message}\nHint: {error.hint}\n")
    assert trace.count(error.hint) == 1
    assert error.hint not in error.message


def test_an_error_without_a_hint_has_no_note():
    assert not hasattr(errors.NotFound("no job 8"), "__notes__")


@pytest.mark.parametrize("name", ["Transient", "Throttled", "Permanent", "ProviderHeld", "OutcomeUnknown", "Skip"])
def test_what_a_handler_may_raise_is_a_handler_error(name):
    assert issubclass(getattr(errors, name), HandlerError)


def test_what_a_handler_attached_survives_a_process_boundary():
    for error in (Transient("m", ErrorCode.IO_ERROR, 3.5), Throttled("m", 2), Permanent("m", ErrorCode.NOT_PDF)):
        copy = pickle.loads(pickle.dumps(error))
        assert (str(copy), vars(copy)) == (str(error), vars(error))
