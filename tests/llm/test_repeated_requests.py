"""What has been seen before is told, in little memory and without mistake."""

from hypothesis import given
from hypothesis import strategies as st

from backstay.llm.lines import LlmRequest
from backstay.llm.repeated_requests import LineSet, Originals, Suspicion, repeats


@given(st.sets(st.integers(1, 5000)))
def test_a_set_of_lines_holds_what_was_put_in(added: set[int]) -> None:
    found = LineSet()
    for line in added:
        found.add(line)
    assert {line for line in range(6000) if line in found} == added
    assert bool(found) == bool(added)


@given(st.lists(st.sampled_from("abcdef")))
def test_suspicion_falls_on_all_that_came_twice(texts: list[str]) -> None:
    suspicion = Suspicion()
    for text in texts:
        suspicion.add(text)
    twice = {text for text in texts if texts.count(text) > 1}
    assert suspicion.narrow() == bool(twice)
    assert {text for text in "abcdef" if text in suspicion} == twice


@given(st.lists(st.sampled_from("abcdef")))
def test_repeats_are_told_with_their_first(texts: list[str]) -> None:
    expected = [(line, texts.index(text)) for line, text in enumerate(texts) if texts.index(text) < line]
    assert list(repeats((text, line) for line, text in enumerate(texts))) == expected


@given(st.lists(st.tuples(st.sampled_from(["/a", "/b"]), st.sampled_from(["{}", "{ }", "[]"]))))
def test_the_first_of_identical_requests_is_told(made: list[tuple[str, str]]) -> None:
    with Originals() as originals:
        found = [originals.first(LlmRequest(str(at), *one), at) for at, one in enumerate(made)]
    assert found == [made.index(one) for one in made]
