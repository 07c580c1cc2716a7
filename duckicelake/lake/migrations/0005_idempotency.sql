-- What requests that carry an Idempotency-Key came to, written with the change itself; forgotten after a while.
CREATE TABLE duckicelake_idempotency (
    key         uuid        PRIMARY KEY,
    fingerprint bytea       NOT NULL,  -- a digest of what was asked for
    result      json,                  -- what the answer is made from again, where it needs anything
    error       json,                  -- or why the request was refused
    created_at  timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX ON duckicelake_idempotency (created_at);
