-- name: add_history
-- Counts are added up; of numbers at a time the larger counts. `up_s` and `known_s` end at the length of the step, also
-- if two gateways counted the same time.
INSERT INTO history AS known (
    step_s, kind, name, at, jobs, failed, cancelled, tokens, up_s, known_s, nodes, gpus, vram_bytes, first_token,
    speed
)
SELECT
    new.step_s, new.kind, new.name, to_timestamp(new.at), new.jobs, new.failed, new.cancelled, new.tokens,
    least(new.up_s, new.step_s), least(new.known_s, new.step_s), new.nodes, new.gpus, new.vram_bytes,
    new.first_token::bigint[], new.speed::bigint[]
FROM unnest(
    $1::integer[], $2::text[], $3::text[], $4::float8[], $5::bigint[], $6::bigint[], $7::bigint[], $8::bigint[],
    $9::float8[], $10::float8[], $11::integer[], $12::integer[], $13::bigint[], $14::text[], $15::text[]
) AS new (
    step_s, kind, name, at, jobs, failed, cancelled, tokens, up_s, known_s, nodes, gpus, vram_bytes, first_token,
    speed
)
ON CONFLICT (step_s, kind, name, at) DO UPDATE SET
    jobs = known.jobs + excluded.jobs,
    failed = known.failed + excluded.failed,
    cancelled = known.cancelled + excluded.cancelled,
    tokens = known.tokens + excluded.tokens,
    up_s = least(known.up_s + excluded.up_s, known.step_s),
    known_s = least(known.known_s + excluded.known_s, known.step_s),
    nodes = greatest(known.nodes, excluded.nodes),
    gpus = greatest(known.gpus, excluded.gpus),
    vram_bytes = greatest(known.vram_bytes, excluded.vram_bytes),
    first_token = ARRAY(
        SELECT coalesce(pair.a, 0) + coalesce(pair.b, 0)
        FROM unnest(known.first_token, excluded.first_token) WITH ORDINALITY AS pair (a, b, i) ORDER BY pair.i
    ),
    speed = ARRAY(
        SELECT coalesce(pair.a, 0) + coalesce(pair.b, 0)
        FROM unnest(known.speed, excluded.speed) WITH ORDINALITY AS pair (a, b, i) ORDER BY pair.i
    )

-- name: history_points
-- The latest points, in order of time.
SELECT * FROM (
    SELECT name, at, jobs, failed, cancelled, tokens, first_token, speed, up_s, known_s, nodes, gpus,
        vram_bytes
    FROM history
    WHERE step_s = $1 AND kind = $2 AND at >= to_timestamp($3) AND ($4::text IS NULL OR name = $4)
    ORDER BY at DESC LIMIT $5
) AS latest ORDER BY at

-- name: node_uptimes
SELECT name, sum(up_s)::float8 AS up_s, sum(known_s)::float8 AS known_s, count(*)::integer AS days
FROM history WHERE step_s = $1 AND kind = 'node' AND at >= to_timestamp($2) AND known_s > 0
GROUP BY name LIMIT $3

-- name: forget_history
DELETE FROM history WHERE step_s = $1 AND at < now() - make_interval(secs => $2)
