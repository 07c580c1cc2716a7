-- expired: open batches with some of these files whose loader is gone: neither their own lease nor that of a job lasts
SELECT DISTINCT b.run_id
FROM duckicelake_loaded_file f JOIN duckicelake_file_batch b USING (table_id, run_id)
WHERE f.table_id = %(table_id)s AND f.file_key = ANY(%(keys)s::uuid[]) AND f.error IS NULL AND b.state = 'open'
  AND b.lease_until < clock_timestamp()
  AND NOT EXISTS (
      SELECT FROM duckicelake_job j
      WHERE j.run_id = b.run_id AND j.ended IS NULL AND j.lease_until > clock_timestamp());

-- give_up: batches that aren't committed can't be any more. A commit that is being written is waited for
WITH given_up AS (
    UPDATE duckicelake_file_batch SET state = 'void'
    WHERE table_id = %(table_id)s AND run_id = ANY(%(run_ids)s) AND state = 'open'
    RETURNING run_id
)
INSERT INTO duckicelake_txn (table_id, app_id, is_run, version)
SELECT %(table_id)s, run_id, true, 0 FROM given_up
ON CONFLICT DO NOTHING;

-- forget_files: of batches that were given up, so that others can have them
DELETE FROM duckicelake_loaded_file f USING duckicelake_file_batch b
WHERE b.table_id = f.table_id AND b.run_id = f.run_id AND b.table_id = %(table_id)s AND b.run_id = ANY(%(run_ids)s) AND b.state = 'void' AND f.error IS NULL;

-- note_error: why a batch that was given up can't be loaded
UPDATE duckicelake_loaded_file f SET error = %(error)s, noted = clock_timestamp()
FROM duckicelake_file_batch b
WHERE b.table_id = f.table_id AND b.run_id = f.run_id AND b.table_id = %(table_id)s AND b.run_id = %(run_id)s AND b.state = 'void';

-- begin: a batch, unless it is there
INSERT INTO duckicelake_file_batch (run_id, table_id, principal, lease_until)
VALUES (%(run_id)s, %(table_id)s, %(principal)s, clock_timestamp() + %(seconds)s * interval '1 second')
ON CONFLICT DO NOTHING;

-- claim: files for a batch, but for those that another has. Files with an error are tried again if that is asked for
INSERT INTO duckicelake_loaded_file AS f (table_id, file_key, run_id, name, size, version)
SELECT %(table_id)s, file_key, %(run_id)s, name, size, version
FROM unnest(%(keys)s::uuid[], %(names)s::text[], %(sizes)s::bigint[], %(versions)s::text[])
    AS asked (file_key, name, size, version)
ORDER BY file_key
ON CONFLICT (table_id, file_key) DO UPDATE SET run_id = excluded.run_id, error = NULL, noted = clock_timestamp()
WHERE f.error IS NOT NULL AND %(again)s;

-- states: what is known of files
SELECT f.file_key::text, f.run_id, f.error, b.state,
       b.state = 'committed' AND b.lease_until < clock_timestamp() AND NOT EXISTS (
           SELECT FROM duckicelake_job j
           WHERE j.run_id = b.run_id AND j.ended IS NULL AND j.lease_until > clock_timestamp()) AS is_unfinished
FROM duckicelake_loaded_file f JOIN duckicelake_file_batch b USING (table_id, run_id)
WHERE f.table_id = %(table_id)s AND f.file_key = ANY(%(keys)s::uuid[]);

-- remove_empty: a batch that got no file
DELETE FROM duckicelake_file_batch b
WHERE table_id = %(table_id)s AND run_id = %(run_id)s AND state = 'open'
  AND NOT EXISTS (SELECT FROM duckicelake_loaded_file f WHERE f.table_id = b.table_id AND f.run_id = b.run_id);

-- end: nothing is left to do for a batch that is committed
UPDATE duckicelake_file_batch SET state = 'ended'
WHERE table_id = %(table_id)s AND run_id = %(run_id)s AND state = 'committed';

-- state: of a batch of a table
SELECT state FROM duckicelake_file_batch WHERE table_id = %(table_id)s AND run_id = %(run_id)s;

-- list: files of a table, the last ones first
SELECT f.number, f.name, f.size, f.version, f.run_id, f.error, b.state, f.noted, b.snapshot_id
FROM duckicelake_loaded_file f JOIN duckicelake_file_batch b USING (table_id, run_id)
WHERE f.table_id = %(table_id)s
  AND (%(run_id)s::text IS NULL OR f.run_id = %(run_id)s)
  AND (%(state)s::text IS NULL
       OR %(state)s = CASE WHEN f.error IS NOT NULL THEN 'failed' WHEN b.state = 'open' THEN 'loading' ELSE 'loaded' END)
  AND (%(before)s::bigint IS NULL OR f.number < %(before)s)
ORDER BY f.number DESC
LIMIT %(limit)s;
