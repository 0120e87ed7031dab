-- The rare acts about a subject.

-- name: events
SELECT {columns EventView} FROM events WHERE subject = :subject ORDER BY id LIMIT :n;

-- name: events_last
-- The latest acts about a subject, newest first.
SELECT {columns EventView} FROM events WHERE subject = :subject ORDER BY id DESC LIMIT :n;
