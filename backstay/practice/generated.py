"""What an endpoint makes of a request: the answer's JSON, and the tokens that it took."""

from collections.abc import Callable, Mapping
from json.encoder import encode_basestring_ascii
from typing import Any, NamedTuple

from backstay.practice.refusals import missing, wrong_type

Body = Mapping[str, Any]

quoted = encode_basestring_ascii  # a text as JSON, many times quicker than json.dumps


class Stamp(NamedTuple):
    """What an answer carries that its request does not say."""

    mark: str  # unique, the tail of an id
    created: int
    answer_tokens: int | None = None
    mishap: str = "ok"


class Generated(NamedTuple):
    """`reserved_tokens` is what a rate limit counts: the prompt and the most that was allowed for the answer."""

    text: str
    input_tokens: int
    output_tokens: int
    reserved_tokens: int
    free: bool = False


Generate = Callable[[Body, Stamp], Generated]


def model_of(body: Body) -> str:
    model = body.get("model")
    if model is None:
        raise missing("model")
    if not isinstance(model, str):
        raise wrong_type("model", "a string")
    return model
