-- What Iceberg knows and DuckLake can't say. Rows are immutable except in duckicelake_table, _epoch and _namespace.

-- Raised whenever DuckLake snapshots are physically deleted (expire_snapshots makes no snapshot of its own).
CREATE TABLE duckicelake_epoch (epoch bigint NOT NULL);
INSERT INTO duckicelake_epoch VALUES (0);

CREATE TABLE duckicelake_namespace (
    schema_id  bigint PRIMARY KEY,
    properties json   NOT NULL
);

-- One row per table that an Iceberg client has seen; identity is DuckLake's table_id.
CREATE TABLE duckicelake_table (
    table_id             bigint   PRIMARY KEY,
    table_uuid           uuid     NOT NULL,
    location             text     NOT NULL,
    version              bigint   NOT NULL,  -- counts metadata versions; caches and ETags are keyed by it
    caught_up_to         bigint   NOT NULL,  -- native changes up to this DuckLake snapshot are folded in
    epoch                bigint   NOT NULL,  -- expiries up to this duckicelake_epoch are folded in
    ducklake_id          bigint   NOT NULL,  -- the DuckLake snapshot that realised main
    format_version       smallint NOT NULL,
    last_sequence_number bigint   NOT NULL,
    next_row_id          bigint   NOT NULL,
    last_updated_ms      bigint   NOT NULL,
    current_snapshot_id  bigint,
    outlives_drop        boolean  NOT NULL DEFAULT false,  -- dropped by an Iceberg client without purge: its files stay
    metadata             json     NOT NULL   -- the rest of TableMetadata, without snapshots and logs
);

CREATE TABLE duckicelake_snapshot (
    table_id           bigint   NOT NULL,
    snapshot_id        bigint   NOT NULL,
    proposed_id        bigint,             -- what the client called it, where that differs
    ducklake_id        bigint   NOT NULL,
    parent_snapshot_id bigint,
    sequence_number    bigint   NOT NULL,
    timestamp_ms       bigint   NOT NULL,
    schema_id          integer,
    first_row_id       bigint,
    added_rows         bigint,
    key_id             text,
    summary            json     NOT NULL,
    manifest_ids       bigint[] NOT NULL,  -- the manifest list, in order
    PRIMARY KEY (table_id, snapshot_id)
);
CREATE INDEX ON duckicelake_snapshot (ducklake_id);

CREATE TABLE duckicelake_snapshot_log (
    table_id     bigint NOT NULL,
    ordinal      bigint NOT NULL,
    snapshot_id  bigint NOT NULL,
    timestamp_ms bigint NOT NULL,
    PRIMARY KEY (table_id, ordinal)
);

CREATE TABLE duckicelake_manifest (
    manifest_id         bigint   PRIMARY KEY,
    table_id            bigint   NOT NULL,
    content             smallint NOT NULL,  -- 0 data, 1 deletes
    format_version      smallint NOT NULL,
    spec_id             integer  NOT NULL,
    schema_id           integer  NOT NULL,
    sequence_number     bigint   NOT NULL,
    min_sequence_number bigint   NOT NULL,
    added_snapshot_id   bigint   NOT NULL,
    added               bigint[] NOT NULL,  -- file ids by entry status
    existing            bigint[] NOT NULL,
    deleted             bigint[] NOT NULL
);
CREATE SEQUENCE duckicelake_manifest_id OWNED BY duckicelake_manifest.manifest_id;
CREATE INDEX ON duckicelake_manifest (table_id);

-- A file once added to a table, with every fact of its manifest entry.
CREATE TABLE duckicelake_file (
    file_id              bigint   PRIMARY KEY,
    table_id             bigint   NOT NULL,
    content              smallint NOT NULL,  -- 0 data, 1 position deletes, 2 equality deletes
    path                 text     NOT NULL,  -- exactly as received
    file_format          text     NOT NULL,
    spec_id              integer  NOT NULL,
    partition            json     NOT NULL,  -- single-value JSON, by position
    record_count         bigint   NOT NULL,
    file_size_in_bytes   bigint   NOT NULL,
    added_snapshot_id    bigint   NOT NULL,
    sequence_number      bigint   NOT NULL,
    file_sequence_number bigint   NOT NULL,
    first_row_id         bigint,
    metrics              json     NOT NULL,  -- per field id: sizes, counts, bounds; and the rarer facts
    ducklake_id          bigint              -- data_file_id or delete_file_id; null where DuckLake has no such row
);
CREATE SEQUENCE duckicelake_file_id OWNED BY duckicelake_file.file_id;
CREATE INDEX ON duckicelake_file (table_id, ducklake_id);
CREATE INDEX ON duckicelake_file (table_id, path);

-- Positions that a delete file removes from a data file.
CREATE TABLE duckicelake_deletion (
    delete_file_id bigint NOT NULL,  -- duckicelake_file.file_id of the delete file
    data_file_id   bigint NOT NULL,  -- duckicelake_file.file_id of the data file
    table_id       bigint NOT NULL,
    positions      bytea  NOT NULL,  -- 64-bit roaring bitmap, portable format
    PRIMARY KEY (data_file_id, delete_file_id)
);
CREATE INDEX ON duckicelake_deletion (delete_file_id);

-- DuckLake delete files whose positions are known: written by us for an Iceberg client, or read when caught up with.
CREATE TABLE duckicelake_seen_delete (
    delete_file_id bigint PRIMARY KEY,  -- ducklake_delete_file.delete_file_id
    table_id       bigint NOT NULL
);
CREATE INDEX ON duckicelake_seen_delete (table_id);

-- Parquet that serves inlined rows to Iceberg clients; position i holds the row (row_ids[i], begin_snapshots[i]).
CREATE TABLE duckicelake_virtual_file (
    file_id         bigint   PRIMARY KEY,
    table_id        bigint   NOT NULL,
    inlined_table   text     NOT NULL,
    row_ids         bigint[] NOT NULL,
    begin_snapshots bigint[] NOT NULL
);
CREATE INDEX ON duckicelake_virtual_file (table_id);

-- Paths that DuckDB must not delete though DuckLake no longer names them.
CREATE TABLE duckicelake_file_ref (
    path     text   NOT NULL,  -- resolved and canonical, see duckicelake_canonical_path
    table_id bigint NOT NULL,
    reason   text   NOT NULL,
    PRIMARY KEY (path, table_id, reason)
);

-- Which immutable files have been written for which object, recorded after the write.
CREATE TABLE duckicelake_artifact (
    table_id     bigint NOT NULL,
    kind         text   NOT NULL,  -- metadata, manifest-list, manifest
    object_id    bigint NOT NULL,  -- version, snapshot id, manifest id
    path         text   NOT NULL,
    length       bigint NOT NULL,
    sha256       bytea  NOT NULL,
    timestamp_ms bigint NOT NULL,  -- last-updated-ms of the metadata; 0 for the other kinds
    facts        json,             -- a manifest's counts and partition ranges, as manifest lists repeat them
    PRIMARY KEY (table_id, kind, object_id)
);
CREATE INDEX ON duckicelake_artifact (table_id, path);
