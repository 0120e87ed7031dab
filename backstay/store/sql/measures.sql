-- The measures of workers, by minute. Small: one row for each worker and handler, only for minutes with work.

-- name: add_measures
-- Adds to the worker's row of the same minute.
INSERT INTO measures ({fields MeasuredPlace}, worker, {fields Measure})
SELECT {fields MeasuredPlace}, CAST(:worker AS text), {fields Measure} FROM {batch MeasureRow}
WHERE true
ON CONFLICT (owner, minute, handler, worker) DO UPDATE SET provider = excluded.provider,
    {each Measure: $ = measures.$ + excluded.$};

-- name: forget_measures
DELETE FROM measures WHERE minute < {now} / 60000 - CAST(:minutes AS bigint);

-- name: measures_of
-- An owner's measures in steps of some minutes, by provider.
SELECT minute / CAST(:step AS bigint) * CAST(:step AS bigint) AS since, provider,
    {each Measure: CAST(sum($) AS bigint) AS $}
FROM measures WHERE owner = :owner AND minute >= :since GROUP BY 1, 2 ORDER BY 1, 2;

-- name: spending
-- By provider: the cost of all owners' calls since a minute, and how many calls were sent again although the first may have
-- been paid.
SELECT {columns ProviderSpending, CAST(sum(cost_micros) AS bigint) AS cost_micros, CAST(sum(repeats) AS bigint) AS repeats}
FROM measures WHERE minute >= {now} / 60000 - CAST(:minutes AS bigint) GROUP BY provider ORDER BY provider;
