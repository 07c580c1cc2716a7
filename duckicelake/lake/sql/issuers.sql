-- issuers: all of them, by name
SELECT name, url, audience, jwks_url, subject_claim, group_claim, scope_claim, scopes, is_disabled, leeway, label,
    web_client_id, web_scopes, web_parameters, web_secret, created
FROM duckicelake_issuer ORDER BY name;

-- lock: all of them, by name, which no other transaction changes until this one ends
SELECT name, url, audience, jwks_url, subject_claim, group_claim, scope_claim, scopes, is_disabled, leeway, label,
    web_client_id, web_scopes, web_parameters, web_secret, created
FROM duckicelake_issuer ORDER BY name FOR UPDATE;

-- insert: add an issuer, unless its name or its URL is taken
INSERT INTO duckicelake_issuer (name, url, audience, jwks_url, subject_claim, group_claim, scope_claim, scopes, is_disabled,
    leeway, label, web_client_id, web_scopes, web_parameters, web_secret)
VALUES (%(name)s, %(url)s, %(audience)s, %(jwks_url)s, %(subject_claim)s, %(group_claim)s, %(scope_claim)s, %(scopes)s,
    %(is_disabled)s, %(leeway)s, %(label)s, %(web_client_id)s, %(web_scopes)s, %(web_parameters)s, %(web_secret)s)
ON CONFLICT DO NOTHING
RETURNING name, url, audience, jwks_url, subject_claim, group_claim, scope_claim, scopes, is_disabled, leeway, label,
    web_client_id, web_scopes, web_parameters, web_secret, created;

-- update: what of an issuer can change
UPDATE duckicelake_issuer
SET audience = %(audience)s, jwks_url = %(jwks_url)s, subject_claim = %(subject_claim)s,
    group_claim = %(group_claim)s, scope_claim = %(scope_claim)s, scopes = %(scopes)s, is_disabled = %(is_disabled)s,
    leeway = %(leeway)s, label = %(label)s, web_client_id = %(web_client_id)s, web_scopes = %(web_scopes)s,
    web_parameters = %(web_parameters)s, web_secret = %(web_secret)s
WHERE name = %(name)s
RETURNING name, url, audience, jwks_url, subject_claim, group_claim, scope_claim, scopes, is_disabled, leeway, label,
    web_client_id, web_scopes, web_parameters, web_secret, created;

-- delete: trust an issuer no more
DELETE FROM duckicelake_issuer WHERE name = %(name)s RETURNING name;
