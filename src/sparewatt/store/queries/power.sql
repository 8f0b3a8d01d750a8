-- name: add_node_power
-- Every gateway adds what nodes reported to it. Nodes that are not registered any more are left out.
INSERT INTO node_power (node_id, day, joules, working_s)
SELECT new.node_id, new.day, new.joules, new.working_s
FROM unnest($1::text[], $2::date[], $3::float8[], $4::float8[]) AS new (node_id, day, joules, working_s)
    JOIN nodes ON nodes.id = new.node_id
ON CONFLICT (node_id, day) DO UPDATE
    SET joules = node_power.joules + EXCLUDED.joules, working_s = node_power.working_s + EXCLUDED.working_s

-- name: power_of
-- Mean watts while working, over whole days, of the nodes that reported any.
SELECT node_id, sum(joules) / sum(working_s) AS watts, sum(working_s) AS working_s
FROM node_power
WHERE node_id = ANY ($1::text[])
    AND day >= (to_timestamp($2::float8) AT TIME ZONE 'UTC')::date
    AND day <= (to_timestamp($3::float8) AT TIME ZONE 'UTC')::date
GROUP BY node_id HAVING sum(working_s) > 0

-- name: forget_old_power
DELETE FROM node_power WHERE day < now() - interval '800 days'
