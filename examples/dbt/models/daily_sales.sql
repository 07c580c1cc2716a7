{{ config(materialized="incremental", incremental_strategy="merge", unique_key=["day", "region"]) }}

-- A day is computed again as long as orders come in for it.
SELECT placed_at::DATE AS day, region, count(*) AS orders, sum(amount) AS amount
FROM {{ source("sales", "orders") }}
{% if is_incremental() %}
WHERE placed_at::DATE >= (SELECT max(day) FROM {{ this }})
{% endif %}
GROUP BY ALL
