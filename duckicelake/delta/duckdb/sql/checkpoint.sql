-- The rows of Parquet checkpoints and sidecars that say what a table holds; what a file lacks is null.
INSERT INTO delta_line
SELECT -1, CASE WHEN "add" IS NOT NULL THEN true END, url_decode("add".path), to_json("add".partitionValues),
       "add".stats, to_json("add".deletionVector), to_json(metaData), to_json(protocol), sidecar.path
FROM read_parquet($files, hive_partitioning = false, schema = MAP {
    'add': {name: 'add', type: 'STRUCT(path VARCHAR, partitionValues MAP(VARCHAR, VARCHAR), stats VARCHAR,
        deletionVector STRUCT(storageType VARCHAR, pathOrInlineDv VARCHAR, "offset" INTEGER, sizeInBytes INTEGER,
        cardinality BIGINT))', default_value: NULL},
    'metaData': {name: 'metaData', type: 'STRUCT(id VARCHAR, "name" VARCHAR, schemaString VARCHAR,
        partitionColumns VARCHAR[], configuration MAP(VARCHAR, VARCHAR), createdTime BIGINT)', default_value: NULL},
    'protocol': {name: 'protocol', type: 'STRUCT(minReaderVersion INTEGER, minWriterVersion INTEGER,
        readerFeatures VARCHAR[], writerFeatures VARCHAR[])', default_value: NULL},
    'sidecar': {name: 'sidecar', type: 'STRUCT(path VARCHAR)', default_value: NULL}})
WHERE "add" IS NOT NULL OR metaData IS NOT NULL OR protocol IS NOT NULL OR sidecar IS NOT NULL
