"""One module per peer: prepare(url), then submit(n) and finish(n), which give seconds, or rate(n) with its figures."""
