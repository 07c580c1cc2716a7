-- Commits that must happen once: snapshots whose summary has `duckicelake.run-id` and `duckicelake.run-epoch`. The row
-- stays when the snapshot expires, so a run that is repeated after years is still known.
CREATE TABLE duckicelake_run (
    table_id    bigint      NOT NULL,
    run_id      text        NOT NULL,
    epoch       bigint      NOT NULL,  -- the run's newest; earlier ones were committed, or never will be
    snapshot_id bigint      NOT NULL,  -- Iceberg's
    committed   timestamptz NOT NULL DEFAULT clock_timestamp(),
    summary     json        NOT NULL,
    PRIMARY KEY (table_id, run_id)
);
