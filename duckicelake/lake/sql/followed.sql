-- allow_write: for the rest of the transaction, this table may be written though it is followed
SELECT set_config('duckicelake.delta_sync', (%(table_id)s::bigint)::text, true);

-- refusal: why a table mustn't be written; null if it may be
SELECT duckicelake_read_only(%(table_id)s);
