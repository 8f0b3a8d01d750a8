-- name: withheld
-- By owner and node: accounts are `withheld:OWNER:NODE` and `promo_withheld:OWNER:NODE`.
SELECT split_part(account, ':', 2) AS owner_id, split_part(account, ':', 3) AS node_id,
    coalesce(sum(nano) FILTER (WHERE account LIKE 'withheld:%'), 0)::bigint AS paid,
    coalesce(sum(nano) FILTER (WHERE account LIKE 'promo\_withheld:%'), 0)::bigint AS promo
FROM balances
WHERE nano > 0 AND (account LIKE 'withheld:%' OR account LIKE 'promo\_withheld:%')
  AND ($1::text IS NULL OR split_part(account, ':', 2) = $1)
GROUP BY 1, 2 ORDER BY 1, 2 LIMIT $2

-- name: note_withheld
-- Accounts with a mark older than $1 seconds: what was there then, and is still there. All get a new mark.
WITH now_there AS (
    SELECT account, nano FROM balances
    WHERE nano > 0 AND (account LIKE 'withheld:%' OR account LIKE 'promo\_withheld:%') LIMIT $2
), ripe AS (
    SELECT n.account, least(n.nano, m.nano) AS nano FROM now_there n JOIN withheld_marks m USING (account)
    WHERE m.at <= now() - make_interval(secs => $1::float8)
), gone AS (
    DELETE FROM withheld_marks m WHERE NOT EXISTS (SELECT 1 FROM now_there n WHERE n.account = m.account)
), marked AS (
    INSERT INTO withheld_marks AS m (account, nano, at)
    SELECT n.account, n.nano - coalesce(r.nano, 0), now() FROM now_there n LEFT JOIN ripe r USING (account)
    ON CONFLICT (account) DO UPDATE SET nano = excluded.nano, at = excluded.at
    WHERE m.at <= now() - make_interval(secs => $1::float8)
)
SELECT split_part(account, ':', 2) AS owner_id, split_part(account, ':', 3) AS node_id,
    coalesce(sum(nano) FILTER (WHERE account LIKE 'withheld:%'), 0)::bigint AS paid,
    coalesce(sum(nano) FILTER (WHERE account LIKE 'promo\_withheld:%'), 0)::bigint AS promo
FROM ripe WHERE nano > 0 GROUP BY 1, 2 ORDER BY 1, 2
