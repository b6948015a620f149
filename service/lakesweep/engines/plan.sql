-- The relational plan, shared by every engine. Each statement is named. In the order of this file an engine
-- materialises `released`, `prints`, `lost` and `suspects` under these names, registers `held` and `missing` as views,
-- and streams the results of the others.
--
-- Relations an engine provides
--   inventory(path, match_key, print, size_bytes, modified_at, etag)
--       every listed object, with the fingerprint of its match key; no column but the last two is null
--   refs(role, address, bare, match_key, inside, outside, guarded_name)
--       every reference, see cleanup.addresses; exactly one of address and bare is null
--   judged(path, size_bytes, modified_at, etag, verdict, kind, reason, stage)
--       `unreferenced`, judged
--   seen(match_key)
--       what a second look at the suspects found
--   fingerprint(text)
--       a 64-bit hash, any good one
--
-- Which comparisons may be inexact
--   Joins that can only keep a file (held against inventory) compare fingerprints: a collision keeps an orphan or,
--   with a chance of about one in a hundred thousand for ten million files, hides one missing file from the report.
--   Joins that can let a file go (expired, released) compare exact addresses, slashes and all. Null never matches: a
--   null `address` or `bare` frees nothing, a null `guarded_name` guards nothing, and `match_key` is never null.

-- name: released
SELECT address, bare
FROM refs
WHERE role = 'released'

-- name: held
-- What keeps files: everything named directly, and what sources spell unless the format has released it.
SELECT match_key, fingerprint(match_key) AS print, coalesce(address, bare) AS path, inside, outside, guarded_name
FROM refs
WHERE role = 'named'
UNION ALL
SELECT r.match_key, fingerprint(r.match_key) AS print, coalesce(r.address, r.bare) AS path, r.inside, r.outside,
       r.guarded_name
FROM refs r
ANTI JOIN released a ON a.address = r.address
ANTI JOIN released b ON b.bare = r.match_key
WHERE r.role = 'read'

-- name: prints
-- The same as fingerprints, once each: all that the big joins have to hold.
SELECT print, max(inside) AS inside
FROM held
GROUP BY print

-- name: unreferenced
-- Listed objects that nothing keeps, and what else is said of them.
SELECT
    u.path,
    u.size_bytes,
    u.modified_at,
    u.etag,
    a.address IS NOT NULL OR b.bare IS NOT NULL AS expired,
    e.guarded_name IS NOT NULL AS elsewhere
FROM (SELECT i.* FROM inventory i ANTI JOIN prints p ON p.print = i.print) u
LEFT JOIN (SELECT DISTINCT address FROM refs WHERE role = 'expired') a ON a.address = u.path
LEFT JOIN (SELECT DISTINCT bare FROM refs WHERE role = 'expired') b ON b.bare = u.match_key
LEFT JOIN (SELECT DISTINCT guarded_name FROM held WHERE guarded_name IS NOT NULL) e
    ON e.guarded_name = regexp_replace(u.match_key, '(?s)^.*/', '')

-- name: totals
SELECT count(*) AS files, coalesce(sum(size_bytes), 0) AS bytes
FROM inventory

-- name: references
SELECT count(*) AS files
FROM prints

-- name: lost
SELECT p.print
FROM prints p
ANTI JOIN inventory i ON i.print = p.print
WHERE p.inside

-- name: suspects
-- What is referenced and should be below the roots, yet was not listed. It may have been committed meanwhile.
SELECT h.match_key, min(h.path) AS path
FROM held h
SEMI JOIN lost l ON l.print = h.print
WHERE h.inside
GROUP BY h.match_key

-- name: missing
SELECT s.path
FROM suspects s
ANTI JOIN seen n ON n.match_key = s.match_key

-- name: missing_count
SELECT count(*) AS files
FROM missing

-- name: missing_shown
SELECT path
FROM missing
ORDER BY path
LIMIT :missing_shown

-- name: missing_clash
-- Names that a missing live file and a candidate share.
SELECT m.name
FROM (SELECT DISTINCT regexp_replace(path, '(?s)^.*/', '') AS name FROM missing) m
SEMI JOIN (SELECT regexp_replace(path, '(?s)^.*/', '') AS name FROM judged WHERE verdict = 'orphan') j ON j.name = m.name
ORDER BY m.name
LIMIT :missing_shown

-- name: unverified
-- Live files below none of the roots: nobody lists those places, so nobody knows whether the files are there.
SELECT count(*) AS files, min(path) AS path
FROM (
    SELECT min(path) AS path
    FROM (
        SELECT match_key, path FROM held WHERE outside
        UNION ALL
        SELECT r.match_key, r.address AS path
        FROM refs r
        ANTI JOIN released a ON a.address = r.address
        WHERE r.role = 'counted' AND r.outside
    ) f
    GROUP BY match_key
) h

-- name: unverified_shown
SELECT path
FROM (
    SELECT min(path) AS path
    FROM (
        SELECT match_key, path FROM held WHERE outside
        UNION ALL
        SELECT r.match_key, r.address AS path
        FROM refs r
        ANTI JOIN released a ON a.address = r.address
        WHERE r.role = 'counted' AND r.outside
    ) f
    GROUP BY match_key
) h
ORDER BY path
LIMIT :missing_shown

-- name: tallies
SELECT verdict, kind, reason, count(*) AS files, coalesce(sum(size_bytes), 0) AS bytes
FROM judged
GROUP BY verdict, kind, reason

-- name: unreferenced_metadata
SELECT path
FROM judged
WHERE kind = 'metadata'
ORDER BY modified_at DESC NULLS FIRST, path
LIMIT :metadata_shown

-- name: rows
SELECT path, size_bytes, modified_at, etag, kind, reason, stage
FROM judged
WHERE verdict = 'orphan'
ORDER BY stage, path
