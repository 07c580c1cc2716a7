-- Issuers as ways to sign in to the console, and groups that an issuer calls otherwise than the server does.
SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

ALTER TABLE duckicelake_issuer
    ADD COLUMN is_disabled    boolean NOT NULL DEFAULT false,  -- its tokens don't count, and no one signs in there
    ADD COLUMN leeway         integer NOT NULL DEFAULT 30 CHECK (leeway BETWEEN 0 AND 600),  -- seconds its clock may differ
    ADD COLUMN label          text    NOT NULL DEFAULT '',     -- what the page to sign in calls it
    ADD COLUMN web_client_id  text    CHECK (web_client_id <> ''),  -- what it calls the console; NULL: no one signs in there
    ADD COLUMN web_scopes     text[]  NOT NULL DEFAULT '{openid}',
    ADD COLUMN web_parameters text[]  NOT NULL DEFAULT '{}',   -- name=value, what else its page to sign in is sent
    ADD COLUMN web_secret     text,                            -- of that client, encrypted by a key of the settings
    ADD CHECK (web_secret IS NULL OR web_client_id IS NOT NULL);

-- A group with a subject has the members for whom tokens of its issuer have that value in the claim of groups. An issuer
-- may give a user and a group the same value.
ALTER TABLE duckicelake_principal
    DROP CONSTRAINT duckicelake_principal_check1,
    DROP CONSTRAINT duckicelake_principal_issuer_subject_key,
    ADD CONSTRAINT duckicelake_principal_subject_check CHECK (subject IS NULL OR kind IN ('user', 'service', 'group'));
CREATE UNIQUE INDEX duckicelake_principal_subject ON duckicelake_principal (issuer, subject, (kind = 'group'));
