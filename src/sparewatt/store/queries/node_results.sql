-- name: add_node_record
-- Every gateway adds its own counts.
WITH served AS (
    UPDATE nodes SET served_at = now() WHERE served_at IS NULL AND id IN (
        SELECT new.node_id FROM unnest($1::text[], $3::text[]) AS new (node_id, result) WHERE new.result = 'done'
    )
)
INSERT INTO node_record AS known (node_id, day, result, count, last_at)
SELECT new.node_id, new.day, new.result, new.count, to_timestamp(new.last_at)
FROM unnest($1::text[], $2::date[], $3::text[], $4::bigint[], $5::float8[])
    AS new (node_id, day, result, count, last_at)
ON CONFLICT (node_id, day, result) DO UPDATE
    SET count = known.count + excluded.count, last_at = greatest(known.last_at, excluded.last_at)

-- name: node_record_of
SELECT day, result, count, last_at FROM node_record WHERE node_id = $1 ORDER BY day, result LIMIT $2

-- name: forget_old_node_record
DELETE FROM node_record WHERE day < (now() AT TIME ZONE 'UTC')::date - $1::integer
