-- DuckLake's options of a table are properties of the Iceberg table, and back. set_option makes no snapshot by which caches
-- could notice it.

-- Functions below keep the search path of this moment: DuckDB and pg_restore run them under another.
SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

-- How often the epoch rose for options: all other times snapshots were expired.
ALTER TABLE duckicelake_epoch ADD COLUMN options bigint NOT NULL DEFAULT 0;

-- Each transaction reads the lake's version, and each catch-up a table's options, among as many rows as there are tables.
CREATE INDEX duckicelake_metadata_key ON ducklake_metadata (key, scope_id);
CREATE INDEX duckicelake_metadata_scope ON ducklake_metadata (scope_id) WHERE scope = 'table';

-- Options that a lake has win: the next load of a table shows them. Where there are none, properties become options.
UPDATE duckicelake_epoch SET epoch = epoch + 1, options = options + 1
WHERE EXISTS (SELECT FROM ducklake_metadata WHERE scope = 'table');

-- A level that a schema or the lake has is DuckDB's for tables of any codec, and refuses INSERTs by another one than zstd.
CREATE FUNCTION duckicelake_is_safe_option(key text, value text) RETURNS boolean
LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
    SELECT key <> 'parquet_compression' OR value = 'zstd' OR NOT EXISTS (
        SELECT FROM ducklake_metadata m
        WHERE m.key = 'parquet_compression_level' AND m.scope IS DISTINCT FROM 'table')
$$;

INSERT INTO ducklake_metadata (key, value, scope, scope_id)
SELECT o.key, o.value, 'table', t.table_id
FROM duckicelake_table t
CROSS JOIN json_to_record(t.metadata) AS m (properties json)
CROSS JOIN LATERAL (VALUES
    ('target_file_size', substring(m.properties ->> 'write.target-file-size-bytes' FROM '^[1-9][0-9]{0,17}$')),
    ('parquet_compression', substring(lower(m.properties ->> 'write.parquet.compression-codec')
                                      FROM '^(?:uncompressed|snappy|gzip|zstd|brotli|lz4|lz4_raw)$'))
) AS o (key, value)
WHERE o.value IS NOT NULL
  AND duckicelake_is_safe_option(o.key, o.value)
  AND EXISTS (SELECT FROM ducklake_table l WHERE l.table_id = t.table_id AND l.end_snapshot IS NULL)
  AND NOT EXISTS (
      SELECT FROM ducklake_metadata d WHERE d.scope = 'table' AND d.scope_id = t.table_id AND d.key = o.key);

CREATE FUNCTION duckicelake_notice_options() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    IF coalesce(current_setting('duckicelake.writes_options', true), '') <> 'on'
        AND EXISTS (SELECT FROM changed WHERE scope = 'table') THEN
        UPDATE duckicelake_epoch SET epoch = epoch + 1, options = options + 1;
    END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER duckicelake_notice_new_options AFTER INSERT ON ducklake_metadata
REFERENCING NEW TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION duckicelake_notice_options();

CREATE TRIGGER duckicelake_notice_set_options AFTER UPDATE ON ducklake_metadata
REFERENCING NEW TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION duckicelake_notice_options();

CREATE TRIGGER duckicelake_notice_gone_options AFTER DELETE ON ducklake_metadata
REFERENCING OLD TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION duckicelake_notice_options();

-- Sets a table's options that have a value and removes the others. The commit that does so changes the table's properties
-- likewise, so the epoch stays. A DuckDB client that has just set one of them keeps its row locked until its commit, which
-- may wait for this transaction.
CREATE FUNCTION duckicelake_set_options(of_table bigint, options json) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT SET lock_timeout = '100ms' AS $$
BEGIN
    PERFORM set_config('duckicelake.writes_options', 'on', true);
    DELETE FROM ducklake_metadata
    WHERE scope = 'table' AND scope_id = of_table AND key IN (SELECT json_object_keys(options));
    INSERT INTO ducklake_metadata (key, value, scope, scope_id)
    SELECT o.key, o.value, 'table', of_table FROM json_each_text(options) o
    WHERE o.value IS NOT NULL AND duckicelake_is_safe_option(o.key, o.value);
    PERFORM set_config('duckicelake.writes_options', '', true);
END $$;
