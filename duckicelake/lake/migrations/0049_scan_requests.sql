-- Requests to plan a scan that are too long to be in each of the plan's tasks, by SHA-256. Any server finds them there.
CREATE TABLE duckicelake_scan_request (
    hash    bytea       PRIMARY KEY,
    request bytea       NOT NULL,  -- deflated
    sent    timestamptz NOT NULL DEFAULT clock_timestamp()
);

ALTER TABLE duckicelake_scan_request ALTER COLUMN request SET STORAGE EXTERNAL;  -- it is compressed already

CREATE INDEX duckicelake_scan_request_sent ON duckicelake_scan_request (sent);
