-- name: put_lease_site
-- Nothing is returned if another account has a lease of this id with a site.
INSERT INTO lease_sites (lease_id, account_id, port) VALUES ($1, $2, $3)
ON CONFLICT (lease_id) DO UPDATE SET port = EXCLUDED.port WHERE lease_sites.account_id = EXCLUDED.account_id
RETURNING lease_id, account_id, port

-- name: drop_lease_site
DELETE FROM lease_sites WHERE lease_id = $1 AND account_id = $2 RETURNING lease_id, account_id, port

-- name: find_lease_site
SELECT lease_id, account_id, port FROM lease_sites WHERE lease_id = $1
