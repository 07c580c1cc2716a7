-- 0017_lineage.sql was edited four times after lakes had it.
ALTER TABLE duckicelake_lineage_job ADD COLUMN IF NOT EXISTS origin text;
UPDATE duckicelake_lineage_job j SET origin = coalesce(
    (SELECT r.origin FROM duckicelake_lineage_run r WHERE r.job_id = j.id ORDER BY r.origin = 'catalog' DESC LIMIT 1),
    'received')
WHERE origin IS NULL;
ALTER TABLE duckicelake_lineage_job ALTER COLUMN origin SET NOT NULL;

CREATE INDEX IF NOT EXISTS duckicelake_lineage_run_seen ON duckicelake_lineage_run (last_seen);

CREATE TABLE IF NOT EXISTS duckicelake_lineage_job_io (
    job_id     bigint      NOT NULL,
    dataset_id bigint      NOT NULL,
    is_output  boolean     NOT NULL,
    last_seen  timestamptz NOT NULL,
    PRIMARY KEY (job_id, dataset_id, is_output)
);
CREATE INDEX IF NOT EXISTS duckicelake_lineage_job_io_dataset ON duckicelake_lineage_job_io (dataset_id, is_output);
INSERT INTO duckicelake_lineage_job_io (job_id, dataset_id, is_output, last_seen)
SELECT job_id, dataset_id, is_output, max(at) FROM duckicelake_lineage_io GROUP BY 1, 2, 3
ON CONFLICT DO NOTHING;

-- Functions below keep the search path of this moment.
SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

-- Whether a dataset that is no table of the lake came from or went to one that is.
CREATE OR REPLACE FUNCTION duckicelake_lineage_adjoins(dataset_id bigint, granted text[]) RETURNS boolean
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
BEGIN
    RETURN EXISTS (
        SELECT FROM duckicelake_lineage_edge e JOIN duckicelake_lineage_dataset d ON d.id = e.target
        WHERE e.source = dataset_id AND d.schema_name LIKE ANY (granted)
    ) OR EXISTS (
        SELECT FROM duckicelake_lineage_edge e JOIN duckicelake_lineage_dataset d ON d.id = e.source
        WHERE e.target = dataset_id AND d.schema_name LIKE ANY (granted)
    );
END
$$;

-- Whether somebody may know of a dataset. granted: patterns of schemas that they may read; none: all. What is no table
-- of the lake may be known to who may read a table that it came from or went to.
CREATE OR REPLACE FUNCTION duckicelake_lineage_sees(dataset_id bigint, schema_name text, granted text[]) RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT granted IS NULL OR CASE WHEN schema_name IS NOT NULL THEN schema_name LIKE ANY (granted)
                                   ELSE duckicelake_lineage_adjoins(dataset_id, granted) END
$$;

-- Whether somebody may know of a job: it reads or writes a table that they may read.
CREATE OR REPLACE FUNCTION duckicelake_lineage_sees_job(job bigint, granted text[]) RETURNS boolean
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
BEGIN
    RETURN granted IS NULL OR EXISTS (
        SELECT FROM duckicelake_lineage_job_io io JOIN duckicelake_lineage_dataset d ON d.id = io.dataset_id
        WHERE io.job_id = job AND d.schema_name LIKE ANY (granted));
END
$$;

-- Whether somebody may know all that a job reads and writes, and so what it said of itself.
CREATE OR REPLACE FUNCTION duckicelake_lineage_sees_all_of_job(job bigint, granted text[]) RETURNS boolean
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
BEGIN
    RETURN granted IS NULL OR coalesce((
        SELECT bool_and(duckicelake_lineage_sees(d.id, d.schema_name, granted))
        FROM duckicelake_lineage_job_io io JOIN duckicelake_lineage_dataset d ON d.id = io.dataset_id
        WHERE io.job_id = job), false);
END
$$;

-- Whether somebody may know a full name of a table: whoever may read it now needn't have been told its former ones.
CREATE OR REPLACE FUNCTION duckicelake_lineage_sees_name(name text, granted text[]) RETURNS boolean
LANGUAGE sql IMMUTABLE AS $$
    SELECT granted IS NULL OR regexp_replace(name, '\.[^.]*$', '') LIKE ANY (granted)
$$;

-- Whether somebody may know all that a run read and wrote, what its columns came from, and by which names it knew that,
-- and so what it said; who may not know everything, of none that touched nothing.
CREATE OR REPLACE FUNCTION duckicelake_lineage_sees_run(run uuid, granted text[]) RETURNS boolean
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
BEGIN
    RETURN granted IS NULL OR coalesce((
        SELECT bool_and(duckicelake_lineage_sees(d.id, d.schema_name, granted) AND NOT EXISTS (
            SELECT FROM duckicelake_lineage_name n
            WHERE n.dataset_id = d.id AND n.is_table AND n.until >= io.at
              AND NOT duckicelake_lineage_sees_name(n.name, granted)))
        FROM duckicelake_lineage_io io JOIN duckicelake_lineage_dataset d ON d.id = io.dataset_id
        WHERE io.run_id = run), false
    ) AND NOT EXISTS (
        SELECT FROM duckicelake_lineage_io io
        JOIN duckicelake_lineage_edge e ON e.target = io.dataset_id AND e.job_id = io.job_id
        JOIN duckicelake_lineage_dataset d ON d.id = e.source
        WHERE io.run_id = run AND io.is_output AND io.has_columns
          AND NOT duckicelake_lineage_sees(d.id, d.schema_name, granted));
END
$$;

-- Datasets with the name that people know them by: the table's, if there is one.
CREATE OR REPLACE VIEW duckicelake_lineage_shown AS
SELECT d.*, coalesce(n.namespace, d.namespace) AS shown_namespace, coalesce(n.name, d.name) AS shown_name
FROM duckicelake_lineage_dataset d
LEFT JOIN LATERAL (
    SELECT namespace, name FROM duckicelake_lineage_name
    WHERE dataset_id = d.id AND is_table AND until IS NULL ORDER BY since DESC, namespace LIMIT 1
) AS n ON true;
