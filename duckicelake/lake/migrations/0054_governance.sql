-- Who may do what: principals, their secrets, the issuers of their tokens, and grants on objects. Every lake has the tables,
-- because all lakes have the same migrations; only the rows of a server's first lake count, for all its warehouses.
SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

CREATE TABLE duckicelake_principal (
    principal_id bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name         text        NOT NULL UNIQUE CHECK (name <> ''),
    kind         text        NOT NULL CHECK (kind IN ('user', 'service', 'group', 'role')),
    issuer       text,       -- the URL of the issuer whose tokens the subject shows
    subject      text,
    scopes       text[]      NOT NULL DEFAULT '{grants}',  -- all that its tokens can have
    is_disabled  boolean     NOT NULL DEFAULT false,
    description  text        NOT NULL DEFAULT '',
    created      timestamptz NOT NULL DEFAULT clock_timestamp(),
    UNIQUE (issuer, subject),
    CHECK ((issuer IS NULL) = (subject IS NULL)),
    CHECK (subject IS NULL OR kind IN ('user', 'service'))
);

-- Its members administer the server.
INSERT INTO duckicelake_principal (name, kind, description)
VALUES ('admin', 'role', 'May use the management API, and owns all warehouses');

CREATE TABLE duckicelake_membership (
    container_id bigint NOT NULL REFERENCES duckicelake_principal ON DELETE CASCADE,
    member_id    bigint NOT NULL REFERENCES duckicelake_principal ON DELETE CASCADE,
    PRIMARY KEY (container_id, member_id)
);
CREATE INDEX duckicelake_membership_member ON duckicelake_membership (member_id);

-- Secrets are random and long, so their SHA-256 reveals nothing of them. What is revoked is deleted.
CREATE TABLE duckicelake_secret (
    secret_id    uuid        PRIMARY KEY,
    principal_id bigint      NOT NULL REFERENCES duckicelake_principal ON DELETE CASCADE,
    kind         text        NOT NULL CHECK (kind IN ('client-secret', 'token')),
    hash         bytea       NOT NULL UNIQUE,
    description  text        NOT NULL DEFAULT '',
    created      timestamptz NOT NULL DEFAULT clock_timestamp(),
    expires      timestamptz,
    last_used    timestamptz
);
CREATE INDEX duckicelake_secret_principal ON duckicelake_secret (principal_id);

-- Issuers of OpenID Connect beside the one of the settings.
CREATE TABLE duckicelake_issuer (
    name          text        PRIMARY KEY CHECK (name <> ''),
    url           text        NOT NULL UNIQUE,  -- the claim iss of its tokens
    audience      text        NOT NULL,
    jwks_url      text,                         -- of its keys, where its discovery document doesn't say it
    subject_claim text        NOT NULL DEFAULT 'sub',
    group_claim   text,                         -- whose values are names of groups
    scope_claim   text,                         -- whose values are scopes, beside those below
    scopes        text[]      NOT NULL DEFAULT '{grants}',
    created       timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- Objects are named by DuckLake's ids, so that they keep their grants when they are renamed. The nil UUID is the first
-- warehouse; object_id is 0 for a warehouse.
CREATE TABLE duckicelake_grant (
    grantee_id   bigint      NOT NULL REFERENCES duckicelake_principal ON DELETE CASCADE,
    warehouse_id uuid        NOT NULL,
    object_kind  text        NOT NULL CHECK (object_kind IN ('warehouse', 'namespace', 'table', 'view')),
    object_id    bigint      NOT NULL,
    privilege    text        NOT NULL,
    granted_by   text        NOT NULL,
    granted_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (grantee_id, warehouse_id, object_kind, object_id, privilege),
    CHECK (object_kind <> 'warehouse' OR object_id = 0)
);
CREATE INDEX duckicelake_grant_object ON duckicelake_grant (warehouse_id, object_kind, object_id);

CREATE TABLE duckicelake_warehouse_option (
    warehouse_id uuid NOT NULL,
    name         text NOT NULL,
    value        text NOT NULL,
    PRIMARY KEY (warehouse_id, name)
);

-- One row. Workers keep what they read of these tables while the version is the one at which they read it.
CREATE TABLE duckicelake_governance (version bigint NOT NULL);
INSERT INTO duckicelake_governance VALUES (1);

-- Who changes one of the tables has this row until the transaction ends: changes come one after another.
CREATE FUNCTION duckicelake_bump_governance() RETURNS trigger
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    UPDATE duckicelake_governance SET version = version + 1;
    PERFORM pg_notify('duckicelake_governance', '');
    RETURN NULL;
END $$;

CREATE TRIGGER duckicelake_bump BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON duckicelake_principal
FOR EACH STATEMENT EXECUTE FUNCTION duckicelake_bump_governance();
CREATE TRIGGER duckicelake_bump BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON duckicelake_membership
FOR EACH STATEMENT EXECUTE FUNCTION duckicelake_bump_governance();
-- When a secret was last used is noted without a new version.
CREATE TRIGGER duckicelake_bump
BEFORE INSERT OR UPDATE OF secret_id, principal_id, kind, hash, expires OR DELETE OR TRUNCATE ON duckicelake_secret
FOR EACH STATEMENT EXECUTE FUNCTION duckicelake_bump_governance();
CREATE TRIGGER duckicelake_bump BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON duckicelake_issuer
FOR EACH STATEMENT EXECUTE FUNCTION duckicelake_bump_governance();
CREATE TRIGGER duckicelake_bump BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON duckicelake_grant
FOR EACH STATEMENT EXECUTE FUNCTION duckicelake_bump_governance();
CREATE TRIGGER duckicelake_bump BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON duckicelake_warehouse_option
FOR EACH STATEMENT EXECUTE FUNCTION duckicelake_bump_governance();

-- Groups hold users and services, roles hold all; nothing is a member of itself, through others either. Others can't add
-- what would close a circle meanwhile, because this transaction has the row of the version.
CREATE FUNCTION duckicelake_check_membership() RETURNS trigger
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    container duckicelake_principal := (SELECT p FROM duckicelake_principal p WHERE principal_id = NEW.container_id);
    member duckicelake_principal := (SELECT p FROM duckicelake_principal p WHERE principal_id = NEW.member_id);
BEGIN
    IF container.kind NOT IN ('group', 'role') OR container.kind = 'group' AND member.kind NOT IN ('user', 'service') THEN
        RAISE EXCEPTION 'The % % can''t be a member of the % %: groups hold users and services, roles hold all, others nothing',
            member.kind, member.name, container.kind, container.name USING ERRCODE = 'DIGM1';
    END IF;
    IF EXISTS (
        WITH RECURSIVE above (id) AS (
            SELECT NEW.container_id
            UNION
            SELECT m.container_id FROM duckicelake_membership m JOIN above ON m.member_id = above.id
        )
        SELECT FROM above WHERE id = NEW.member_id
    ) THEN
        RAISE EXCEPTION 'The % % can''t be a member of the % %, which is one of its members: that would be a circle',
            member.kind, member.name, container.kind, container.name USING ERRCODE = 'DIGM1';
    END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER duckicelake_check_membership AFTER INSERT OR UPDATE ON duckicelake_membership
FOR EACH ROW EXECUTE FUNCTION duckicelake_check_membership();
