"""What a run says is said while it goes on, once."""

import pytest

from backstay.rows.progress import LastState, choose_progress


def test_what_the_run_says_is_shown_at_the_next_look_and_once(capsys: pytest.CaptureFixture[str]) -> None:
    line, view = choose_progress(None), LastState()
    view.say("3 of 4 are known; 1 will be sent")
    line.draw(view)
    assert capsys.readouterr().err == "3 of 4 are known; 1 will be sent\n"
    line.draw(view)
    line.close(view)
    assert capsys.readouterr().err == ""


def test_nothing_is_said_without_progress(capsys: pytest.CaptureFixture[str]) -> None:
    line, view = choose_progress(False), LastState()
    view.say("3 of 4 are known; 1 will be sent")
    line.draw(view)
    line.close(view)
    assert capsys.readouterr().err == ""
