"""Embeddings: short vectors that depend on nothing but the text."""

import base64
import hashlib
import json
import struct

from backstay.practice.generated import Body, Generated, Stamp, model_of
from backstay.practice.prompt import read_input
from backstay.practice.refusals import Refused

DIMENSIONS = 8
DIMENSIONS_MAX = 4096


def generate(body: Body, stamp: Stamp) -> Generated:
    model = model_of(body)
    prompts = read_input(body.get("input"), "input")
    size = body.get("dimensions", DIMENSIONS)
    if not isinstance(size, int) or not 1 <= size <= DIMENSIONS_MAX:
        raise Refused(400, f"Invalid 'dimensions': 1 to {DIMENSIONS_MAX}.", "invalid_value", "dimensions")
    packed = body.get("encoding_format") == "base64"
    data = []
    for index, prompt in enumerate(prompts):
        vector = vector_of(prompt.text, size)
        shown = base64.b64encode(struct.pack(f"<{size}f", *vector)).decode() if packed else vector
        data.append({"object": "embedding", "index": index, "embedding": shown})
    asked = sum(prompt.tokens for prompt in prompts)
    usage = {"prompt_tokens": asked, "total_tokens": asked}
    return Generated(json.dumps({"object": "list", "data": data, "model": model, "usage": usage}), asked, 0, asked)


def vector_of(text: str, size: int) -> list[float]:
    """Numbers from -1 to 1, drawn from the text itself."""
    raw = hashlib.shake_128(text.encode("utf-8", "surrogatepass")).digest(size)
    return [round(byte / 127.5 - 1, 6) for byte in raw]
