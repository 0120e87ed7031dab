"""Chat completions. This is the path that thousands a second take, so the JSON is made by hand."""

from backstay.practice.generated import Body, Generated, Stamp, model_of, quoted
from backstay.practice.prompt import answer, bound_of, read_messages, tool_tokens
from backstay.practice.refusals import Refused, wrong_type

CHOICES_MAX = 128

_CHOICE = (
    '{"index":%d,"message":{"role":"assistant","content":%s,"refusal":null,"annotations":[]},'
    '"logprobs":null,"finish_reason":"%s"}'
)


def generate(body: Body, stamp: Stamp) -> Generated:
    model = model_of(body)
    if body.get("stream"):
        raise Refused(400, "Streaming cannot be practised.", "unsupported_parameter", "stream")
    prompt = read_messages(body.get("messages"), "messages")
    bound = bound_of(body, "max_completion_tokens", "max_tokens")
    said = answer(prompt, bound, stamp.answer_tokens)
    copies = choices_of(body)
    finish = "stop" if said.whole else "length"
    choices = ",".join(_CHOICE % (index, quoted(said.text), finish) for index in range(copies))
    asked, made = prompt.tokens + tool_tokens(body), said.tokens * copies
    text = (
        f'{{"id":"chatcmpl-{stamp.mark}","object":"chat.completion","created":{stamp.created},"model":{quoted(model)},'
        f'"choices":[{choices}],"usage":{{"prompt_tokens":{asked},"completion_tokens":{made},'
        f'"total_tokens":{asked + made},"prompt_tokens_details":{{"cached_tokens":0,"audio_tokens":0}},'
        '"completion_tokens_details":{"reasoning_tokens":0,"audio_tokens":0,"accepted_prediction_tokens":0,'
        '"rejected_prediction_tokens":0}},"service_tier":"default","system_fingerprint":"fp_practice"}'
    )
    return Generated(text, asked, made, asked + (bound or said.tokens) * copies)


def choices_of(body: Body) -> int:
    copies = body.get("n")
    if copies is None:
        return 1
    if not isinstance(copies, int) or isinstance(copies, bool):
        raise wrong_type("n", "an integer")
    if not 1 <= copies <= CHOICES_MAX:
        raise Refused(400, f"Invalid 'n': it must be from 1 to {CHOICES_MAX}.", "invalid_value", "n")
    return copies
