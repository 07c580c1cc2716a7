-- Whoever may read single tables sees the lineage of these. `granted` holds patterns of schemas, as before, and of tables:
-- schema and name with the control character 31 between them, which no schema has in its name.
SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

-- Whether patterns cover a table.
CREATE FUNCTION duckicelake_lineage_covers(schema_name text, table_name text, granted text[]) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT schema_name LIKE ANY (granted) OR coalesce(schema_name || chr(31) || table_name LIKE ANY (granted), false)
$$;

CREATE OR REPLACE FUNCTION duckicelake_lineage_adjoins(dataset_id bigint, granted text[]) RETURNS boolean
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
BEGIN
    RETURN EXISTS (
        SELECT FROM duckicelake_lineage_edge e JOIN duckicelake_lineage_dataset d ON d.id = e.target
        WHERE e.source = dataset_id AND duckicelake_lineage_covers(d.schema_name, d.table_name, granted)
    ) OR EXISTS (
        SELECT FROM duckicelake_lineage_edge e JOIN duckicelake_lineage_dataset d ON d.id = e.source
        WHERE e.target = dataset_id AND duckicelake_lineage_covers(d.schema_name, d.table_name, granted)
    );
END
$$;

CREATE OR REPLACE FUNCTION duckicelake_lineage_sees(dataset_id bigint, schema_name text, granted text[])
RETURNS boolean LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
BEGIN
    IF granted IS NULL OR schema_name LIKE ANY (granted) THEN
        RETURN true;
    END IF;
    IF schema_name IS NULL THEN
        RETURN duckicelake_lineage_adjoins(dataset_id, granted);
    END IF;
    RETURN EXISTS (
        SELECT FROM duckicelake_lineage_dataset d
        WHERE d.id = dataset_id AND duckicelake_lineage_covers(d.schema_name, d.table_name, granted));
END
$$;

CREATE OR REPLACE FUNCTION duckicelake_lineage_sees_job(job bigint, granted text[]) RETURNS boolean
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
BEGIN
    RETURN granted IS NULL OR EXISTS (
        SELECT FROM duckicelake_lineage_job_io io JOIN duckicelake_lineage_dataset d ON d.id = io.dataset_id
        WHERE io.job_id = job AND duckicelake_lineage_covers(d.schema_name, d.table_name, granted));
END
$$;

CREATE OR REPLACE FUNCTION duckicelake_lineage_sees_name(name text, granted text[]) RETURNS boolean
LANGUAGE sql IMMUTABLE AS $$
    SELECT granted IS NULL OR regexp_replace(name, '\.[^.]*$', '') LIKE ANY (granted)
        OR regexp_replace(name, '\.([^.]*)$', chr(31) || '\1') LIKE ANY (granted)
$$;
