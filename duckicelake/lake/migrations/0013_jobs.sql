-- What the pipeline does and did: a row for each job on one table. One that isn't renewed in time is lost.
CREATE TABLE duckicelake_job (
    number       bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id           uuid        NOT NULL UNIQUE,  -- the client's choice, so that a beginning may be sent again
    kind         text        NOT NULL,
    schema_name  text        NOT NULL,
    table_name   text        NOT NULL,         -- which needn't exist yet
    run_id       text,
    lease        text,                         -- what it alone may do to the table while it runs
    principal    text        NOT NULL,
    engine       text        NOT NULL,
    parameters   json        NOT NULL,
    started      timestamptz NOT NULL DEFAULT clock_timestamp(),
    lease_until  timestamptz NOT NULL,
    ended        timestamptz,
    result       text,                         -- done, unchanged, skipped, failed or lost; none while it runs
    message      text,
    snapshot_ids bigint[]    NOT NULL DEFAULT '{}',  -- Iceberg's
    counts       json        NOT NULL DEFAULT '{}'   -- of rows, files, bytes; progress while it runs
);
CREATE UNIQUE INDEX duckicelake_job_lease ON duckicelake_job (schema_name, table_name, lease) WHERE ended IS NULL;
CREATE INDEX duckicelake_job_run ON duckicelake_job (run_id) WHERE run_id IS NOT NULL;
CREATE INDEX duckicelake_job_table ON duckicelake_job (schema_name, table_name, number);
