-- name: snapshot_tables
-- Tables that hold rows of their own or of their partitions, with the columns that can be written. An unlogged table
-- is for what must not outlive its hour: it is in no backup.
SELECT c.relname AS name, array_agg(a.attname::text ORDER BY a.attnum) AS columns
FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition
  AND c.relpersistence <> 'u' AND c.relname <> 'schema_migrations' AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''
GROUP BY c.relname ORDER BY c.relname

-- name: snapshot_partitions
SELECT c.relname AS name, p.relname AS parent, pg_get_expr(c.relpartbound, c.oid) AS bound
FROM pg_class c JOIN pg_inherits i ON i.inhrelid = c.oid JOIN pg_class p ON p.oid = i.inhparent
WHERE c.relnamespace = 'public'::regnamespace AND c.relispartition AND c.relkind = 'r' ORDER BY c.relname

-- name: snapshot_references
-- Which table refers to which, by foreign keys.
SELECT DISTINCT c.relname AS name, p.relname AS needs
FROM pg_constraint f JOIN pg_class c ON c.oid = f.conrelid JOIN pg_class p ON p.oid = f.confrelid
WHERE f.contype = 'f' AND f.connamespace = 'public'::regnamespace AND NOT c.relispartition AND c.oid <> p.oid
  AND c.relpersistence <> 'u'

-- name: snapshot_sequences
SELECT sequencename AS name, last_value FROM pg_sequences
WHERE schemaname = 'public' AND last_value IS NOT NULL ORDER BY sequencename

-- name: snapshot_migrations
SELECT version, sha256 FROM schema_migrations ORDER BY version

-- name: snapshot_is_empty
SELECT NOT EXISTS (
    SELECT FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p', 'S', 'v', 'm'))

-- name: set_sequence
SELECT setval(format('public.%I', $1::text)::regclass, $2::bigint)
