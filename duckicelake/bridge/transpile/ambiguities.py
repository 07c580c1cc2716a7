"""PURE. Queries that the two engines read in different ways, though they say the same in both dialects."""

from collections.abc import Iterator

from sqlglot import exp

from duckicelake.bridge.transpile.dialects import refuse


def check_aliases(node: exp.Select, *, is_correlated: bool) -> None:
    """Refuse names that are a column to one engine and what the query calls so to the other.

    is_correlated: names may be those of a query around it.
    """
    aliases = {
        each.alias.lower()
        for each in node.expressions
        if isinstance(each, exp.Alias) and not _is_column(each.this, each.alias)
    }
    places: list[exp.Expr] = [
        key.this for key in (node.args["order"].expressions if node.args.get("order") else ()) if not _plain(key.this)
    ]
    if is_correlated:
        places += [
            *node.expressions,
            *(node.args[key] for key in ("where", "group", "having") if node.args.get(key)),
        ]
    for place in places:
        for column in place.find_all(exp.Column):
            if not column.table and column.name.lower() in aliases:
                refuse(f"{column.name[:60]}, which may be a column or the expression of that name")


def check_stars(node: exp.Select) -> None:
    """Refuse `*` where the engines give the columns another order."""
    if node.is_star and any(each.args.get("using") for each in _joins_of(node)):
        refuse("* over JOIN ... USING")


def _joins_of(node: exp.Expr) -> Iterator[exp.Join]:
    """The joins that a SELECT or a relation is made of, through parentheses."""
    for join in node.args.get("joins") or ():
        yield join
        yield from _joins_of(join.this)
    within = node.args.get("from_") if isinstance(node, exp.Select) else node
    if isinstance(within, exp.From | exp.Subquery) and not isinstance(within.this, exp.Select | exp.SetOperation):
        yield from _joins_of(within.this)


def _plain(node: exp.Expr) -> bool:
    return isinstance(node, exp.Column | exp.Literal)


def _is_column(node: exp.Expr, name: str) -> bool:
    return isinstance(node, exp.Column) and node.name.lower() == name.lower()
