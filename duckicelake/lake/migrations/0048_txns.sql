-- One row for each app that numbers what it writes into a table: producers of rows, clients whose snapshots have
-- `txn.app-id`, Delta's writers, runs of pipelines. A version that isn't above the row's was applied. The row stays when
-- the snapshot expires, so that a batch which comes again after years is known.
CREATE TABLE duckicelake_txn (
    table_id            bigint      NOT NULL,
    app_id              text        NOT NULL,
    is_run              boolean     NOT NULL,  -- the app is the run of this id, and its version is the epoch
    version             bigint      NOT NULL,
    snapshot_id         bigint,                -- DuckLake's; null of runs before this migration whose snapshot is gone
    iceberg_snapshot_id bigint,                -- null of posted rows, and of all batches before this migration
    summary             json,                  -- of a run's snapshot
    applied             timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (table_id, app_id, is_run)
) WITH (fillfactor = 50);  -- the newest version takes its predecessor's place on the page

INSERT INTO duckicelake_txn (table_id, app_id, is_run, version, snapshot_id, applied)
SELECT table_id, app_id, false, sequence, snapshot_id, applied FROM duckicelake_producer;

INSERT INTO duckicelake_txn (table_id, app_id, is_run, version, snapshot_id, iceberg_snapshot_id, summary, applied)
SELECT r.table_id, r.run_id, true, r.epoch, s.ducklake_id, r.snapshot_id, r.summary, r.committed
FROM duckicelake_run r LEFT JOIN duckicelake_snapshot s USING (table_id, snapshot_id);

DROP TABLE duckicelake_producer, duckicelake_run;

-- Older servers go on serving reads beside newer ones, and read these.
CREATE VIEW duckicelake_producer AS
SELECT table_id, app_id, version AS sequence, snapshot_id, applied FROM duckicelake_txn WHERE NOT is_run;

CREATE VIEW duckicelake_run AS
SELECT table_id, app_id AS run_id, version AS epoch, iceberg_snapshot_id AS snapshot_id, applied AS committed, summary
FROM duckicelake_txn WHERE is_run;
