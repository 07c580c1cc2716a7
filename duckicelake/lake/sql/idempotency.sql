-- outcome: what the request with a key came to
SELECT fingerprint, result, error FROM duckicelake_idempotency 
WHERE key = %(key)s AND created_at >= now() - %(lifetime)s;

-- known: those of some keys that have an outcome
SELECT key FROM duckicelake_idempotency
WHERE key = ANY(%(keys)s) AND created_at >= now() - %(lifetime)s;

-- settle: note what requests came to, and forget old ones, awaiting those under way. It fails if a key has an outcome, as
-- created_at can't be null, so that no thread has to wait for an answer before COMMIT
WITH noted AS (
    SELECT key, fingerprint, result::json, error::json
    FROM json_to_recordset(%(outcomes)s::json) AS n (key uuid, fingerprint bytea, result text, error text)
), forgotten AS (
    DELETE FROM duckicelake_idempotency WHERE ctid = ANY(ARRAY(
        SELECT ctid FROM duckicelake_idempotency
        WHERE created_at < now() - %(lifetime)s AND key NOT IN (SELECT key FROM noted)
        ORDER BY created_at
        LIMIT 100
        FOR UPDATE SKIP LOCKED
    ))
)
INSERT INTO duckicelake_idempotency (key, fingerprint, result, error)
SELECT key, fingerprint, result, error FROM noted
ON CONFLICT (key) DO UPDATE
    SET fingerprint = excluded.fingerprint, result = excluded.result, error = excluded.error,
        created_at = CASE WHEN duckicelake_idempotency.created_at < now() - %(lifetime)s THEN clock_timestamp() END;
