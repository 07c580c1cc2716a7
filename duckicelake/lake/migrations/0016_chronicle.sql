-- The chronicle: what changed in the lake, whoever changed it, in one order (lake/chronicle.py). Rows are only ever added,
-- after all that there are, and deleted when they are old enough; DuckLake's expiry leaves them alone.
CREATE TABLE duckicelake_change (
    snapshot_id         bigint      NOT NULL,  -- DuckLake's
    ordinal             integer     NOT NULL,
    at                  timestamptz NOT NULL,
    kind                text        NOT NULL,
    namespace           text        NOT NULL,  -- the DuckLake schema
    name                text,                  -- of a table or view; none for a namespace
    previous            text,                  -- the full name before a rename
    object_id           bigint,                -- table_id, view_id or schema_id, which share a counter
    uuid                uuid,
    source              text        NOT NULL,  -- rest, pipeline or duckdb
    principal           text,
    agent               text,
    request_id          text,
    operation           text,
    iceberg_snapshot_id bigint,
    facts               json        NOT NULL,
    PRIMARY KEY (snapshot_id, ordinal)
);
CREATE INDEX duckicelake_change_object ON duckicelake_change (object_id, snapshot_id, ordinal);
-- Names are cut: an index's entry holds 2,704 bytes at most.
CREATE INDEX duckicelake_change_name ON duckicelake_change (left(namespace, 200), left(name, 200), snapshot_id, ordinal);
CREATE INDEX duckicelake_change_at ON duckicelake_change (at);

-- How far the chronicle is: the last position, and the counter of files after that snapshot.
CREATE TABLE duckicelake_chronicle (
    snapshot_id  bigint  NOT NULL,
    ordinal      integer NOT NULL,
    next_file_id bigint  NOT NULL
);
INSERT INTO duckicelake_chronicle VALUES (-1, 0, 0);

-- What the request said of its client: user agent, engine, application, the run that it is part of.
ALTER TABLE duckicelake_audit ADD COLUMN client json;
CREATE INDEX duckicelake_audit_snapshot ON duckicelake_audit (snapshot_id) WHERE snapshot_id IS NOT NULL;

-- Entries of the audit trail about changes that make no snapshot, and aren't in the chronicle yet.
CREATE TABLE duckicelake_unplaced (audit_id bigint PRIMARY KEY);

-- Deleted rows of data files as the chronicle knows them: DuckDB's next delete replaces the row that says how many.
CREATE TABLE duckicelake_deleted_rows (
    data_file_id bigint PRIMARY KEY,
    count        bigint NOT NULL
);

-- Wakes whoever follows the lake, when the transaction is committed; once for all snapshots of one.
CREATE FUNCTION duckicelake_notify_snapshot() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_catalog.pg_notify('duckicelake_snapshot', '');
    RETURN NULL;
END $$;

CREATE TRIGGER duckicelake_notify_snapshot AFTER INSERT ON ducklake_snapshot
FOR EACH STATEMENT EXECUTE FUNCTION duckicelake_notify_snapshot();
CREATE TRIGGER duckicelake_notify_unplaced AFTER INSERT ON duckicelake_unplaced
FOR EACH ROW EXECUTE FUNCTION duckicelake_notify_snapshot();
