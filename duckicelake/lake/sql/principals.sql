-- version: of the tables of governance, which each change of them makes greater
SELECT version FROM duckicelake_governance;

-- lock: let one transaction at a time change the tables of governance; others may read them
SELECT version FROM duckicelake_governance FOR UPDATE;

-- principals: a page of those of some kinds, by name
SELECT principal_id, name, kind, issuer, subject, scopes, is_disabled, description, created
FROM duckicelake_principal WHERE kind = ANY (%(kinds)s) AND name COLLATE "C" > %(after)s
ORDER BY name COLLATE "C" LIMIT %(limit)s::bigint;

-- find: the principal of a name
SELECT principal_id, name, kind, issuer, subject, scopes, is_disabled, description, created
FROM duckicelake_principal WHERE name = %(name)s;

-- find_id: the principal of an id
SELECT principal_id, name, kind, issuer, subject, scopes, is_disabled, description, created
FROM duckicelake_principal WHERE principal_id = %(principal_id)s;

-- find_subject: the principal whom an issuer's tokens name
SELECT principal_id, name, kind, issuer, subject, scopes, is_disabled, description, created
FROM duckicelake_principal WHERE issuer = %(issuer)s AND subject = %(subject)s AND kind <> 'group';

-- token_groups: groups with a subject that the values of an issuer's claim could mean, and whether they do: one that is called
-- like a value is of no other issuer's tokens
SELECT name, issuer = %(issuer)s AND subject = ANY (%(groups)s) FROM duckicelake_principal
WHERE kind = 'group' AND subject IS NOT NULL
    AND (name = ANY (%(groups)s) OR issuer = %(issuer)s AND subject = ANY (%(groups)s));

-- insert: add a principal, unless its name or its subject is taken
INSERT INTO duckicelake_principal (name, kind, issuer, subject, scopes, is_disabled, description)
VALUES (%(name)s, %(kind)s, %(issuer)s, %(subject)s, %(scopes)s, %(is_disabled)s, %(description)s)
ON CONFLICT DO NOTHING
RETURNING principal_id, name, kind, issuer, subject, scopes, is_disabled, description, created;

-- update: what of a principal can change
UPDATE duckicelake_principal
SET scopes = %(scopes)s, is_disabled = %(is_disabled)s, description = %(description)s
WHERE principal_id = %(principal_id)s
RETURNING principal_id, name, kind, issuer, subject, scopes, is_disabled, description, created;

-- delete: a principal with its secrets, memberships and grants
DELETE FROM duckicelake_principal WHERE principal_id = %(principal_id)s;

-- memberships: all of them
SELECT c.name, m.name
FROM duckicelake_membership JOIN duckicelake_principal c ON c.principal_id = container_id
JOIN duckicelake_principal m ON m.principal_id = member_id ORDER BY 1, 2;

-- members: a page of the names of what is in a group or role by itself
SELECT m.name FROM duckicelake_membership JOIN duckicelake_principal m ON m.principal_id = member_id
WHERE container_id = %(container_id)s AND m.name COLLATE "C" > %(after)s
ORDER BY m.name COLLATE "C" LIMIT %(limit)s::bigint;

-- containers: the groups and roles that a principal is in, directly or through others that aren't disabled, beside groups
-- that its token names
WITH RECURSIVE edges AS (
    SELECT m.member_id, c.principal_id, c.name
    FROM duckicelake_membership m JOIN duckicelake_principal c ON c.principal_id = m.container_id AND NOT c.is_disabled
), above AS (
    SELECT principal_id, name FROM edges WHERE member_id = %(principal_id)s
    UNION
    SELECT principal_id, name FROM duckicelake_principal
    WHERE kind = 'group' AND NOT is_disabled AND name = ANY (%(groups)s)
    UNION
    SELECT e.principal_id, e.name FROM edges e JOIN above ON e.member_id = above.principal_id
)
SELECT name FROM above ORDER BY 1;

-- add_member: put a principal into a group or role
INSERT INTO duckicelake_membership (container_id, member_id) VALUES (%(container_id)s, %(member_id)s)
ON CONFLICT DO NOTHING;

-- remove_member: take a principal out of a group or role
DELETE FROM duckicelake_membership WHERE container_id = %(container_id)s AND member_id = %(member_id)s;

-- secrets: those of a principal, without what they are
SELECT secret_id, principal_id, kind, description, created, expires, last_used, scopes, made_by
FROM duckicelake_secret WHERE principal_id = %(principal_id)s ORDER BY created, secret_id;

-- insert_secret: add a secret
INSERT INTO duckicelake_secret (secret_id, principal_id, kind, hash, description, expires, scopes, made_by)
VALUES (%(secret_id)s, %(principal_id)s, %(kind)s, %(hash)s, %(description)s, %(expires)s, %(scopes)s, %(made_by)s)
RETURNING secret_id, principal_id, kind, description, created, expires, last_used, scopes, made_by;

-- set_expiry: let the other secrets of a kind end at a time, unless they end before
UPDATE duckicelake_secret SET expires = %(expires)s
WHERE principal_id = %(principal_id)s AND kind = %(kind)s AND secret_id <> %(secret_id)s
  AND (expires IS NULL OR expires > %(expires)s);

-- end_secret: let a secret end at a time, unless it ends before
UPDATE duckicelake_secret SET expires = %(expires)s
WHERE secret_id = %(secret_id)s AND (expires IS NULL OR expires > %(expires)s);

-- delete_secret: revoke a secret, and those that were made with it
DELETE FROM duckicelake_secret
WHERE principal_id = %(principal_id)s AND %(secret_id)s = ANY (secret_id || made_by) RETURNING secret_id;

-- delete_ended: secrets of a principal that have ended
DELETE FROM duckicelake_secret WHERE principal_id = %(principal_id)s AND expires <= %(now)s;

-- find_secret: the secret of a hash, and whose it is
SELECT s.secret_id, s.principal_id, s.kind, s.description, s.created, s.expires, s.last_used, s.scopes, s.made_by,
       p.principal_id, p.name, p.kind, p.issuer, p.subject, p.scopes, p.is_disabled, p.description, p.created
FROM duckicelake_secret s JOIN duckicelake_principal p USING (principal_id)
WHERE s.hash = %(hash)s AND s.kind = %(kind)s;

-- find_secret_by_id: the secret of an id, and whose it is
SELECT s.secret_id, s.principal_id, s.kind, s.description, s.created, s.expires, s.last_used, s.scopes, s.made_by,
       p.principal_id, p.name, p.kind, p.issuer, p.subject, p.scopes, p.is_disabled, p.description, p.created
FROM duckicelake_secret s JOIN duckicelake_principal p USING (principal_id)
WHERE s.secret_id = %(secret_id)s;

-- any_secret: whether any principal has a secret or token
SELECT EXISTS (SELECT FROM duckicelake_secret);

-- note_use: when a secret was last used, at most once a minute
UPDATE duckicelake_secret SET last_used = clock_timestamp()
WHERE secret_id = %(secret_id)s AND (last_used IS NULL OR last_used < clock_timestamp() - interval '1 minute');
