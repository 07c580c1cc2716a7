-- state: another value with each change of principals and memberships, in the registry
SELECT principals FROM duckicelake_governance;

-- source: the registry's state with its principals and memberships, as JSON
SELECT (SELECT principals FROM duckicelake_governance),
       (SELECT coalesce(json_agg(json_build_object(
            'principal_id', principal_id, 'name', name, 'kind', kind, 'issuer', issuer, 'subject', subject, 'scopes', scopes,
            'is_disabled', is_disabled)), '[]')::text FROM duckicelake_principal),
       (SELECT coalesce(json_agg(json_build_object('container_id', container_id, 'member_id', member_id)), '[]')::text
        FROM duckicelake_membership);

-- claim: which registry this lake belongs to, and of which state its copies are; others wait until the transaction ends
SELECT registry, warehouse_id, copied FROM duckicelake_registry FOR UPDATE;

-- owner: the same, without waiting
SELECT registry, warehouse_id, copied FROM duckicelake_registry;

-- set_claim: let the lake belong to a registry, which has nothing copied yet
INSERT INTO duckicelake_registry (registry, warehouse_id) VALUES (%(registry)s, %(warehouse_id)s)
ON CONFLICT ((true)) DO UPDATE SET registry = excluded.registry, warehouse_id = excluded.warehouse_id, copied = NULL;

-- end_claim: let the lake belong to no registry
DELETE FROM duckicelake_registry;

-- set_copied: of which state the copies are
UPDATE duckicelake_registry SET copied = %(state)s;

-- own_governance: how many principals but the built-in roles, issuers and warehouses the lake has by itself
SELECT (SELECT count(*) FROM duckicelake_principal WHERE NOT (kind = 'role' AND name IN ('admin', 'trusted-engine')))
     + (SELECT count(*) FROM duckicelake_issuer) + (SELECT count(*) FROM duckicelake_warehouse);

-- differs: whether copies differ from the registry's principals and memberships
WITH given AS (
    SELECT principal_id, name, kind, issuer, subject, scopes, is_disabled FROM json_to_recordset(%(principals)s::json)
    AS p (principal_id bigint, name text, kind text, issuer text, subject text, scopes text[], is_disabled boolean)
), own AS (
    SELECT principal_id, name, kind, issuer, subject, scopes, is_disabled FROM duckicelake_principal
), members AS (
    SELECT container_id, member_id FROM json_to_recordset(%(memberships)s::json) AS m (container_id bigint, member_id bigint)
), own_members AS (SELECT container_id, member_id FROM duckicelake_membership)
SELECT EXISTS (TABLE given EXCEPT TABLE own) OR EXISTS (TABLE own EXCEPT TABLE given),
       EXISTS (TABLE members EXCEPT TABLE own_members) OR EXISTS (TABLE own_members EXCEPT TABLE members);

-- drop_memberships: those that the registry hasn't any more
DELETE FROM duckicelake_membership o WHERE NOT EXISTS (
    SELECT FROM json_to_recordset(%(memberships)s::json) AS m (container_id bigint, member_id bigint)
    WHERE (m.container_id, m.member_id) = (o.container_id, o.member_id));

-- drop_principals: those that the registry hasn't any more, with their grants; an id with another name is another principal
DELETE FROM duckicelake_principal o WHERE NOT EXISTS (
    SELECT FROM json_to_recordset(%(principals)s::json) AS p (principal_id bigint, name text, kind text)
    WHERE (p.principal_id, p.name, p.kind) = (o.principal_id, o.name, o.kind));

-- drop_copies: all principals but the built-in roles, with their memberships and grants
DELETE FROM duckicelake_principal WHERE NOT (kind = 'role' AND name IN ('admin', 'trusted-engine'));

-- clear_subjects: let no copy keep a subject that another one gets
UPDATE duckicelake_principal o SET issuer = NULL, subject = NULL
FROM json_to_recordset(%(principals)s::json) AS p (principal_id bigint, issuer text, subject text)
WHERE p.principal_id = o.principal_id AND o.issuer IS NOT NULL AND (p.issuer, p.subject) IS DISTINCT FROM (o.issuer, o.subject);

-- copy_principals: add and change the registry's principals
INSERT INTO duckicelake_principal AS o (principal_id, name, kind, issuer, subject, scopes, is_disabled)
OVERRIDING SYSTEM VALUE
SELECT principal_id, name, kind, issuer, subject, scopes, is_disabled FROM json_to_recordset(%(principals)s::json)
AS p (principal_id bigint, name text, kind text, issuer text, subject text, scopes text[], is_disabled boolean)
ON CONFLICT (principal_id) DO UPDATE SET issuer = excluded.issuer, subject = excluded.subject, scopes = excluded.scopes,
    is_disabled = excluded.is_disabled
WHERE (o.issuer, o.subject, o.scopes, o.is_disabled)
    IS DISTINCT FROM (excluded.issuer, excluded.subject, excluded.scopes, excluded.is_disabled);

-- copy_memberships: add the registry's memberships
INSERT INTO duckicelake_membership (container_id, member_id)
SELECT container_id, member_id FROM json_to_recordset(%(memberships)s::json) AS m (container_id bigint, member_id bigint)
ON CONFLICT DO NOTHING;
