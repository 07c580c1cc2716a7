-- Where the files of warehouses are, besides the store of the settings: an S3 server, a folder, and a key for it. Only the
-- rows of a server's first lake count, as of duckicelake_warehouse.
CREATE TABLE duckicelake_storage_profile (
    profile_id      uuid        PRIMARY KEY,
    name            text        NOT NULL UNIQUE,
    root            text        NOT NULL,  -- s3://<bucket>/<prefix>, below which its warehouses are
    endpoint        text,                  -- URL of the S3 server; null: Amazon's
    public_endpoint text,                  -- the same for clients; null: the endpoint
    sts_endpoint    text,
    region          text,
    path_style      boolean     NOT NULL,
    vending         text        CHECK (vending IN ('sts', 'remote-signing', 'none')),  -- null: by endpoint and role
    role_arn        text,
    external_id     text,
    secret          text,                  -- the server's key for it, encrypted; null: the server's own credentials
    created         timestamptz NOT NULL DEFAULT clock_timestamp()
);

ALTER TABLE duckicelake_warehouse ADD COLUMN profile_id uuid REFERENCES duckicelake_storage_profile (profile_id);
