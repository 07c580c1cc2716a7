"""Statements with the column lineage that follows from what they mean, written by hand.

A flow is `table.column:EFFECTS`, where I is IDENTITY, T TRANSFORMATION, A AGGREGATION, J JOIN, F FILTER, G GROUP_BY,
S SORT, W WINDOW, C CONDITIONAL, and `*` after an effect says that it masks. `~` is what decides about all rows.
"""

from duckicelake.lineage.sql import lineage
from duckicelake.lineage.sql.model import Lookup, StatementLineage

TABLES = {
    "t": ("a", "b", "c", "k", "s", "l"),
    "u": ("k", "x", "y", "d"),
    "z": ("x", "y"),
    "Mixed": ("Größe", "Ä", "lower"),
    "out": ("a", "b"),
}
"""Tables by name; `o` and `p` exist, too, but no one knows their columns, and `v` is a view of columns `a` and `m`."""

WORDS = r"""
SELECT FROM WHERE a b t u o ( ) , * . + - 'x' 1 AS WITH RECURSIVE JOIN USING ON GROUP BY ALL ORDER LIMIT UNION EXCEPT
CASE WHEN THEN ELSE END OVER PARTITION INSERT INTO VALUES UPDATE SET = DELETE MERGE MATCHED NOT COPY TO CREATE TABLE
VIEW PIVOT UNPIVOT IN unnest [ ] { } : LATERAL QUALIFY sum EXISTS NATURAL -> BETWEEN DISTINCT $1 ? :: INT $$ -- /* " ` \
"""
"""What statements are made of."""

Case = tuple[str, dict[str, str]]


def lineage_of(sql: str, dialect: str, lookup: Lookup) -> StatementLineage | None:
    """The lineage of a statement by its text."""
    tree = lineage.parse_statement(sql, dialect)
    return None if tree is None else lineage.read_lineage(tree, dialect, lookup)


