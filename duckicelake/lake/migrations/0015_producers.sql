-- How far producers have come that count their batches of rows: a batch whose sequence isn't above is applied already.
CREATE TABLE duckicelake_producer (
    table_id    bigint      NOT NULL,
    app_id      text        NOT NULL,
    sequence    bigint      NOT NULL,
    snapshot_id bigint      NOT NULL,  -- DuckLake's, which has the batch
    applied     timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (table_id, app_id)
) WITH (fillfactor = 50);  -- the newest sequence takes its predecessor's place on the page
