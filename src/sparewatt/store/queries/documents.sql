-- name: insert_documents
-- All or none: none if the key stores as many, or as much, as it may.
INSERT INTO shelf_documents (key_id, folder, id, sealed, expires_at)
SELECT $1::text, $2::text, new.id, new.sealed, coalesce($5::timestamptz, now() + make_interval(secs => $8))
FROM unnest($3::text[], $4::bytea[]) WITH ORDINALITY AS new (id, sealed, place)
WHERE (SELECT count(*) + cardinality($3::text[]) <= $6
              AND coalesce(sum(bytes), 0) + (SELECT sum(length(each)) FROM unnest($4::bytea[]) AS each) <= $7
       FROM shelf_documents WHERE key_id = $1 AND expires_at > now())
ORDER BY new.place
ON CONFLICT (key_id, folder, id) DO UPDATE SET sealed = excluded.sealed
RETURNING id

-- name: replace_document
UPDATE shelf_documents SET sealed = $4
WHERE key_id = $1 AND folder = $2 AND id = $3 AND expires_at > now() RETURNING id

-- name: find_document
SELECT id, number, sealed, created_at, expires_at FROM shelf_documents
WHERE key_id = $1 AND folder = $2 AND id = $3 AND expires_at > now()

-- name: documents_after
SELECT id, number, sealed, created_at, expires_at FROM shelf_documents
WHERE key_id = $1 AND folder = $2 AND number > $3 AND expires_at > now() ORDER BY number LIMIT $4

-- name: documents_before
SELECT id, number, sealed, created_at, expires_at FROM shelf_documents
WHERE key_id = $1 AND folder = $2 AND number < $3 AND expires_at > now() ORDER BY number DESC LIMIT $4

-- name: delete_document
DELETE FROM shelf_documents WHERE key_id = $1 AND folder = $2 AND id = $3 AND expires_at > now() RETURNING id

-- name: delete_folder
DELETE FROM shelf_documents WHERE key_id = $1 AND folder = $2

-- name: forget_old_documents
-- Those of revoked keys as well: they cannot be read any more.
DELETE FROM shelf_documents d WHERE d.expires_at <= now()
    OR EXISTS (SELECT FROM api_keys k WHERE k.id = d.key_id AND k.revoked_at IS NOT NULL)
