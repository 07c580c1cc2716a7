"""Questions about the flights, in SQL that Spark and DuckDB both understand; sums of integers, so answers are exact."""

QUESTIONS = {
    "delay by airline": """
        SELECT a.name, count(*), sum(f.dep_delay), max(f.arr_delay)
        FROM flights f JOIN airlines a ON f.carrier = a.carrier
        GROUP BY a.name ORDER BY a.name""",
    "busiest destinations": """
        SELECT p.name, count(*) AS landings, sum(f.air_time)
        FROM flights f JOIN airports p ON f.dest = p.faa
        GROUP BY p.name ORDER BY landings DESC, p.name LIMIT 10""",
    "delay in the rain": """
        SELECT f.origin, f.month, count(*), sum(f.dep_delay), sum(CAST(round(w.precip * 100) AS BIGINT))
        FROM flights f JOIN weather w ON f.origin = w.origin AND f.time_hour = w.time_hour
        WHERE w.precip > 0 GROUP BY f.origin, f.month ORDER BY f.origin, f.month""",
    "seats flown by maker": """
        SELECT p.manufacturer, count(DISTINCT p.tailnum), sum(p.seats), sum(f.distance)
        FROM flights f JOIN planes p ON f.tailnum = p.tailnum
        GROUP BY p.manufacturer ORDER BY p.manufacturer""",
    "first and last day by airport": """
        SELECT origin, min(CAST(time_hour AS DATE)), max(CAST(time_hour AS DATE)), count(dep_time), count(*)
        FROM flights GROUP BY origin ORDER BY origin""",
}
