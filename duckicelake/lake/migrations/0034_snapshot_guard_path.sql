-- DuckDB's sessions have a search path of their own, and the lake may lie in another schema (METADATA_SCHEMA): the trigger
-- that each new snapshot fires finds its function by the search path of this moment.
SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

ALTER FUNCTION duckicelake_check_known() SET search_path FROM CURRENT;
