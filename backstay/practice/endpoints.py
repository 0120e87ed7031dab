"""The endpoints that make something of a body, directly or as a line of a batch."""

from typing import Any

from backstay.practice import chat, completions, embeddings, moderations, responses
from backstay.practice.generated import Body, Generate, Generated, Stamp
from backstay.practice.metadata import check_metadata
from backstay.practice.prompt import answer, bound_of, read_input, read_messages

CHAT = "/v1/chat/completions"
RESPONSES = "/v1/responses"

ENDPOINTS: dict[str, Generate] = {
    CHAT: chat.generate,
    RESPONSES: responses.generate,
    "/v1/embeddings": embeddings.generate,
    "/v1/completions": completions.generate,
    "/v1/moderations": moderations.generate,
}


def generate(url: str, body: Body, stamp: Stamp) -> Generated:
    if "metadata" in body:
        check_metadata(body["metadata"])
    return ENDPOINTS[url](body, stamp)


def answer_to(url: str, body: Body, answer_tokens: int | None = None) -> Any:
    """What the practice provider says to a request: a text, or the vector of the first input."""
    if url == CHAT:
        prompt = read_messages(body.get("messages"), "messages")
        return answer(prompt, bound_of(body, "max_completion_tokens", "max_tokens"), answer_tokens).text
    if url == RESPONSES:
        return answer(responses.read_prompt(body), bound_of(body, "max_output_tokens"), answer_tokens).text
    if url == "/v1/completions":
        prompt = read_input(body.get("prompt"), "prompt")[0]
        return answer(prompt, bound_of(body, "max_tokens") or completions.DEFAULT_BOUND, answer_tokens).text
    if url == "/v1/embeddings":
        first = read_input(body.get("input"), "input")[0]
        return embeddings.vector_of(first.text, body.get("dimensions", embeddings.DIMENSIONS))
    raise ValueError(f"nothing is said to {url}")
