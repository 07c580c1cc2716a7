-- limits: most tables, most namespaces, and seconds for which what is dropped stays; a lake of an older version has the last
SELECT to_jsonb(l) ->> 'max_tables', to_jsonb(l) ->> 'max_namespaces', extract(epoch FROM l.drop_retention)
FROM duckicelake_lake l;

-- change_limits: set those that are given; null is the default
UPDATE duckicelake_lake SET
    max_tables = CASE WHEN %(has_tables)s THEN %(max_tables)s::bigint ELSE max_tables END,
    max_namespaces = CASE WHEN %(has_namespaces)s THEN %(max_namespaces)s::bigint ELSE max_namespaces END,
    drop_retention = CASE WHEN %(has_retention)s THEN coalesce(make_interval(secs => %(retention)s::float8), '7 days')
                          ELSE drop_retention END;
