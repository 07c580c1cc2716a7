-- The lines of commits, compactions and JSON checkpoints that say what a table holds.
INSERT INTO delta_line
SELECT CASE WHEN contains(filename, '.checkpoint.') THEN -1 ELSE left(parse_filename(filename), 20)::BIGINT END,
       "add", remove, metaData, protocol, sidecar.path
FROM read_json($files, format = 'newline_delimited', filename = true, maximum_object_size = 134217728, columns = {
    "add": 'STRUCT(path VARCHAR, partitionValues MAP(VARCHAR, VARCHAR), stats VARCHAR, deletionVector STRUCT(
        storageType VARCHAR, pathOrInlineDv VARCHAR, "offset" INTEGER, sizeInBytes INTEGER, cardinality BIGINT))',
    remove: 'STRUCT(path VARCHAR, deletionVector STRUCT(
        storageType VARCHAR, pathOrInlineDv VARCHAR, "offset" INTEGER, sizeInBytes INTEGER, cardinality BIGINT))',
    metaData: 'JSON', protocol: 'JSON', sidecar: 'STRUCT(path VARCHAR)'})
WHERE "add" IS NOT NULL OR remove IS NOT NULL OR metaData IS NOT NULL OR protocol IS NOT NULL OR sidecar IS NOT NULL
