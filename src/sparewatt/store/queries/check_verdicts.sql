-- name: lock_check_record
SELECT state, passed, failed_probes, past_pieces, past_differences,
    extract(epoch FROM barred_until)::float8 AS barred_until_unix_s
FROM check_records WHERE node_id = $1 FOR UPDATE

-- name: open_check_record
INSERT INTO check_records (node_id, state, passed, failed_probes, past_pieces, past_differences, version)
VALUES ($1, 'unchecked', 0, 0, 0, 0, nextval('check_record_version')) ON CONFLICT (node_id) DO NOTHING

-- name: set_check_record
UPDATE check_records SET state = $2, passed = $3, failed_probes = $4, past_pieces = $5, past_differences = $6,
    barred_until = to_timestamp($7::float8), version = nextval('check_record_version')
WHERE node_id = $1

-- name: insert_check_verdict
INSERT INTO check_verdicts (id, at, node_id, kind, result, state, evidence, retrial_of)
VALUES ($1, to_timestamp($2::float8), $3, $4, $5, $6, $7::jsonb, $8)

-- name: check_records_since
-- A version is taken before its transaction ends, so a reader looks back a little: reading a record twice is harmless.
SELECT node_id, state, passed, failed_probes, past_pieces, past_differences,
    extract(epoch FROM barred_until)::float8 AS barred_until_unix_s, version
FROM check_records WHERE version > $1 ORDER BY version LIMIT $2

-- name: check_verdicts_of
SELECT id, extract(epoch FROM at)::float8 AS unix_s, node_id, kind, result, state, evidence::text AS evidence,
    retrial_of, retried
FROM check_verdicts WHERE node_id = $1 ORDER BY at DESC, id DESC LIMIT $2

-- name: find_check_verdict
SELECT id, extract(epoch FROM at)::float8 AS unix_s, node_id, kind, result, state, evidence::text AS evidence,
    retrial_of, retried
FROM check_verdicts WHERE id = $1

-- name: claim_retrial
-- One re-trial of a failed verdict, whoever asks first.
UPDATE check_verdicts SET retried = true
WHERE id = $1 AND NOT retried AND result = 'failed' AND retrial_of IS NULL RETURNING id

-- name: release_retrial
UPDATE check_verdicts SET retried = false WHERE id = $1

-- name: add_honest_pairs
INSERT INTO honest_pairs AS known (comparable, pieces, differences) VALUES ($1, $2, $3)
ON CONFLICT (comparable) DO UPDATE
    SET pieces = known.pieces + excluded.pieces, differences = known.differences + excluded.differences

-- name: list_honest_pairs
SELECT comparable, pieces, differences FROM honest_pairs ORDER BY pieces DESC LIMIT $1

-- name: forget_old_check_verdicts
DELETE FROM check_verdicts WHERE at < now() - make_interval(days => $1::integer)
