"""Completions of plain prompts, the older sister of chat."""

import json

from backstay.practice.chat import choices_of
from backstay.practice.generated import Body, Generated, Stamp, model_of
from backstay.practice.prompt import answer, bound_of, read_input
from backstay.practice.refusals import Refused

DEFAULT_BOUND = 16  # what this endpoint allows when nothing is said


def generate(body: Body, stamp: Stamp) -> Generated:
    model = model_of(body)
    if body.get("stream"):
        raise Refused(400, "Streaming cannot be practised.", "unsupported_parameter", "stream")
    prompts = read_input(body.get("prompt"), "prompt")
    bound = bound_of(body, "max_tokens") or DEFAULT_BOUND
    copies = choices_of(body)
    said = [answer(prompt, bound, stamp.answer_tokens) for prompt in prompts for _ in range(copies)]
    asked, made = sum(prompt.tokens for prompt in prompts), sum(each.tokens for each in said)
    choices = [
        {"index": index, "text": each.text, "logprobs": None, "finish_reason": "stop" if each.whole else "length"}
        for index, each in enumerate(said)
    ]
    value = {
        "id": f"cmpl-{stamp.mark}",
        "object": "text_completion",
        "created": stamp.created,
        "model": model,
        "choices": choices,
        "usage": {"prompt_tokens": asked, "completion_tokens": made, "total_tokens": asked + made},
    }
    return Generated(json.dumps(value), asked, made, asked + bound * len(said))
