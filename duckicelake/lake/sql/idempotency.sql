-- outcome: what the request with a key came to
SELECT fingerprint, result, error FROM duckicelake_idempotency 
WHERE key = %(key)s AND created_at >= clock_timestamp() - %(lifetime)s;

-- settle: note what a request came to, and forget old ones; no row if the key has an outcome, awaiting one under way
WITH forgotten AS (
    DELETE FROM duckicelake_idempotency WHERE key IN (
        SELECT key FROM duckicelake_idempotency
        WHERE created_at < clock_timestamp() - %(lifetime)s AND key <> %(key)s
        ORDER BY created_at
        LIMIT 100
        FOR UPDATE SKIP LOCKED
    )
)
INSERT INTO duckicelake_idempotency (key, fingerprint, result, error)
VALUES (%(key)s, %(fingerprint)s, %(result)s, %(error)s)
ON CONFLICT (key) DO UPDATE
    SET fingerprint = excluded.fingerprint, result = excluded.result, error = excluded.error, created_at = DEFAULT
    WHERE duckicelake_idempotency.created_at < clock_timestamp() - %(lifetime)s
RETURNING key;
