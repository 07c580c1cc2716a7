-- Secrets that principals make for themselves: they may less than their principal, and end with what they were made with.
SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

ALTER TABLE duckicelake_secret
    ADD COLUMN scopes  text[],                    -- all that it gives of its principal's scopes; NULL: all of them
    ADD COLUMN made_by uuid[] NOT NULL DEFAULT '{}';  -- the secret that made it, and those that made this one
