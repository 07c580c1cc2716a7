-- DuckDB commits some deletes beside others that take their effect away. A delete of few rows is kept in Postgres by file
-- and position: merging or rewriting that file meanwhile brings the rows back. Two deletes from a file that has a delete
-- file already, or a delete beside a flush, give the file two delete files: every client then reads its rows twice.
-- Who commits last is refused. DuckDB tries a commit again where an error says "conflict", "concurrent", "unique" or
-- "primary key"; that can't help here, since what it would write again is what was computed from the files of before.

-- Functions below keep the search path of this moment: DuckDB and pg_restore run them under another. They run with the
-- rights of who writes: tables of inlined deletes belong to the login that made them.
SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

CREATE FUNCTION duckicelake_refuse_lost_delete(id bigint, reason text) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    RAISE EXCEPTION '%', format(
        '%s. Nothing was written to %s: run the transaction again', reason, coalesce((
            SELECT s.schema_name || '.' || t.table_name FROM ducklake_table t JOIN ducklake_schema s USING (schema_id)
            WHERE t.table_id = id AND t.end_snapshot IS NULL LIMIT 1), 'table ' || id));
END $$;

-- Merging removes the rows of its files, which are live; expiry removes rows of files that have ended. DuckDB merges no
-- file that has deletes, so inlined deletes of such a file have come since.
CREATE FUNCTION duckicelake_check_merge() RETURNS trigger
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    id   bigint;
    lost boolean;
BEGIN
    FOR id IN SELECT DISTINCT table_id FROM gone WHERE end_snapshot IS NULL LOOP
        IF to_regclass('ducklake_inlined_delete_' || id) IS NOT NULL THEN
            EXECUTE format('SELECT EXISTS (SELECT FROM %I i JOIN gone g ON g.data_file_id = i.file_id '
                           'WHERE g.end_snapshot IS NULL)', 'ducklake_inlined_delete_' || id) INTO lost;
            IF lost THEN
                PERFORM duckicelake_refuse_lost_delete(
                    id, 'Another transaction has deleted rows from files that were to be merged');
            END IF;
        END IF;
    END LOOP;
    RETURN NULL;
END $$;

CREATE TRIGGER duckicelake_check_merge AFTER DELETE ON ducklake_data_file
REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION duckicelake_check_merge();

-- Rows of files which hold their history only have begun never: they delete nothing.
CREATE FUNCTION duckicelake_check_delete_files() RETURNS trigger
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    id bigint;
BEGIN
    SELECT a.table_id INTO id
    FROM added a JOIN ducklake_delete_file d ON d.data_file_id = a.data_file_id AND d.delete_file_id <> a.delete_file_id
    WHERE a.end_snapshot IS NULL AND a.begin_snapshot < 4611686018427387904
      AND d.end_snapshot IS NULL AND d.begin_snapshot < 4611686018427387904
    LIMIT 1;
    IF FOUND THEN
        PERFORM duckicelake_refuse_lost_delete(id, 'Another transaction has deleted rows from the same file');
    END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER duckicelake_check_delete_files AFTER INSERT ON ducklake_delete_file
REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION duckicelake_check_delete_files();

-- How many rows a rewrite has brought back to a table: of files that ended with it, with inlined deletes, those that are
-- in its new files beyond what is left. A file that takes others' place has no row ids of its own.
CREATE FUNCTION duckicelake_returned_rows(id bigint, at bigint) RETURNS bigint
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
DECLARE
    inlined text := 'ducklake_inlined_delete_' || id;
    deleted bigint;
    remains bigint;
    written bigint;
BEGIN
    IF to_regclass(inlined) IS NULL THEN
        RETURN 0;
    END IF;
    EXECUTE format('SELECT count(*) FROM (SELECT DISTINCT i.file_id, i.row_id FROM %I i JOIN ducklake_data_file f '
                   'ON f.data_file_id = i.file_id AND f.table_id = $1 AND f.end_snapshot = $2 '
                   'WHERE i.begin_snapshot < $2) i', inlined) INTO deleted USING id, at;
    IF deleted = 0 THEN
        RETURN 0;
    END IF;
    SELECT sum(f.record_count - coalesce(d.delete_count, 0)) - deleted INTO remains
    FROM ducklake_data_file f
    LEFT JOIN ducklake_delete_file d ON d.data_file_id = f.data_file_id AND d.begin_snapshot < at
         AND (d.end_snapshot IS NULL OR d.end_snapshot >= at)
    WHERE f.table_id = id AND f.end_snapshot = at;
    SELECT coalesce(sum(record_count), 0) INTO written
    FROM ducklake_data_file
    WHERE table_id = id AND begin_snapshot = at AND row_id_start IS NULL;
    RETURN greatest(written - remains, 0);
END $$;

-- What a snapshot changed is written last, when all else is there. Lists of names may hold anything.
CREATE FUNCTION duckicelake_check_inlined_deletes() RETURNS trigger
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    change  record;
    inlined text;
    lost    boolean;
BEGIN
    FOR change IN
        SELECT token[1] AS kind, token[2]::bigint AS id
        FROM regexp_matches(regexp_replace(NEW.changes_made, '"([^"]|"")*"', '', 'g'),
                            '(inlined_delete|rewrite_delete):(\d+)', 'g') AS token
    LOOP
        inlined := 'ducklake_inlined_delete_' || change.id;
        IF change.kind = 'rewrite_delete' THEN
            IF duckicelake_returned_rows(change.id, NEW.snapshot_id) > 0 THEN
                PERFORM duckicelake_refuse_lost_delete(
                    change.id, 'Another transaction has deleted rows from files that were to be rewritten');
            END IF;
        ELSIF to_regclass(inlined) IS NOT NULL THEN
            EXECUTE format('SELECT EXISTS (SELECT FROM %I i WHERE i.begin_snapshot = $1 AND NOT EXISTS ('
                           'SELECT FROM ducklake_data_file f WHERE f.data_file_id = i.file_id '
                           'AND (f.end_snapshot IS NULL OR f.end_snapshot >= $1)))', inlined)
                INTO lost USING NEW.snapshot_id;
            IF lost THEN
                PERFORM duckicelake_refuse_lost_delete(
                    change.id, 'Another transaction has merged, rewritten or removed a file that rows were deleted from');
            END IF;
        END IF;
    END LOOP;
    RETURN NULL;
END $$;

CREATE TRIGGER duckicelake_check_inlined_deletes AFTER INSERT ON ducklake_snapshot_changes
FOR EACH ROW WHEN (NEW.changes_made ~ '(inlined|rewrite)_delete:') EXECUTE FUNCTION duckicelake_check_inlined_deletes();
