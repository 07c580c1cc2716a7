-- The lines of commits, compactions and JSON checkpoints that say what a table holds.
INSERT INTO delta_line
SELECT CASE WHEN contains(filename, '.checkpoint.') THEN -1 ELSE left(parse_filename(filename), 20)::BIGINT END,
       CASE WHEN "add" IS NOT NULL THEN true WHEN remove IS NOT NULL THEN false END,
       url_decode(coalesce("add".path, remove.path)), "add".partitionValues, "add".stats,
       coalesce("add".deletionVector, remove.deletionVector), metaData, protocol, sidecar.path
FROM read_json($files, format = 'newline_delimited', filename = true, maximum_object_size = $longest, columns = {
    "add": 'STRUCT(path VARCHAR, partitionValues JSON, stats VARCHAR, deletionVector JSON)',
    remove: 'STRUCT(path VARCHAR, deletionVector JSON)',
    metaData: 'JSON', protocol: 'JSON', sidecar: 'STRUCT(path VARCHAR)'})
WHERE "add" IS NOT NULL OR remove IS NOT NULL OR metaData IS NOT NULL OR protocol IS NOT NULL OR sidecar IS NOT NULL