QUERIES: list[Case] = [
    ("SELECT a FROM t", {"a": "t.a:I"}),
    ("SELECT a AS n, b m FROM t", {"n": "t.a:I", "m": "t.b:I"}),
    ("SELECT n: a FROM t", {"n": "t.a:I"}),
    ("FROM t SELECT a", {"a": "t.a:I"}),
    ("FROM z", {"x": "z.x:I", "y": "z.y:I"}),
    ("TABLE z", {"x": "z.x:I", "y": "z.y:I"}),
    ("SELECT 1 AS one, 'x' AS two", {}),
    ("SELECT a + b AS n, -c AS m FROM t", {"n": "t.a:T t.b:T", "m": "t.c:T"}),
    ("SELECT a::BIGINT AS n, (b) AS m FROM t", {"n": "t.a:T", "m": "t.b:I"}),
    ("SELECT CAST(a AS TEXT) || b AS n FROM t", {"n": "t.a:T t.b:T"}),
    ("SELECT A, t.B, T.c FROM T", {"A": "t.a:I", "B": "t.b:I", "c": "t.c:I"}),
    ('SELECT "A" FROM "T"', {"A": "t.a:I"}),
    ("SELECT gRÖße AS n FROM mixed", {}),
    ('SELECT "Größe" AS n, ä AS m, LOWER FROM MIXED', {"n": "Mixed.Größe:I", "LOWER": "Mixed.lower:I"}),
    ("SELECT * FROM z", {"x": "z.x:I", "y": "z.y:I"}),
    ("SELECT * EXCLUDE (y) FROM z", {"x": "z.x:I"}),
    ("SELECT * REPLACE (x + y AS y) FROM z", {"x": "z.x:I", "y": "z.x:T z.y:T"}),
    ("SELECT * RENAME (x AS q) FROM z", {"q": "z.x:I", "y": "z.y:I"}),
    ("SELECT z.*, a FROM t, z", {"x": "z.x:I", "y": "z.y:I", "a": "t.a:I"}),
    ("SELECT e.* EXCLUDE (k, d) FROM u AS e", {"x": "u.x:I", "y": "u.y:I"}),
    ("SELECT a FROM t WHERE b > 1", {"a": "t.a:I", "~": "t.b:F"}),
    ("SELECT a FROM t WHERE b > 1 AND c IN (1, 2) LIMIT 3", {"a": "t.a:I", "~": "t.b:F t.c:F"}),
    ("SELECT a AS n, n + 1 AS m FROM t WHERE n > 3", {"n": "t.a:I", "m": "t.a:T", "~": "t.a:F"}),
    ("SELECT b AS a, a + 1 AS n FROM t", {"a": "t.b:I", "n": "t.a:T"}),
    ("SELECT a FROM t ORDER BY b DESC, c", {"a": "t.a:I", "~": "t.b:S t.c:S"}),
    ("SELECT b AS a FROM t ORDER BY a", {"a": "t.b:I", "~": "t.b:S"}),
    ("SELECT a, b FROM t ORDER BY 2", {"a": "t.a:I", "b": "t.b:I", "~": "t.b:S"}),
    ("SELECT a, b FROM t ORDER BY ALL", {"a": "t.a:I", "b": "t.b:I", "~": "t.a:S t.b:S"}),
    ("SELECT a FROM t LIMIT (SELECT max(x) FROM u)", {"a": "t.a:I", "~": "u.x:F"}),
    ("SELECT DISTINCT a FROM t", {"a": "t.a:I", "~": "t.a:G"}),
    ("SELECT DISTINCT ON (b) a FROM t ORDER BY c", {"a": "t.a:I", "~": "t.b:G t.c:S"}),
    ("SELECT b, sum(a) AS n FROM t GROUP BY b", {"b": "t.b:I", "n": "t.a:A", "~": "t.b:G"}),
    ("SELECT b, sum(a) AS n FROM t GROUP BY 1", {"b": "t.b:I", "n": "t.a:A", "~": "t.b:G"}),
    ("SELECT b, sum(a) + 1 AS n FROM t GROUP BY ALL", {"b": "t.b:I", "n": "t.a:A", "~": "t.b:G"}),
    (
        "SELECT b, max(a * 2) AS n FROM t GROUP BY b HAVING min(c) > 1",
        {"b": "t.b:I", "n": "t.a:A", "~": "t.b:G t.c:F"},
    ),
    (
        "SELECT b, c, avg(a) AS n FROM t GROUP BY ROLLUP (b, c)",
        {"b": "t.b:I", "c": "t.c:I", "n": "t.a:A", "~": "t.b:G t.c:G"},
    ),
    ("SELECT count(*) AS n FROM t", {}),
    ("SELECT count(a) AS n, count(DISTINCT b) AS m FROM t", {"n": "t.a:A*", "m": "t.b:A*"}),
    ("SELECT sum(a) FILTER (WHERE b > 1) AS n FROM t", {"n": "t.a:A t.b:F"}),
    ("SELECT string_agg(a, ',' ORDER BY b) AS n FROM t", {"n": "t.a:A t.b:S"}),
    ("SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY a) AS n FROM t", {"n": "t.a:A"}),
    ("SELECT arg_max(a, b) AS n, histogram(c) AS m FROM t", {"n": "t.a:A t.b:A", "m": "t.c:A"}),
    (
        "SELECT md5(a) AS n, sha256(b || c) AS m, hash(k) AS h FROM t",
        {"n": "t.a:T*", "m": "t.b:T* t.c:T*", "h": "t.k:T*"},
    ),
    ("SELECT upper(md5(a)) AS n FROM t", {"n": "t.a:T*"}),
    ("SELECT CASE WHEN a > 1 THEN b ELSE c + 1 END AS n FROM t", {"n": "t.a:C t.b:I t.c:T"}),
    ("SELECT CASE a WHEN k THEN b END AS n FROM t", {"n": "t.a:C t.k:C t.b:I"}),
    ("SELECT CASE WHEN a > 1 THEN a END AS n FROM t", {"n": "t.a:IC"}),
    ("SELECT if(a, b, c) AS n FROM t", {"n": "t.a:C t.b:I t.c:I"}),
    ("SELECT coalesce(a, b, 0) AS n FROM t", {"n": "t.a:IC t.b:IC"}),
    ("SELECT sum(CASE WHEN a = 1 THEN b END) AS n FROM t", {"n": "t.a:C t.b:A"}),
    ("SELECT sum(a) OVER (PARTITION BY b ORDER BY c) AS n FROM t", {"n": "t.a:A t.b:W t.c:W"}),
    ("SELECT row_number() OVER (ORDER BY a) AS n FROM t", {"n": "t.a:W"}),
    ("SELECT lag(a) OVER (ORDER BY b) AS n FROM t", {"n": "t.a:T t.b:W"}),
    ("SELECT first_value(a) OVER w AS n FROM t WINDOW w AS (PARTITION BY b)", {"n": "t.a:T t.b:W"}),
    (
        "SELECT max(a) OVER (w ORDER BY c) AS n FROM t WINDOW w AS (PARTITION BY b)",
        {"n": "t.a:A t.b:W t.c:W"},
    ),
    ("SELECT a FROM t QUALIFY row_number() OVER (PARTITION BY b ORDER BY c) = 1", {"a": "t.a:I", "~": "t.b:F t.c:F"}),
    ("SELECT a, x FROM t JOIN u ON t.k = u.k", {"a": "t.a:I", "x": "u.x:I", "~": "t.k:J u.k:J"}),
    (
        "SELECT a, x FROM t JOIN u ON t.k = u.k AND y > 1 WHERE d",
        {"a": "t.a:I", "x": "u.x:I", "~": "t.k:J u.k:J u.y:J u.d:F"},
    ),
    ("SELECT a, x FROM t, u WHERE t.k = u.k", {"a": "t.a:I", "x": "u.x:I", "~": "t.k:F u.k:F"}),
    ("SELECT a, x FROM t CROSS JOIN z", {"a": "t.a:I", "x": "z.x:I"}),
    ("SELECT k, x FROM t JOIN u USING (k)", {"k": "t.k:I", "x": "u.x:I", "~": "t.k:J u.k:J"}),
    ("SELECT k FROM t RIGHT JOIN u USING (k)", {"k": "u.k:I", "~": "t.k:J u.k:J"}),
    ("SELECT k, u.k AS n FROM t FULL JOIN u USING (k)", {"k": "t.k:T u.k:T", "n": "u.k:I", "~": "t.k:J u.k:J"}),
    (
        "SELECT d.* FROM u d JOIN z USING (x, y)",
        {"k": "u.k:I", "x": "u.x:I", "y": "u.y:I", "d": "u.d:I", "~": "u.x:J u.y:J z.x:J z.y:J"},
    ),
    (
        "SELECT * FROM u NATURAL JOIN z",
        {"k": "u.k:I", "x": "u.x:I", "y": "u.y:I", "d": "u.d:I", "~": "u.x:J u.y:J z.x:J z.y:J"},
    ),
    ("SELECT * FROM z SEMI JOIN u ON z.x = u.x", {"x": "z.x:I", "y": "z.y:I", "~": "z.x:J u.x:J"}),
    ("SELECT a, x FROM t ASOF JOIN u ON t.k >= u.k", {"a": "t.a:I", "x": "u.x:I", "~": "t.k:J u.k:J"}),
    ("SELECT one.a, two.b FROM t one JOIN t two ON one.k = two.k", {"a": "t.a:I", "b": "t.b:I", "~": "t.k:J"}),
    ("SELECT k FROM t, u", {}),
    ("SELECT a, x FROM (t JOIN u ON t.k = u.k)", {"a": "t.a:I", "x": "u.x:I", "~": "t.k:J u.k:J"}),
    ("SELECT n FROM (SELECT a + 1 AS n FROM t WHERE b > 1) q", {"n": "t.a:T", "~": "t.b:F"}),
    ("SELECT sum(n) AS m FROM (SELECT a + 1 AS n FROM t)", {"m": "t.a:A"}),
    ("SELECT q.n FROM (SELECT a, b FROM t) AS q(m, n)", {"n": "t.b:I"}),
    ("SELECT n FROM (SELECT md5(a) AS n FROM t) WHERE n = 'x'", {"n": "t.a:T*", "~": "t.a:F"}),
    ("WITH q AS (SELECT a, b FROM t) SELECT a FROM q WHERE b", {"a": "t.a:I", "~": "t.b:F"}),
    ("WITH q(n) AS (SELECT a FROM t), r AS (SELECT n * 2 AS m FROM q) SELECT m FROM r", {"m": "t.a:T"}),
    ("WITH t AS (SELECT x AS a FROM u) SELECT a FROM t", {"a": "u.x:I"}),
    ("WITH z AS (SELECT x FROM z) SELECT x FROM z", {"x": "z.x:I"}),
    ("WITH unused AS (SELECT * FROM u) SELECT a FROM t", {"a": "t.a:I"}),
    (
        """
        WITH RECURSIVE c(n, m) AS (SELECT k, a FROM t UNION ALL SELECT x, m + 1 FROM c JOIN u ON n = u.k)
        SELECT n, m FROM c
        """,
        {"n": "t.k:I u.x:I", "m": "t.a:IT", "~": "t.k:J u.k:J u.x:J"},
    ),
    ("SELECT a FROM t UNION ALL SELECT x FROM u", {"a": "t.a:I u.x:I"}),
    ("SELECT a, b FROM t UNION SELECT x, 1 FROM u", {"a": "t.a:I u.x:I", "b": "t.b:I", "~": "t.a:G t.b:G u.x:G"}),
    ("SELECT a FROM t EXCEPT SELECT x FROM u", {"a": "t.a:I", "~": "t.a:J u.x:J"}),
    ("SELECT x, y FROM u UNION ALL BY NAME SELECT y, x AS w FROM z", {"x": "u.x:I", "y": "u.y:I z.y:I", "w": "z.x:I"}),
    ("SELECT a AS n FROM t UNION ALL SELECT x FROM u ORDER BY n", {"n": "t.a:I u.x:I", "~": "t.a:S u.x:S"}),
    ("SELECT (SELECT max(x) FROM u) AS n FROM t", {"n": "u.x:A"}),
    ("SELECT (SELECT max(x) FROM u WHERE u.k = t.k) AS n, a FROM t", {"n": "u.x:A u.k:F t.k:F", "a": "t.a:I"}),
    ("SELECT a FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.k = t.k)", {"a": "t.a:I", "~": "u.k:F t.k:F"}),
    ("SELECT a FROM t WHERE b IN (SELECT x FROM u)", {"a": "t.a:I", "~": "t.b:F u.x:F"}),
    ("SELECT a FROM t WHERE b > ALL (SELECT x FROM u WHERE d)", {"a": "t.a:I", "~": "t.b:F u.x:F u.d:F"}),
    (
        "SELECT a, m FROM t, LATERAL (SELECT max(x) AS m FROM u WHERE u.k = t.k)",
        {"a": "t.a:I", "m": "u.x:A", "~": "u.k:F t.k:F"},
    ),
    ("SELECT a, e FROM t, unnest(l) AS r(e)", {"a": "t.a:I", "e": "t.l:T"}),
    ("SELECT unnest(l) AS e FROM t", {"e": "t.l:T"}),
    (
        "SELECT s.f, t.s.f.g AS g, s['h'] AS h, l[1] AS i FROM t",
        {"f": "t.s:T", "g": "t.s:T", "h": "t.s:T", "i": "t.l:T"},
    ),
    (
        "SELECT struct_pack(n := a, m := b) AS r, {'a': c} AS q, [a, k] AS i FROM t",
        {"r": "t.a:T t.b:T", "q": "t.c:T", "i": "t.a:T t.k:T"},
    ),
    ("SELECT list_transform(l, a -> a + b) AS n FROM t", {"n": "t.l:T t.b:T"}),
    ("SELECT [a + b for a in l if c > a] AS n FROM t", {"n": "t.l:T t.b:T t.c:F"}),
    ("SELECT z AS n FROM z", {"n": "z.x:T z.y:T"}),
    ("SELECT n FROM (VALUES (1, 'a')) AS r(n, m)", {}),
    ("SELECT i, a FROM t, range(5) r(i)", {"a": "t.a:I"}),
    ("SELECT i FROM t, range(t.a) r(i)", {"i": "t.a:T"}),
    ("SELECT w FROM o", {"w": "o.w:I"}),
    ("SELECT w AS n, a FROM o, t WHERE o.q = 1", {"n": "o.w:I", "a": "t.a:I", "~": "o.q:F"}),
    ("SELECT w FROM o, p", {}),
    ("SELECT o.w, p.r FROM o JOIN p ON o.i = p.i", {"w": "o.w:I", "r": "p.r:I", "~": "o.i:J p.i:J"}),
    ("SELECT w FROM (SELECT * FROM o)", {"w": "o.w:I"}),
    ("SELECT w + 1 AS n, n FROM o", {"n": ""}),
    ("SELECT a FROM t WHERE EXISTS (SELECT 1 FROM o WHERE o.k = t.k AND b)", {"a": "t.a:I", "~": "o.k:F t.k:F"}),
    ("SELECT a, m FROM v", {"a": "v.a:I", "m": "v.m:I"}),
    ("SELECT n FROM nobody_knows", {}),
    ("SELECT a, w FROM t, nobody_knows", {"a": "t.a:I"}),
    ("SELECT q.a FROM read_parquet('/d/*.parquet', union_by_name = true) q WHERE b", {"a": "/d.a:I", "~": "/d.b:F"}),
    ("SELECT a FROM '/d/f.csv'", {"a": "/d/f.csv.a:I"}),
    ("SELECT f.a FROM read_csv(['/d/f.csv', '/d/g.csv']) f", {}),
    ("SELECT c, sum(a) AS n FROM t TABLESAMPLE 10% GROUP BY c", {"c": "t.c:I", "n": "t.a:A", "~": "t.c:G"}),
    ("SELECT COLUMNS(*) + 1, a AS n FROM t", {"n": "t.a:I"}),
    ("FROM u PIVOT (sum(x) FOR y IN ('p', 'q')) SELECT k", {"k": "u.k:I", "~": "u.k:G u.d:G"}),
    ("PIVOT u ON y USING sum(x) GROUP BY k", {"k": "u.k:I", "~": "u.k:G"}),
    ("UNPIVOT z ON x, y INTO NAME n VALUE m", {"m": "z.x:T z.y:T"}),
    ("SELECT k, m FROM u UNPIVOT (m FOR n IN (x, y))", {"k": "u.k:I", "m": "u.x:T u.y:T"}),
]

