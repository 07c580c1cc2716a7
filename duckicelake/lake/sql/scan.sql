-- heads: the live files of manifests with their rows, bytes and partitions, in manifest order; long lists are read
-- soonest from JSON
SELECT m.manifest_id, m.spec_id, json_agg(f.file_id ORDER BY u.ordinal), json_agg(f.record_count ORDER BY u.ordinal),
       json_agg(f.file_size_in_bytes ORDER BY u.ordinal), json_agg(f.partition ORDER BY u.ordinal)
FROM duckicelake_manifest m, unnest(m.added || m.existing) WITH ORDINALITY AS u (file_id, ordinal)
JOIN duckicelake_file f USING (file_id)
WHERE m.manifest_id = ANY(%(manifest_ids)s)
GROUP BY m.manifest_id, m.spec_id;

-- metrics: the metrics of the live files of manifests, in manifest order, as texts: all parsed, they take 20 kB a file
SELECT m.manifest_id, f.metrics::text
FROM duckicelake_manifest m, unnest(m.added || m.existing) WITH ORDINALITY AS u (file_id, ordinal)
JOIN duckicelake_file f USING (file_id)
WHERE m.manifest_id = ANY(%(manifest_ids)s)
ORDER BY m.manifest_id, u.ordinal;

-- deletes: the delete files, among those that manifests list as live, of data files
SELECT d.data_file_id, d.delete_file_id
FROM duckicelake_deletion d
WHERE d.table_id = %(table_id)s AND d.data_file_id = ANY(%(file_ids)s) AND d.delete_file_id IN (
    SELECT unnest(m.added || m.existing) FROM duckicelake_manifest m WHERE m.manifest_id = ANY(%(manifest_ids)s))
ORDER BY d.data_file_id, d.delete_file_id;


-- request: a long request to plan, which a plan task names by its hash
SELECT request FROM duckicelake_scan_request WHERE hash = %(hash)s AND sent >= now() - %(lifetime)s;

-- keep_request: keep a long request, for as long as its newest plan; forget old ones. Nothing is returned if there are
-- too many bytes of them
WITH forgotten AS (
    DELETE FROM duckicelake_scan_request WHERE ctid = ANY(ARRAY(
        SELECT ctid FROM duckicelake_scan_request
        WHERE sent < now() - %(lifetime)s AND hash <> %(hash)s
        ORDER BY sent
        LIMIT 100
        FOR UPDATE SKIP LOCKED
    ))
)
INSERT INTO duckicelake_scan_request (hash, request)
SELECT %(hash)s, %(request)s
WHERE (SELECT coalesce(sum(octet_length(request)), 0) FROM duckicelake_scan_request
       WHERE sent >= now() - %(lifetime)s AND hash <> %(hash)s) + octet_length(%(request)s) <= %(most_bytes)s
ON CONFLICT (hash) DO UPDATE SET sent = excluded.sent
RETURNING 1;

-- arrays: what earlier plans packed of manifests
SELECT manifest_id, name, data FROM duckicelake_scan_array
WHERE manifest_id = ANY(%(manifest_ids)s) AND name = ANY(%(names)s);

-- keep_arrays: what this plan packed; nothing of manifests that have gone meanwhile, or of which enough is kept
INSERT INTO duckicelake_scan_array (manifest_id, name, data)
SELECT m.manifest_id, a.name, a.data
FROM unnest(%(manifest_ids)s::bigint[], %(names)s::text[], %(data)s::bytea[]) AS a (manifest_id, name, data)
JOIN duckicelake_manifest m USING (manifest_id)
WHERE (SELECT count(*) FROM duckicelake_scan_array k WHERE k.manifest_id = m.manifest_id) < %(most)s
ON CONFLICT DO NOTHING;
