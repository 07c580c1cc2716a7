-- 0021_delta_sources.sql was edited three times after lakes had it. Its trigger's function is made anew by 0029.
ALTER TABLE duckicelake_delta_source
    DROP COLUMN IF EXISTS newest,
    DROP COLUMN IF EXISTS looked_at,
    ADD COLUMN IF NOT EXISTS failed_at timestamptz,
    ADD COLUMN IF NOT EXISTS shape text;

SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

CREATE OR REPLACE FUNCTION duckicelake_table_shape(id bigint) RETURNS text
LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
    SELECT coalesce((
        SELECT concat_ws('/', format_version, metadata ->> 'current-schema-id', metadata ->> 'last-column-id',
                         metadata ->> 'default-spec-id', metadata ->> 'default-sort-order-id')
        FROM duckicelake_table WHERE table_id = id), '')
$$;
UPDATE duckicelake_delta_source SET shape = duckicelake_table_shape(table_id) WHERE shape IS NULL;
ALTER TABLE duckicelake_delta_source ALTER COLUMN shape SET NOT NULL;
