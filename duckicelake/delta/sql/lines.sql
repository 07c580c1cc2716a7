-- What a log says, by the version that said it; -1 is a checkpoint.
CREATE OR REPLACE TEMP TABLE delta_line (
    version BIGINT,
    "add" STRUCT(path VARCHAR, partitionValues MAP(VARCHAR, VARCHAR), stats VARCHAR, deletionVector STRUCT(
        storageType VARCHAR, pathOrInlineDv VARCHAR, "offset" INTEGER, sizeInBytes INTEGER, cardinality BIGINT)),
    remove STRUCT(path VARCHAR, deletionVector STRUCT(
        storageType VARCHAR, pathOrInlineDv VARCHAR, "offset" INTEGER, sizeInBytes INTEGER, cardinality BIGINT)),
    metaData JSON,
    protocol JSON,
    sidecar VARCHAR
)
