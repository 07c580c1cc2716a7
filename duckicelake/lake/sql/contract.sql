-- unchecked: manifests of a table that were written before their metrics had a contract, some at a time: as many as list
-- so many files together, and one at least
SELECT object_id
FROM (
    SELECT a.object_id, sum(f.count) OVER (ORDER BY a.object_id) - f.count AS before
    FROM (
        SELECT object_id FROM duckicelake_artifact
        WHERE table_id = %(table_id)s AND kind = 'manifest' AND facts ->> 'contract' IS NULL
        ORDER BY object_id LIMIT 1000
    ) a
    LEFT JOIN duckicelake_manifest m ON m.manifest_id = a.object_id,
        LATERAL (SELECT coalesce(cardinality(m.added || m.existing || m.deleted), 0) AS count) f
) u
WHERE before < %(files)s;

-- known_of: what DuckLake knows of data files: columns without NaN, and whether the columns go by their names, as in files
-- that were added, whose statistics spell bytes as they are and not in hex
SELECT d.data_file_id, d.mapping_id IS NOT NULL, ARRAY(
    SELECT s.column_id FROM ducklake_file_column_stats s
    WHERE s.data_file_id = d.data_file_id AND s.contains_nan IS FALSE)
FROM ducklake_data_file d
WHERE d.data_file_id = ANY(%(data_file_ids)s);

-- set_metrics: the metrics of files, completed
UPDATE duckicelake_file f SET metrics = n.metrics
FROM json_to_recordset(%(rows)s::json) AS n (file_id bigint, metrics json)
WHERE f.file_id = n.file_id AND f.table_id = %(table_id)s;

-- keep: manifests that keep the contract as they are
UPDATE duckicelake_artifact SET facts = (coalesce(facts::jsonb, '{}') || jsonb_build_object('contract', %(contract)s::integer))::json
WHERE table_id = %(table_id)s AND kind = 'manifest' AND object_id = ANY(%(manifest_ids)s)
  AND facts ->> 'contract' IS NULL;

-- forget: manifests that don't, and the lists that name them: the next version has them written anew
WITH manifests AS (
    DELETE FROM duckicelake_artifact
    WHERE table_id = %(table_id)s AND kind = 'manifest' AND object_id = ANY(%(manifest_ids)s)
      AND facts ->> 'contract' IS NULL
), lists AS (
    DELETE FROM duckicelake_artifact
    WHERE table_id = %(table_id)s AND kind = 'manifest-list' AND object_id IN (
        SELECT snapshot_id FROM duckicelake_snapshot
        WHERE table_id = %(table_id)s AND manifest_ids && %(manifest_ids)s::bigint[])
), arrays AS (
    DELETE FROM duckicelake_scan_array WHERE manifest_id = ANY(%(manifest_ids)s)
)
UPDATE duckicelake_table SET version = version + 1 WHERE table_id = %(table_id)s;
