-- Files that `duckicelake watch` has loaded into tables, in batches. A batch is a run: the commit with its rows is the one
-- that makes its files loaded.
SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

CREATE TABLE duckicelake_file_batch (
    table_id    bigint      NOT NULL REFERENCES duckicelake_table ON DELETE CASCADE,
    run_id      text        NOT NULL,
    state       text        NOT NULL DEFAULT 'open' CHECK (state IN ('open', 'committed', 'ended', 'void')),
    principal   text        NOT NULL,
    begun       timestamptz NOT NULL DEFAULT clock_timestamp(),
    lease_until timestamptz NOT NULL,     -- until its job begins, whose lease counts from then on
    snapshot_id bigint,                   -- Iceberg's of its commit
    PRIMARY KEY (table_id, run_id)
);

CREATE TABLE duckicelake_loaded_file (
    number   bigint      GENERATED ALWAYS AS IDENTITY,
    table_id bigint      NOT NULL,
    file_key uuid        NOT NULL,  -- of name, size and version
    run_id   text        NOT NULL,
    name     text        NOT NULL,
    size     bigint      NOT NULL,
    version  text        NOT NULL,  -- its ETag, or the time of its last change
    error    text,                  -- why it can't be loaded; null: its state is its batch's
    noted    timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (table_id, file_key),
    FOREIGN KEY (table_id, run_id) REFERENCES duckicelake_file_batch ON DELETE CASCADE
);
CREATE INDEX duckicelake_loaded_file_number ON duckicelake_loaded_file (table_id, number);
CREATE INDEX duckicelake_loaded_file_batch ON duckicelake_loaded_file (table_id, run_id);

-- Functions keep the search path of this moment. A batch that was given up can't be committed any more: its committer
-- starts again, and is refused by the txn that the giving up has left.
CREATE FUNCTION duckicelake_commit_file_batch() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    batch duckicelake_file_batch;
BEGIN
    SELECT * INTO batch FROM duckicelake_file_batch
    WHERE table_id = NEW.table_id AND run_id = NEW.app_id FOR UPDATE;
    IF NOT FOUND THEN
        RETURN NEW;
    END IF;
    IF batch.state = 'void' THEN
        RAISE EXCEPTION 'Batch % was given up', NEW.app_id USING ERRCODE = 'serialization_failure';
    END IF;
    UPDATE duckicelake_file_batch
    SET state = 'committed', snapshot_id = NEW.iceberg_snapshot_id
    WHERE table_id = batch.table_id AND run_id = batch.run_id AND state = 'open';
    RETURN NEW;
END $$;

CREATE TRIGGER duckicelake_commit_file_batch BEFORE INSERT ON duckicelake_txn
FOR EACH ROW WHEN (NEW.is_run AND NEW.iceberg_snapshot_id IS NOT NULL)
EXECUTE FUNCTION duckicelake_commit_file_batch();