WRITES: list[tuple[str, str, dict[str, str]]] = [
    ("INSERT INTO out SELECT x, y FROM u", "out", {"a": "u.x:I", "b": "u.y:I"}),
    ("INSERT INTO out (b, a) SELECT x, y FROM u", "out", {"b": "u.x:I", "a": "u.y:I"}),
    ("INSERT INTO OUT (B) SELECT x FROM u WHERE d", "out", {"b": "u.x:I", "~": "u.d:F"}),
    ("INSERT INTO out BY NAME SELECT x AS b, y AS a FROM u", "out", {"b": "u.x:I", "a": "u.y:I"}),
    ("INSERT INTO out VALUES (1, 2)", "out", {}),
    ("INSERT INTO out SELECT * FROM o", "out", {}),
    ("INSERT INTO o SELECT a FROM t", "o", {}),
    ("INSERT OR REPLACE INTO out SELECT * FROM z", "out", {"a": "z.x:I", "b": "z.y:I"}),
    ("WITH q AS (SELECT x FROM u) INSERT INTO out (a) SELECT x FROM q", "out", {"a": "u.x:I"}),
    (
        "INSERT INTO out SELECT x, y FROM u ON CONFLICT (a) DO UPDATE SET b = excluded.b + out.b",
        "out",
        {"a": "u.x:I", "b": "u.y:IT out.b:T"},
    ),
    ("CREATE TABLE o AS SELECT a, sum(b) AS n FROM t GROUP BY a", "o", {"a": "t.a:I", "n": "t.b:A", "~": "t.a:G"}),
    ("CREATE OR REPLACE TABLE o AS FROM z", "o", {"x": "z.x:I", "y": "z.y:I"}),
    ("CREATE VIEW o AS SELECT a FROM t", "o", {"a": "t.a:I"}),
    ("CREATE OR REPLACE VIEW o (n, m) AS SELECT a, b FROM t", "o", {"n": "t.a:I", "m": "t.b:I"}),
    ("UPDATE t SET a = b + 1 WHERE c > 2", "t", {"a": "t.b:T", "~": "t.c:F"}),
    ("UPDATE t SET a = x, b = 1 FROM u WHERE t.k = u.k", "t", {"a": "u.x:I", "~": "t.k:F u.k:F"}),
    ("UPDATE t SET a = (SELECT max(x) FROM u WHERE u.k = t.k)", "t", {"a": "u.x:A u.k:F t.k:F"}),
    ("DELETE FROM t WHERE a = 1", "t", {"~": "t.a:F"}),
    ("DELETE FROM t USING u WHERE t.k = u.k", "t", {"~": "t.k:F u.k:F"}),
    (
        """
        MERGE INTO t USING u ON t.k = u.k WHEN MATCHED AND u.d THEN DELETE WHEN MATCHED THEN UPDATE SET a = t.a + u.x
        WHEN NOT MATCHED THEN INSERT (k, a) VALUES (u.k, u.x)
        """,
        "t",
        {"a": "t.a:T u.x:IT", "k": "u.k:I", "~": "t.k:J u.k:J u.d:F"},
    ),
    (
        """
        MERGE INTO out USING (SELECT x AS a, y AS b FROM u) USING (a)
        WHEN MATCHED THEN UPDATE WHEN NOT MATCHED THEN INSERT
        """,
        "out",
        {"a": "u.x:I", "b": "u.y:I", "~": "out.a:J u.x:J"},
    ),
    ("COPY t TO '/d/f.parquet'", "/d/f.parquet", {each: f"t.{each}:I" for each in "abcksl"}),
    ("COPY t (a, b) TO '/d/f.csv' (HEADER)", "/d/f.csv", {"a": "t.a:I", "b": "t.b:I"}),
    ("COPY (SELECT md5(a) AS n FROM t) TO 's3://bucket/d/f.parquet' (FORMAT parquet)", "d/f.parquet", {"n": "t.a:T*"}),
    ("COPY t FROM '/d/f.csv'", "t", {}),
]

