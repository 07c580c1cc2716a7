-- How the store of a profile encrypts the files of its warehouses, and who pays for requests to it.
SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

ALTER TABLE duckicelake_storage_profile
    ADD COLUMN sse            text    CHECK (sse IN ('s3', 'kms', 'dsse-kms')),  -- null: as the bucket says
    ADD COLUMN kms_key        text,                                              -- ARN of the key of KMS
    ADD COLUMN bucket_key     boolean,                                           -- null: as the bucket says
    ADD COLUMN requester_pays boolean NOT NULL DEFAULT false;
