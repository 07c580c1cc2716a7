-- Delta logs that are kept beside tables with the property delta.enabled: what was said in each version, so that every
-- worker writes the same bytes, and a lost file can be written again.
CREATE TABLE duckicelake_delta_log (
    table_id      bigint  PRIMARY KEY,
    root          text    NOT NULL,  -- the folder that `_delta_log` is in, the table's location when it was enabled
    version       bigint  NOT NULL,  -- the newest
    oldest        bigint  NOT NULL,  -- from which on files are there
    protocol      json    NOT NULL,  -- what the newest version's table has, as Delta's actions say it
    metadata      json    NOT NULL,
    table_version bigint  NOT NULL,  -- of the table's metadata: the newest that went into the log, or was looked at
    is_looked_at  boolean NOT NULL DEFAULT false,  -- all of that version is in the log, or why it isn't is known:
    problem       text               -- why the newest snapshot isn't in the log, where Delta can't say it
);

CREATE TABLE duckicelake_delta_version (
    table_id     bigint  NOT NULL,
    version      bigint  NOT NULL,
    snapshot_id  bigint,            -- Iceberg's; null for a table without one
    logged_ms    bigint  NOT NULL,  -- since when main named it, by the snapshot log
    timestamp_ms bigint  NOT NULL,  -- Delta's in-commit timestamp
    body         bytea   NOT NULL,  -- the version's file, deflated
    vectors_path text,              -- the file of the deletion vectors that it brings, relative to the root
    vectors      bytea,             -- deflated
    is_written   boolean NOT NULL DEFAULT false,
    PRIMARY KEY (table_id, version)
);

-- The deletion vector of a data file in the versions from one up to before another.
CREATE TABLE duckicelake_delta_vector (
    table_id      bigint NOT NULL,
    path          text   NOT NULL,  -- the data file's, as the log has it
    begin_version bigint NOT NULL,
    end_version   bigint,
    sha256        bytea  NOT NULL,  -- of the positions
    descriptor    json   NOT NULL,
    PRIMARY KEY (table_id, path, begin_version)
);