SPARK: list[Case] = [
    ("SELECT a, e FROM t LATERAL VIEW explode(l) r AS e", {"a": "t.a:I", "e": "t.l:T"}),
    ("SELECT `a`, b AS `n` FROM cat.db.t", {"a": "t.a:I", "n": "t.b:I"}),
    ("SELECT named_struct('p', a) AS n, transform(l, x -> x + b) AS m FROM t", {"n": "t.a:T", "m": "t.l:T t.b:T"}),
    ("SELECT xxhash64(a) AS n, sha2(b, 256) AS m FROM t", {"n": "t.a:T*", "m": "t.b:T*"}),
    ("SELECT GRÖSSE AS n, ä AS m FROM mixed", {"m": "Mixed.Ä:I"}),
    ("SELECT x FROM z LEFT SEMI JOIN u USING (x)", {"x": "z.x:I", "~": "z.x:J u.x:J"}),
    ("SELECT nvl(a, b) AS n FROM t", {"n": "t.a:IC t.b:IC"}),
]

TRINO: list[Case] = [
    ("SELECT a, e FROM t CROSS JOIN UNNEST(l) WITH ORDINALITY AS r (e, i)", {"a": "t.a:I", "e": "t.l:T"}),
    ('SELECT "a" FROM cat.db.t', {"a": "t.a:I"}),
    ("SELECT approx_distinct(a) AS n, count_if(b > 1) AS m FROM t", {"n": "t.a:A*", "m": "t.b:A*"}),
]
