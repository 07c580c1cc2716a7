-- What a log says, by the version that said it; -1 is a checkpoint. A vector is known by where it is.
CREATE OR REPLACE TEMP TABLE delta_line (
    version BIGINT,
    added BOOLEAN,
    path VARCHAR,
    partition_values JSON,
    stats VARCHAR,
    vector JSON,
    metaData JSON,
    protocol JSON,
    sidecar VARCHAR
)
