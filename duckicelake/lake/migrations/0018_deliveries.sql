-- How far lineage events have come: a row for each transport. Of `event_id` and those before none waits any more: it was
-- delivered, is a dead letter, or was dropped.
CREATE TABLE duckicelake_delivery (
    transport text        PRIMARY KEY,  -- as it is set, without anything secret
    event_id  bigint      NOT NULL,
    delivered bigint      NOT NULL DEFAULT 0,
    dropped   bigint      NOT NULL DEFAULT 0,
    moved     timestamptz NOT NULL DEFAULT clock_timestamp()
) WITH (fillfactor = 50);  -- the newest position takes its predecessor's place on the page

-- Events that a receiver refused. They stay, whatever becomes of the events, until they are tried again with success.
CREATE TABLE duckicelake_dead_letter (
    transport text        NOT NULL,
    event_id  bigint      NOT NULL,
    at        timestamptz NOT NULL DEFAULT clock_timestamp(),
    status    int,                      -- HTTP's, if the receiver has any
    reason    text        NOT NULL,
    attempts  int         NOT NULL,
    again     boolean     NOT NULL DEFAULT false,  -- somebody wants it tried again
    body      json        NOT NULL,
    PRIMARY KEY (transport, event_id)
);
CREATE INDEX duckicelake_dead_letter_again ON duckicelake_dead_letter (transport, event_id) WHERE again;

-- Wakes whoever delivers, when the transaction is committed; once for all events of one.
CREATE FUNCTION duckicelake_notify_lineage() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_catalog.pg_notify('duckicelake_lineage', '');
    RETURN NULL;
END $$;

CREATE TRIGGER duckicelake_notify_lineage AFTER INSERT ON duckicelake_lineage_event
FOR EACH STATEMENT EXECUTE FUNCTION duckicelake_notify_lineage();
