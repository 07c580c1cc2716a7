{{ config(materialized="view") }}

SELECT region, sum(amount) AS amount
FROM {{ ref("daily_sales") }}
GROUP BY region
