-- Warehouses in other databases. The registry, principals and memberships stay in the schema of the first warehouse; the lake
-- of such a warehouse has copies of the principals and memberships, beside the grants that name them. So a grant, ownership
-- and what they are about change in one transaction of the lake's database.
SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

ALTER TABLE duckicelake_warehouse
    ADD COLUMN database_url    text,  -- without its password; null: the database of the first warehouse
    ADD COLUMN database_secret text,  -- the whole URL, encrypted
    ADD CHECK ((database_url IS NULL) = (database_secret IS NULL)),
    DROP CONSTRAINT duckicelake_warehouse_schema_name_key;
CREATE UNIQUE INDEX duckicelake_warehouse_schema ON duckicelake_warehouse (coalesce(database_url, ''), schema_name);

-- In the lake of a warehouse in another database: which registry it belongs to, and as of which state its principals and
-- memberships are copies. No row: the lake belongs to none.
CREATE TABLE duckicelake_registry (
    registry     text NOT NULL,  -- the first warehouse's lake, as its marker names it
    warehouse_id uuid NOT NULL,
    copied       uuid            -- the registry's duckicelake_governance.principals; null: nothing is copied
);
CREATE UNIQUE INDEX duckicelake_registry_one ON duckicelake_registry ((true));

-- Another value with each change of principals and memberships. It is random: after a restore of the registry, no value
-- comes again for something else.
ALTER TABLE duckicelake_governance ADD COLUMN principals uuid NOT NULL DEFAULT gen_random_uuid();

CREATE FUNCTION duckicelake_bump_principals() RETURNS trigger
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    UPDATE duckicelake_governance SET principals = gen_random_uuid();
    RETURN NULL;
END $$;

CREATE TRIGGER duckicelake_bump_principals BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON duckicelake_principal
FOR EACH STATEMENT EXECUTE FUNCTION duckicelake_bump_principals();
CREATE TRIGGER duckicelake_bump_principals BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON duckicelake_membership
FOR EACH STATEMENT EXECUTE FUNCTION duckicelake_bump_principals();
