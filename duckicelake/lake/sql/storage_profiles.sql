-- profiles: all storage profiles, by name
SELECT profile_id, name, root, endpoint, public_endpoint, sts_endpoint, region, path_style, vending, role_arn, external_id,
       sse, kms_key, bucket_key, requester_pays, secret, created
FROM duckicelake_storage_profile ORDER BY name;

-- insert: add a storage profile, unless the name is taken
INSERT INTO duckicelake_storage_profile (profile_id, name, root, endpoint, public_endpoint, sts_endpoint, region, path_style,
                                         vending, role_arn, external_id, sse, kms_key, bucket_key, requester_pays,
                                         secret)
VALUES (%(profile_id)s, %(name)s, %(root)s, %(endpoint)s, %(public_endpoint)s, %(sts_endpoint)s, %(region)s,
        %(path_style)s, %(vending)s, %(role_arn)s, %(external_id)s, %(sse)s, %(kms_key)s, %(bucket_key)s,
        %(requester_pays)s, %(secret)s)
ON CONFLICT (name) DO NOTHING
RETURNING profile_id, name, root, endpoint, public_endpoint, sts_endpoint, region, path_style, vending, role_arn,
          external_id, sse, kms_key, bucket_key, requester_pays, secret, created;

-- lock: let one transaction at a time change profiles
LOCK TABLE duckicelake_storage_profile IN SHARE ROW EXCLUSIVE MODE;

-- users: names of the warehouses that use a profile
SELECT name FROM duckicelake_warehouse WHERE profile_id = %(profile_id)s ORDER BY name;

-- set_secret: replace the encrypted key of a profile
UPDATE duckicelake_storage_profile SET secret = %(secret)s WHERE profile_id = %(profile_id)s;

-- delete: forget a profile
DELETE FROM duckicelake_storage_profile WHERE profile_id = %(profile_id)s;
