-- What is asked of the files that are scheduled for deletion goes through their index, always: a plan made while the table
-- was empty, as ANALYZE has seen it, reads all of it for each commit once it has grown, until ANALYZE comes again.
SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

-- Whether a file of the name is scheduled, in whatever folder.
CREATE FUNCTION duckicelake_is_scheduled(file_path text) RETURNS boolean
LANGUAGE plpgsql STABLE STRICT SET search_path FROM CURRENT SET enable_seqscan = off AS $$
BEGIN
    RETURN EXISTS (
        SELECT FROM ducklake_files_scheduled_for_deletion s
        WHERE duckicelake_file_name(s.path) = duckicelake_file_name(file_path));
END $$;

-- Files that join a table stay; where DuckDB's orphan cleaner could take one, the trigger notes that.
CREATE FUNCTION duckicelake_unschedule(paths json) RETURNS void
LANGUAGE plpgsql STRICT SET search_path FROM CURRENT SET enable_seqscan = off AS $$
BEGIN
    WITH wanted AS (
        DELETE FROM ducklake_files_scheduled_for_deletion s USING json_array_elements_text(paths) AS p (path)
        WHERE duckicelake_file_name(s.path) = duckicelake_file_name(p.path)
          AND duckicelake_resolve(s.path, s.path_is_relative) = duckicelake_canonical_path(p.path)
        RETURNING s.*
    )
    INSERT INTO ducklake_files_scheduled_for_deletion SELECT * FROM wanted;
END $$;

ALTER FUNCTION duckicelake_is_named(text) SET enable_seqscan = off;
ALTER FUNCTION duckicelake_keep_named_file() SET enable_seqscan = off;
