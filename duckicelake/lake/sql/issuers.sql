-- issuers: all of them, by name
SELECT name, url, audience, jwks_url, subject_claim, group_claim, scope_claim, scopes, created
FROM duckicelake_issuer ORDER BY name;

-- insert: add an issuer, unless its name or its URL is taken
INSERT INTO duckicelake_issuer (name, url, audience, jwks_url, subject_claim, group_claim, scope_claim, scopes)
VALUES (%(name)s, %(url)s, %(audience)s, %(jwks_url)s, %(subject_claim)s, %(group_claim)s, %(scope_claim)s, %(scopes)s)
ON CONFLICT DO NOTHING
RETURNING name, url, audience, jwks_url, subject_claim, group_claim, scope_claim, scopes, created;

-- update: what of an issuer can change
UPDATE duckicelake_issuer
SET audience = %(audience)s, jwks_url = %(jwks_url)s, subject_claim = %(subject_claim)s,
    group_claim = %(group_claim)s, scope_claim = %(scope_claim)s, scopes = %(scopes)s
WHERE name = %(name)s
RETURNING name, url, audience, jwks_url, subject_claim, group_claim, scope_claim, scopes, created;

-- delete: trust an issuer no more
DELETE FROM duckicelake_issuer WHERE name = %(name)s RETURNING name;
