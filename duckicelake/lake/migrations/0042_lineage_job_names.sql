-- Names of the catalog's jobs hold the name of a table: `program.what.table.hash`. Such a name is shown whole to those
-- who may know all that the job reads and writes, by all names that it had. Others see another word in the table's
-- place. This holds for names of any age, as a job may get inputs after it got its name.
SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

-- The name of a job without that of a table. As much as can be is left out: program and table may hold dots.
CREATE FUNCTION duckicelake_lineage_masked_job_name(name text) RETURNS text
LANGUAGE sql IMMUTABLE AS $$
    SELECT regexp_replace(name,
        '^(.*?\.(?:append|delete|overwrite|replace|view|(?:create|update|alter|rename|drop)-(?:table|view)))'
        '\..+\.([0-9a-f]{8})$', '\1.several-namespaces.\2')
$$;

-- The name of a job as somebody may know it. granted: patterns of schemas that they may read; none: all.
CREATE FUNCTION duckicelake_lineage_shown_job_name(job bigint, name text, origin text, granted text[]) RETURNS text
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
BEGIN
    IF granted IS NULL OR origin <> 'catalog' THEN
        RETURN name;
    END IF;
    IF duckicelake_lineage_sees_all_of_job(job, granted) AND NOT EXISTS (
        SELECT FROM duckicelake_lineage_job_io io JOIN duckicelake_lineage_name n ON n.dataset_id = io.dataset_id
        WHERE io.job_id = job AND n.is_table AND NOT duckicelake_lineage_sees_name(n.name, granted)
    ) THEN
        RETURN name;
    END IF;
    RETURN duckicelake_lineage_masked_job_name(name);
END
$$;
