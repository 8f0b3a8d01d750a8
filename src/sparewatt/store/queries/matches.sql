-- name: insert_matches
-- A match that is stored already, by a try whose reply was lost, stays.
INSERT INTO matches (id, key_id, created_at, outcome, explanation)
SELECT new.id, new.key_id, to_timestamp(new.created), new.outcome, new.explanation::json
FROM unnest($1::text[], $2::text[], $3::float8[], $4::text[], $5::text[])
    AS new (id, key_id, created, outcome, explanation)
ON CONFLICT (id) DO NOTHING

-- name: find_match
SELECT key_id, explanation FROM matches WHERE id = $1

-- name: forget_old_matches
DELETE FROM matches WHERE created_at < now() - make_interval(days => $1)
