-- DuckLake 1.1 calls the first three columns of tables of inlined rows otherwise, and a catalog that was migrated under
-- its clients has both spellings. They are found by their places.

-- The names of these columns of a table; null unless it begins with all three, each in either spelling.
CREATE FUNCTION duckicelake_system_columns(name text) RETURNS text[] LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN count(*) = 3 THEN array_agg(attname::text ORDER BY attnum) END
    FROM pg_attribute
    WHERE attrelid = to_regclass(quote_ident(name)) AND attnum BETWEEN 1 AND 3 AND NOT attisdropped
      AND attname IN ((ARRAY['row_id', 'begin_snapshot', 'end_snapshot'])[attnum],
                      (ARRAY['_ducklake_row_id', '_ducklake_begin_snapshot', '_ducklake_end_snapshot'])[attnum])
$$;

-- End rows of a table of inlined rows by their begins and row ids, but those that have ended; how many there were.
CREATE FUNCTION duckicelake_end_inlined_rows(name text, at bigint, begins bigint[], rows bigint[]) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    names text[] := duckicelake_system_columns(name);
    ended bigint;
BEGIN
    IF names IS NULL THEN
        RAISE undefined_column USING MESSAGE = format('table %s does not begin with DuckLake''s three columns', name);
    END IF;
    EXECUTE format('UPDATE %I AS i SET %4$I = $1 FROM unnest($2, $3) AS k (b, r) '
                   'WHERE i.%3$I = k.b AND i.%2$I = k.r AND i.%4$I IS NULL', name, names[1], names[2], names[3])
        USING at, begins, rows;
    GET DIAGNOSTICS ended = ROW_COUNT;
    RETURN ended;
END $$;

-- The columns of a table of inlined rows that are a table's own, as text: by these `duckicelake_check_renames` compares.
CREATE OR REPLACE FUNCTION duckicelake_inlined_columns(name text) RETURNS text LANGUAGE sql STABLE AS $$
    SELECT string_agg(attname || ' ' || format_type(atttypid, atttypmod), ', ' ORDER BY attnum)
    FROM pg_attribute WHERE attrelid = to_regclass(quote_ident(name)) AND attnum > 3 AND NOT attisdropped
$$;

-- Columns of views have comments of their own in DuckLake 1.1: tags by the names that the view's query gives them. A lake
-- of 1.0 has no table of them, and none of the functions below does anything there.

ALTER TABLE duckicelake_view ADD COLUMN column_comments json NOT NULL DEFAULT '[]';

-- The comments that columns of a view have now, as [[name, comment], …].
CREATE FUNCTION duckicelake_view_column_comments(id bigint) RETURNS json LANGUAGE plpgsql STABLE AS $$
BEGIN
    IF to_regclass('ducklake_view_column_tag') IS NULL THEN
        RETURN '[]';
    END IF;
    RETURN (SELECT coalesce(json_agg(json_build_array(column_name, value) ORDER BY column_name COLLATE "C"), '[]')
            FROM ducklake_view_column_tag
            WHERE view_id = id AND key = 'comment' AND end_snapshot IS NULL AND value IS NOT NULL);
END $$;

-- Give the columns of a view these comments and no others; the comments that they have then.
CREATE FUNCTION duckicelake_comment_view_columns(id bigint, at bigint, comments json) RETURNS json LANGUAGE plpgsql AS $$
BEGIN
    IF to_regclass('ducklake_view_column_tag') IS NULL THEN
        RETURN '[]';
    END IF;
    UPDATE ducklake_view_column_tag t SET end_snapshot = at
    WHERE t.view_id = id AND t.key = 'comment' AND t.end_snapshot IS NULL AND NOT EXISTS (
        SELECT FROM json_array_elements(comments) AS c WHERE c ->> 0 = t.column_name AND c ->> 1 = t.value);
    INSERT INTO ducklake_view_column_tag (view_id, column_name, begin_snapshot, end_snapshot, key, value)
    SELECT id, c ->> 0, at, NULL, 'comment', c ->> 1 FROM json_array_elements(comments) AS c
    WHERE NOT EXISTS (
        SELECT FROM ducklake_view_column_tag t
        WHERE t.view_id = id AND t.key = 'comment' AND t.end_snapshot IS NULL AND t.column_name = c ->> 0);
    RETURN duckicelake_view_column_comments(id);
END $$;

-- End the tags that columns of a view have; where the view goes on under another name, they begin again.
CREATE FUNCTION duckicelake_end_view_column_tags(id bigint, at bigint, goes_on boolean) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF to_regclass('ducklake_view_column_tag') IS NOT NULL THEN
        WITH ended AS (
            UPDATE ducklake_view_column_tag SET end_snapshot = at WHERE view_id = id AND end_snapshot IS NULL
            RETURNING view_id, column_name, key, value
        )
        INSERT INTO ducklake_view_column_tag (view_id, column_name, begin_snapshot, end_snapshot, key, value)
        SELECT view_id, column_name, at, NULL, key, value FROM ended WHERE goes_on;
    END IF;
END $$;

-- Live tags of columns of views that aren't live, or that came twice.
CREATE FUNCTION duckicelake_stray_view_column_tags() RETURNS TABLE (view_id bigint, column_name text, tags bigint)
LANGUAGE plpgsql STABLE AS $$
BEGIN
    IF to_regclass('ducklake_view_column_tag') IS NOT NULL THEN
        RETURN QUERY
        SELECT t.view_id, t.column_name::text, count(*) FROM ducklake_view_column_tag t
        WHERE t.end_snapshot IS NULL
        GROUP BY t.view_id, t.column_name, t.key
        HAVING count(*) > 1 OR NOT EXISTS (
            SELECT FROM ducklake_view v WHERE v.view_id = t.view_id AND v.end_snapshot IS NULL);
    END IF;
END $$;
