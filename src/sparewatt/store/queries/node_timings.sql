-- name: put_node_timings
-- The gateway that has timed more jobs knows better.
INSERT INTO node_timings AS known (node_id, model, read_s, step_s, reads, writes, jobs)
SELECT * FROM unnest($1::text[], $2::text[], $3::float8[], $4::float8[], $5::bigint[], $6::bigint[], $7::bigint[])
ON CONFLICT (node_id, model) DO UPDATE
    SET read_s = excluded.read_s, step_s = excluded.step_s, reads = excluded.reads, writes = excluded.writes,
        jobs = excluded.jobs, updated_at = now()
    WHERE known.jobs <= excluded.jobs

-- name: node_timings_of
SELECT node_id, model, read_s, step_s, reads, writes, jobs FROM node_timings
WHERE node_id = ANY ($1::text[]) ORDER BY node_id, model LIMIT $2

-- name: forget_old_node_timings
DELETE FROM node_timings WHERE updated_at < now() - make_interval(days => $1::integer)
