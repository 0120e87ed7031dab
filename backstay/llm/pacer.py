"""What a lane's answers say about the pace that its provider bears."""

from backstay.core.pace import Answers
from backstay.llm.headers import Learned

THROTTLED = 429


class Pacer:
    """Told of every answer; the engine asks its `answers` now and then, and all workers keep to what they say."""

    def __init__(self) -> None:
        self.answers = Answers()

    def answered(self, status: int, seconds: float, learned: Learned) -> None:
        exhausted = [
            reset_ms
            for remaining, reset_ms in (
                (learned.requests_remaining, learned.requests_reset_ms),
                (learned.tokens_remaining, learned.tokens_reset_ms),
            )
            if remaining == 0 and reset_ms is not None
        ]
        # Who names no time at which there is more does not mean it in earnest.
        if learned.requests_remaining is not None and learned.requests_reset_ms:
            self.answers.requests.say(learned.requests_remaining)
        if learned.tokens_remaining is not None and learned.tokens_reset_ms:
            self.answers.tokens.say(learned.tokens_remaining)
        self.answers.add(seconds, status == THROTTLED, learned.retry_after_ms or 0, max(exhausted, default=0))
