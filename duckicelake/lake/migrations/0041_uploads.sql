-- Manifest lists and manifests that clients uploaded for commits that were accepted, which the server replaced by files of
-- its own: they are deleted after a while, unless something names them.
CREATE TABLE duckicelake_upload (
    upload_id bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    table_id  bigint      NOT NULL,
    paths     text[]      NOT NULL,  -- exactly as received
    due_at    timestamptz NOT NULL DEFAULT clock_timestamp() + interval '7 days'
);
CREATE INDEX ON duckicelake_upload (due_at);
