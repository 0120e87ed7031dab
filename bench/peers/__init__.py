"""One module per peer: prepare(url), submit(n) and finish(n), the last two giving seconds."""
