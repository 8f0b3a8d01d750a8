-- name: add_check_counts
-- Every gateway adds its own counts.
INSERT INTO check_counts AS known (node_id, day, kind, passed, failed, last_at)
SELECT new.node_id, new.day, new.kind, new.passed, new.failed, to_timestamp(new.last_at)
FROM unnest($1::text[], $2::date[], $3::text[], $4::bigint[], $5::bigint[], $6::float8[])
    AS new (node_id, day, kind, passed, failed, last_at)
ON CONFLICT (node_id, day, kind) DO UPDATE
    SET passed = known.passed + excluded.passed,
        failed = known.failed + excluded.failed,
        last_at = greatest(known.last_at, excluded.last_at)

-- name: check_counts_of
SELECT node_id, day, kind, passed, failed, extract(epoch FROM last_at)::float8 AS last_unix_s
FROM check_counts WHERE node_id = $1 ORDER BY day, kind LIMIT $2

-- name: check_counts_since
SELECT node_id, day, kind, passed, failed, extract(epoch FROM last_at)::float8 AS last_unix_s
FROM check_counts WHERE day >= $1 ORDER BY node_id, day, kind LIMIT $2

-- name: forget_old_check_counts
DELETE FROM check_counts WHERE day < (now() AT TIME ZONE 'UTC')::date - $1::integer
