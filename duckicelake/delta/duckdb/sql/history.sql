-- What each commit says of itself, newest first; `times` are the versions' times in milliseconds.
SELECT version::BIGINT AS version,
       make_timestamptz(ms * 1000) AS "timestamp",
       info ->> '$.operation' AS operation,
       info -> '$.operationParameters' AS operation_parameters,
       info -> '$.operationMetrics' AS operation_metrics,
       info ->> '$.userName' AS user_name,
       info ->> '$.engineInfo' AS engine_info,
       info ->> '$.userMetadata' AS user_metadata,
       (info ->> '$.readVersion')::BIGINT AS read_version,
       info ->> '$.isolationLevel' AS isolation_level,
       (info ->> '$.isBlindAppend')::BOOLEAN AS is_blind_append
FROM ($times) AS times (version, ms)
LEFT JOIN (
    SELECT left(parse_filename(filename), 20)::BIGINT AS version, any_value(commitInfo) AS info
    FROM read_json($files, format = 'newline_delimited', filename = true,
                   columns = {commitInfo: 'JSON'})
    WHERE commitInfo IS NOT NULL
    GROUP BY ALL
) USING (version)
ORDER BY version DESC
