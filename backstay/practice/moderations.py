"""Moderations: nothing is ever flagged, and nothing is charged, as at OpenAI."""

import json

from backstay.practice.generated import Body, Generated, Stamp
from backstay.practice.prompt import read_input

CATEGORIES = (
    *("harassment", "harassment/threatening", "hate", "hate/threatening", "illicit", "illicit/violent"),
    *("self-harm", "self-harm/instructions", "self-harm/intent", "sexual", "sexual/minors"),
    *("violence", "violence/graphic"),
)


def generate(body: Body, stamp: Stamp) -> Generated:
    prompts = read_input(body.get("input"), "input")
    result = {
        "flagged": False,
        "categories": dict.fromkeys(CATEGORIES, False),
        "category_scores": dict.fromkeys(CATEGORIES, 0.0),
        "category_applied_input_types": {name: ["text"] for name in CATEGORIES},
    }
    model = body.get("model") or "practice-moderation"
    value = {"id": f"modr-{stamp.mark}", "model": model, "results": [result] * len(prompts)}
    asked = sum(prompt.tokens for prompt in prompts)
    return Generated(json.dumps(value), asked, 0, asked, free=True)
