-- What workers measured, minute by minute. Small: a row for each minute in which a worker did something of a handler.

-- name: add_measures
-- On top of what the worker has written of the same minute before.
INSERT INTO measures (owner, minute, handler, worker, provider,
    succeeded, failed, retried, repeats, calls, latency_ms, cost_micros, input_tokens, output_tokens, within_tenth,
    within_quarter, within_half, within_one, within_two, within_five, within_ten, within_thirty, within_sixty, longer)
SELECT owner, minute, handler, CAST(:worker AS text), provider,
    succeeded, failed, retried, repeats, called, latency_ms, cost_micros, input_tokens, output_tokens, within_tenth,
    within_quarter, within_half, within_one, within_two, within_five, within_ten, within_thirty, within_sixty, longer
FROM {batch(owner text, minute bigint, handler text, provider text, succeeded bigint, failed bigint,
        retried bigint, repeats bigint, called bigint, latency_ms bigint, cost_micros bigint, input_tokens bigint,
        output_tokens bigint, within_tenth bigint, within_quarter bigint, within_half bigint, within_one bigint,
        within_two bigint,
        within_five bigint, within_ten bigint, within_thirty bigint, within_sixty bigint, longer bigint)}
WHERE true
ON CONFLICT (owner, minute, handler, worker) DO UPDATE SET provider = excluded.provider,
    succeeded = measures.succeeded + excluded.succeeded, failed = measures.failed + excluded.failed,
    retried = measures.retried + excluded.retried, repeats = measures.repeats + excluded.repeats,
    calls = measures.calls + excluded.calls, latency_ms = measures.latency_ms + excluded.latency_ms,
    cost_micros = measures.cost_micros + excluded.cost_micros,
    input_tokens = measures.input_tokens + excluded.input_tokens,
    output_tokens = measures.output_tokens + excluded.output_tokens,
    within_tenth = measures.within_tenth + excluded.within_tenth,
    within_quarter = measures.within_quarter + excluded.within_quarter,
    within_half = measures.within_half + excluded.within_half,
    within_one = measures.within_one + excluded.within_one, within_two = measures.within_two + excluded.within_two,
    within_five = measures.within_five + excluded.within_five, within_ten = measures.within_ten + excluded.within_ten,
    within_thirty = measures.within_thirty + excluded.within_thirty,
    within_sixty = measures.within_sixty + excluded.within_sixty,
    longer = measures.longer + excluded.longer;

-- name: forget_measures
DELETE FROM measures WHERE minute < {now} / 60000 - CAST(:minutes AS bigint);

-- name: measures_of
-- An owner's measures in steps of some minutes, by provider.
SELECT minute / CAST(:step AS bigint) * CAST(:step AS bigint) AS since, provider,
    CAST(sum(succeeded) AS bigint) AS succeeded, CAST(sum(failed) AS bigint) AS failed,
    CAST(sum(retried) AS bigint) AS retried,
    CAST(sum(repeats) AS bigint) AS repeats, CAST(sum(calls) AS bigint) AS calls,
    CAST(sum(latency_ms) AS bigint) AS latency_ms,
    CAST(sum(cost_micros) AS bigint) AS cost_micros, CAST(sum(input_tokens) AS bigint) AS input_tokens,
    CAST(sum(output_tokens) AS bigint) AS output_tokens,
    CAST(sum(within_tenth) AS bigint) AS within_tenth, CAST(sum(within_quarter) AS bigint) AS within_quarter,
    CAST(sum(within_half) AS bigint) AS within_half,
    CAST(sum(within_one) AS bigint) AS within_one, CAST(sum(within_two) AS bigint) AS within_two,
    CAST(sum(within_five) AS bigint) AS within_five,
    CAST(sum(within_ten) AS bigint) AS within_ten, CAST(sum(within_thirty) AS bigint) AS within_thirty,
    CAST(sum(within_sixty) AS bigint) AS within_sixty,
    CAST(sum(longer) AS bigint) AS longer
FROM measures WHERE owner = :owner AND minute >= :since GROUP BY 1, 2 ORDER BY 1, 2;

-- name: spending
-- What all owners' work has cost since a minute, and how many calls were sent again though they may have been paid, by
-- provider.
SELECT provider, CAST(sum(cost_micros) AS bigint) AS cost_micros, CAST(sum(repeats) AS bigint) AS repeats
FROM measures WHERE minute >= {now} / 60000 - CAST(:minutes AS bigint) GROUP BY provider ORDER BY provider;
