-- What plans of scans read of manifests, packed by the first plan that needed it: the files and partition values of a
-- manifest, and the bounds of a column in all its files. Manifests never change, so neither does this. Commits write none.
CREATE TABLE duckicelake_scan_array (
    manifest_id bigint NOT NULL REFERENCES duckicelake_manifest ON DELETE CASCADE,
    name        text   NOT NULL,
    data        bytea  NOT NULL,
    PRIMARY KEY (manifest_id, name)
);
ALTER TABLE duckicelake_scan_array ALTER COLUMN data SET STORAGE EXTERNAL;  -- numbers, which hardly get smaller
