"""A small history that a page can show: a shop's orders, from the files they come in to a guess of an analyst."""

from tests.support.lineage_events import Json, columns, event, facet, foreign, job_event, table

EVIL = "<img src=x onerror=alert(1)>"
APPEND = "pyiceberg.append.labs.guess.0a1b2c3d"
SQL = "INSERT INTO marts.revenue SELECT day, sum(euro) FROM sales.euro WHERE country <> ?"
ORDERS_FIELDS = {"id": "long", "amount": "decimal(12, 2)", "currency": "string"}
REVENUE_FIELDS = {"day": "date", "revenue": "decimal(18, 2)"}


def made_of(name: str, fields: dict[str, str], kind: str = "TABLE") -> Json:
    """A table or view of the lake with its columns, as the catalog tells of it."""
    namespace, _, last = name.partition(".")
    schema = facet(fields=[{"name": each, "type": type_} for each, type_ in fields.items()])
    made = table(name, schema=schema, duckicelake_table=facet(namespace=namespace, name=last))
    made["facets"]["symlinks"]["identifiers"][0]["type"] = kind
    return made


FILES = foreign("s3://landing", "orders")
ORDERS = made_of("sales.orders", ORDERS_FIELDS)
EURO = made_of("sales.euro", {"id": "long", "euro": "double"}, "VIEW")
GUESS = made_of("labs.guess", {"revenue": "double"})
STRANGE = made_of(f"labs.{EVIL}", {"<script>alert(2)</script>": "string"})


def shop() -> list[Json]:
    """The events, in order."""
    to_euro = columns(
        ("id", ORDERS, "id"),
        ("euro", ORDERS, "amount", "DIRECT", "TRANSFORMATION"),
        ("", ORDERS, "currency", "INDIRECT", "FILTER"),
    )
    revenue = made_of("marts.revenue", REVENUE_FIELDS)
    summed = columns(("revenue", EURO, "euro", "DIRECT", "AGGREGATION"))
    guessed = revenue | {"inputFacets": {"duckicelake_inferred": facet(confidence=0.7)}}
    spark, pyiceberg = facet(name="Spark", version="4.0.1"), facet(name="PyIceberg", version="0.11")
    daily = event(2, inputs=(EURO,), outputs=(report(revenue, summed),), job="daily_revenue", processing_engine=spark)
    daily["job"]["facets"]["sql"] = facet(query=SQL)
    definition = job_event(1.5, "duckicelake.view.sales.euro.0a1b2c3d", (ORDERS,), (report(EURO, to_euro),))
    definition["job"]["facets"]["jobType"] = facet(processingType="BATCH", integration="DUCKICELAKE", jobType="VIEW")
    return [
        event(1, inputs=(FILES,), outputs=(ORDERS,), job="ingest_orders"),
        definition,
        daily,
        event(
            3,
            inputs=(guessed,),
            outputs=(GUESS,),
            job="pyiceberg.append.labs.guess.0a1b2c3d",
            processing_engine=pyiceberg,
        ),
        event(4, inputs=(ORDERS,), outputs=(STRANGE,), job="<b>bold</b>"),
        event(5, inputs=(ORDERS,), outputs=(ORDERS,), job="deduplicate"),
    ]


def report(dataset: Json, lineage: Json) -> Json:
    """The dataset with what its columns come from."""
    return dataset | {"facets": dataset["facets"] | {"columnLineage": lineage}}


def tree(size: int) -> list[Json]:
    """Tables of which each is made into up to ten others."""
    tables = [made_of(f"many.table_number_{number}", {"id": "long"}) for number in range(size)]
    return [
        event(100 + number, inputs=(tables[(number - 1) // 10],), outputs=(made,), job=f"job_{number}")
        for number, made in enumerate(tables)
        if number > 0
    ]
