"""PURE. Translate queries: SELECT, set operations, joins, common table expressions, ORDER BY, windows."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final, Protocol

from sqlglot import exp

from duckicelake.iceberg.schema import Schema
from duckicelake.iceberg.types import IcebergType, PrimitiveType
from duckicelake.sql_dialects.calls import check_no_other_parts
from duckicelake.sql_dialects.dialects import (
    DUCKDB,
    SIDES,
    SPARK,
    TRINO,
    DialectSide,
    Kind,
    TypedSql,
    make_plain,
    refuse_construct,
)
from duckicelake.sql_dialects.expressions import MAX_QUERY_CHARS, ExpressionWriter
from duckicelake.sql_dialects.placeholders import ENGINES, format_type_name

_SELECT: Final = ("expressions", "from_", "joins", "where", "group", "having", "distinct")
_ENDING: Final = ("with_", "order", "limit", "offset")
SETS: Final = {exp.Union: "UNION", exp.Intersect: "INTERSECT", exp.Except: "EXCEPT"}
JOINS: Final = {
    ("", ""): "JOIN",
    ("", "INNER"): "JOIN",
    ("", "CROSS"): "CROSS JOIN",
    **{(side, kind): f"{side} JOIN" for side in ("LEFT", "RIGHT", "FULL") for kind in ("", "OUTER")},
    **{(side, kind): kind for side in ("", "LEFT") for kind in ("SEMI", "ANTI")},
}


class OrderingWriter(ExpressionWriter):
    """Writes clauses with an order."""

    def append_order(self, node: exp.Expr, text: str) -> str:
        """Append ORDER BY, LIMIT and OFFSET to a query."""
        order = node.args.get("order")
        if order:
            text += f" {self._write_order(order)}"
        for key in ("offset", "limit") if self.target is TRINO else ("limit", "offset"):
            clause = node.args.get(key)
            if clause:
                check_no_other_parts(clause, "expression")
                if not clause.expression.is_int or not isinstance(clause.expression, exp.Literal):
                    refuse_construct(f"{key.upper()} that is not a literal")
                text += f" {key.upper()} {clause.expression.this}"
        return text

    def _write_order(self, node: exp.Order) -> str:
        """Write ORDER BY with the place of nulls, which differs by default."""
        check_no_other_parts(node, "expressions")
        return f"ORDER BY {', '.join(map(self._write_sort_key, node.expressions))}"

    def _write_sort_key(self, node: exp.Ordered) -> str:
        check_no_other_parts(node, "this", "desc", "nulls_first")
        if isinstance(node.this, exp.Column) and node.this.name.lower() == "all" and not node.this.this.quoted:
            refuse_construct("ORDER BY ALL")
        direction = "DESC" if node.args.get("desc") else "ASC"
        nulls = "FIRST" if node.args.get("nulls_first") else "LAST"
        return f"{self.expression(node.this).text} {direction} NULLS {nulls}"

    def window(self, node: exp.Window) -> str:
        """Write the content of the parentheses of OVER."""
        parts = []
        if node.args.get("partition_by"):
            keys = self.expressions(node.args["partition_by"])
            parts.append(f"PARTITION BY {', '.join(key_expression.text for key_expression in keys)}")
        if node.args.get("order"):
            parts.append(self._write_order(node.args["order"]))
        if node.args.get("spec"):
            parts.append(self._write_frame(node.args["spec"]))
        return " ".join(parts)

    def _write_frame(self, node: exp.WindowSpec) -> str:
        check_no_other_parts(node, "kind", "start", "start_side", "end", "end_side")
        kind = str(node.args["kind"]).upper()
        start = self._bound(kind, node.args["start"], node.args.get("start_side"))
        end = node.args.get("end")
        last = self._bound(kind, end, node.args.get("end_side")) if end else "CURRENT ROW"
        return f"{kind} BETWEEN {start} AND {last}"

    def _bound(self, kind: str, at: exp.Expr | str, side: str | None) -> str:
        if at == "CURRENT ROW":
            return "CURRENT ROW"
        if at != "UNBOUNDED" and (kind != "ROWS" or not isinstance(at, exp.Literal) or not at.is_int):
            refuse_construct(f"a window's {kind} with an offset that is not a literal number of rows")
        return f"{at if isinstance(at, str) else at.this} {side}"


def check_aliases(node: exp.Select, *, is_correlated: bool, target: DialectSide) -> None:
    """Refuse names that one engine reads as a column and the other as an alias.

    is_correlated: names may be of an outer query. Trino has no aliases in HAVING.
    """
    aliases = {
        expression.alias.lower()
        for expression in node.expressions
        if isinstance(expression, exp.Alias) and not _is_column(expression.this, expression.alias)
    }
    places: list[exp.Expr] = [
        key.this
        for key in (node.args["order"].expressions if node.args.get("order") else ())
        if not _unwrap_parens(key.this)
    ]
    if is_correlated:
        places += [
            *node.expressions,
            *(node.args[key] for key in ("where", "group", "having") if node.args.get(key)),
        ]
    if target is TRINO and node.args.get("having"):
        places.append(node.args["having"])
    for place in places:
        for column in place.find_all(exp.Column):
            if not column.table and column.name.lower() in aliases:
                refuse_construct(f"{column.name[:60]}, which may be a column or the expression of that name")


def check_stars(node: exp.Select) -> None:
    """Refuse `*` if the engines order its columns differently."""
    if node.is_star and any(join.args.get("using") for join in _list_joins(node)):
        refuse_construct("* over JOIN ... USING")


def check_using(node: exp.Select) -> None:
    """Refuse columns of JOIN ... USING behind a table's name, which Trino doesn't know there."""
    names = {name.name.lower() for join in _list_joins(node) for name in join.args.get("using") or ()}
    for column in node.find_all(exp.Column) if names else ():
        if column.table and column.name.lower() in names:
            refuse_construct(f"{column.table[:60]}.{column.name[:60]}, a column of USING")


def _list_joins(node: exp.Expr) -> Iterator[exp.Join]:
    """Yield the joins of a SELECT or a relation, also inside parentheses."""
    for join in node.args.get("joins") or ():
        yield join
        yield from _list_joins(join.this)
    within = node.args.get("from_") if isinstance(node, exp.Select) else node
    if isinstance(within, exp.From | exp.Subquery) and not isinstance(within.this, exp.Select | exp.SetOperation):
        yield from _list_joins(within.this)


def _unwrap_parens(node: exp.Expr) -> bool:
    return isinstance(node, exp.Column | exp.Literal)


def _is_column(node: exp.Expr, name: str) -> bool:
    return isinstance(node, exp.Column) and node.name.lower() == name.lower()


class Tables(Protocol):
    """Translates a table's name. parts: as written, without quotes."""

    def __call__(self, parts: Sequence[str]) -> str: ...


class QueryWriter(OrderingWriter):
    """Writes queries. tables: translates names of tables that the query doesn't define.

    schema: of the whole query; it has the types that the sides of its set operations become.
    """

    def __init__(self, source: DialectSide, target: DialectSide, tables: Tables, schema: Schema) -> None:
        super().__init__(source, target)
        self._tables, self._schema = tables, schema
        self._defined: tuple[str, ...] = ()
        self._guards: list[str] = []
        self._correlated = False

    def query(self, node: exp.Expr) -> str:
        """Translate a query inside an expression, where names may be of the outer query."""
        before, self._correlated = self._correlated, True
        try:
            return self.statement(node)
        finally:
            self._correlated = before

    def column(self, node: exp.Expr) -> TypedSql:
        """Translate a query's only column, to check its type. Clauses that don't affect the type are left out."""
        asked = node.copy()
        for key in ("where", "order", "limit", "offset"):
            asked.set(key, None)
        return make_plain(f"({self.query(asked)} LIMIT 0)")

    def statement(self, node: exp.Expr) -> str:
        """Translate a whole query; NotTranslatableError."""
        if isinstance(node, exp.Subquery) and not node.args.get("alias"):
            check_no_other_parts(node, "this", *_ENDING)
            return self.append_order(node, f"({self.statement(node.this)})")
        if not isinstance(node, exp.Select | exp.SetOperation):
            refuse_construct(f"{node.key.upper()} as a query")
        with self._write_with(node.args.get("with_")) as prefix:
            body = self._write_select(node) if isinstance(node, exp.Select) else self._set_operation(node)
            return prefix + self.append_order(node, body)

    @contextmanager
    def _write_with(self, node: exp.With | None) -> Iterator[str]:
        """Yield the common table expressions. Their names stay known until the end."""
        before, written = self._defined, []
        try:
            for expression in node.expressions if node else ():
                check_no_other_parts(node or expression, "expressions")
                check_no_other_parts(expression, "this", "alias")
                if any(table.name.lower() == expression.alias.lower() for table in expression.this.find_all(exp.Table)):
                    refuse_construct(f"{expression.alias[:60]}, which is defined by something of the same name")
                written.append(f"{self._write_alias(expression.args['alias'])} AS ({self.statement(expression.this)})")
                self._defined = (*self._defined, expression.alias.lower())
            yield f"WITH {', '.join(written)} " if written else ""
        finally:
            self._defined = before

    def _set_operation(self, node: exp.SetOperation) -> str:
        check_no_other_parts(node, "this", "expression", "distinct", *_ENDING)
        if not is_column_source(node):
            refuse_construct(f"{SETS[type(node)]} inside of a query")
        sides = (self._write_side(item) for item in (node.this, node.expression))
        return f" {SETS[type(node)]}{'' if node.args.get('distinct') else ' ALL'} ".join(sides)

    def _write_side(self, node: exp.Expr) -> str:
        text, query = self.statement(node), node.unnest()
        if isinstance(query, exp.Select):
            return f"({self._write_guarded_side(query, text)})"
        return text if isinstance(node, exp.Subquery) else f"({text})"

    def _write_guarded_side(self, node: exp.Select, text: str) -> str:
        """Write a side of a set operation, with guards of its columns.

        The guards fail if both engines don't convert a column to the result's type.

        Columns are found by place; those of the first side's `*` in Spark by the names that they had.
        """
        fields = self._schema.fields
        values = [exp.Star()] * len(fields) if node.is_star else node.expressions
        if len(values) != len(fields):
            refuse_construct("a set operation whose columns are not known")
        names = [
            field.name if value.is_star else value.output_name for value, field in zip(values, fields, strict=True)
        ]
        by_name = node.is_star and self.target is SPARK and _is_first_side(node)
        places = [self.target.quote_name(name) for name in (names if by_name else map("c{}".format, range(len(names))))]
        columns = [
            self._write_converted(place, field.type, known=isinstance(value.unalias(), exp.Null))
            + (f" AS {self.target.quote_name(name)}" if name else "")
            for place, value, name, field in zip(places, values, names, fields, strict=True)
        ]
        listed = "" if by_name else f"({', '.join(places)})"
        return f"SELECT {', '.join(columns)} FROM ({text}) AS {self.target.quote_name('side')}{listed}"

    def _write_converted(self, place: str, kind: IcebergType, *, known: bool) -> str:
        kinds = SIDES.get(kind.name) if isinstance(kind, PrimitiveType) else None
        if kinds is None:
            refuse_construct(f"a set operation with a column of type {str(kind)[:60]}")
        column = make_plain(place)
        text = place if known else self.guard([column], [kinds], column, "a set operation").text
        return f"CAST({text} AS {format_type_name(ENGINES[self.target.name], kind)})"

    def _write_select(self, node: exp.Select) -> str:
        check_no_other_parts(node, *_SELECT, *_ENDING)
        check_aliases(node, is_correlated=self._correlated, target=self.target)
        check_stars(node)
        if self.target is TRINO:
            check_using(node)
        distinct = node.args.get("distinct")
        if distinct:
            check_no_other_parts(distinct)
        word = "SELECT DISTINCT" if distinct else "SELECT"
        text = f"{word} {', '.join(map(self._write_selected, node.expressions))}{self._write_from(node)}"
        text += self._write_group_by(node.args.get("group"))
        if node.args.get("having"):
            text += f" HAVING {self.expression(node.args['having'].this).text}"
        return text if len(text) <= MAX_QUERY_CHARS else refuse_construct("a query of this length")

    def _write_from(self, node: exp.Select) -> str:
        """Write FROM and WHERE. WHERE also has the guards of JOIN ... USING: they depend on no row."""
        around, self._guards = self._guards, []
        text = ""
        if node.args.get("from_"):
            text = f" FROM {self._write_joined(self._write_relation(node.args['from_'].this), node)}"
        conditions, self._guards = self._guards, around
        if node.args.get("where"):
            conditions.insert(0, self.expression(node.args["where"].this).text)
        return f"{text} WHERE {' AND '.join(conditions)}" if conditions else text

    def _write_selected(self, node: exp.Expr) -> str:
        if isinstance(node, exp.Alias):
            check_no_other_parts(node, "this", "alias")
            return f"{self.expression(node.this).text} AS {self.name(node.args['alias'])}"
        if isinstance(node, exp.Star):
            check_no_other_parts(node)
            return "*"
        if isinstance(node, exp.Column) and isinstance(node.this, exp.Star):
            check_no_other_parts(node, "this", "table")
            check_no_other_parts(node.this)
            return f"{self.name(node.args['table'])}.*"
        return self.expression(node).text

    def _write_group_by(self, node: exp.Group | None) -> str:
        if node is None:
            return ""
        check_no_other_parts(node, "expressions")
        return f" GROUP BY {', '.join(expression.text for expression in self.expressions(node.expressions))}"

    def _write_relation(self, node: exp.Expr) -> str:
        if isinstance(node, exp.Table):
            check_no_other_parts(node, "this", "db", "catalog", "alias", "joins")
            names = [
                part.name if isinstance(part, exp.Identifier) else refuse_construct("a table function")
                for part in node.parts
            ]
            known = len(names) == 1 and names[0].lower() in self._defined
            text = self.target.quote_name(names[0]) if known else self._tables(names)
        elif isinstance(node, exp.Subquery):
            check_no_other_parts(node, "this", "alias", "joins")
            inner = node.this
            text = f"({self._write_relation(inner) if isinstance(inner, exp.Table) else self.statement(inner)})"
        else:
            refuse_construct(f"{node.key.upper()} in FROM")
        alias = node.args.get("alias")
        return self._write_joined(f"{text} AS {self._write_alias(alias)}" if alias else text, node)

    def _write_joined(self, text: str, node: exp.Expr) -> str:
        """Write a relation and its joins. DuckDB joins before it reads a comma, Spark after."""
        comma, bare = False, text
        for item in node.args.get("joins") or ():
            conditional = bool(item.args.get("on") or item.args.get("using"))
            if comma and conditional:
                refuse_construct("JOIN after a comma")
            comma = comma or not (conditional or item.kind)
            join = self._join(item, bare)
            text, bare = text + join.text, bare + join.bare
            if len(text) > MAX_QUERY_CHARS:
                refuse_construct("a query of this length")
        return text

    def _write_alias(self, node: exp.TableAlias) -> str:
        check_no_other_parts(node, "this", "columns")
        columns = ", ".join(map(self.name, node.columns))
        return self.name(node.this) + (f"({columns})" if columns else "")

    def _join(self, node: exp.Join, left: str) -> TypedSql:
        """Write a join to `left`."""
        check_no_other_parts(node, "this", "side", "kind", "on", "using")
        key, relation = (node.side, node.kind), self._write_relation(node.this)
        if node.this.args.get("joins"):
            relation = f"({relation})"
        condition, failing = "", relation
        if node.args.get("on"):
            condition = f" ON {self.expression(node.args['on']).text}"
        elif node.args.get("using"):
            names = [self.name(arg) for arg in node.args["using"]]
            condition = f" USING ({', '.join(names)})"
            guards = [self._alike(name, left, relation) for name in names]
            self._guards += guards
            failing = self._write_failing(node.this, relation, guards)
        elif key == ("", ""):
            return make_plain(f", {relation}")
        word = JOINS.get(key) or refuse_construct(f"{' '.join(filter(None, key))} JOIN")
        if word in {"SEMI", "ANTI"}:
            if self.target is TRINO:
                refuse_construct(f"{word} JOIN")
            word = f"{word} JOIN" if self.target is DUCKDB else f"LEFT {word} JOIN"
        if not condition and word != "CROSS JOIN":
            refuse_construct(f"{word} without a condition")
        return TypedSql(f" {word} {failing}{condition}", f" {word} {relation}{condition}")

    def _alike(self, name: str, *relations: str) -> str:
        """Build a condition that fails if the engines compare the relations' columns of a name differently."""
        operands = [make_plain(f"(SELECT {name} FROM {relation} LIMIT 0)") for relation in relations]
        return self.guard(operands, self.families, make_plain("TRUE", Kind.BOOLEAN), "USING").text

    def _write_failing(self, node: exp.Expr, relation: str, guards: Sequence[str]) -> str:
        """Build a relation that fails if it has rows, even if none of them is joined."""
        if node.args.get("joins") or not node.alias_or_name:
            refuse_construct("USING with a relation without a name")
        alias = self.target.quote_name(node.alias_or_name)
        return f"(SELECT * FROM {relation} WHERE {' AND '.join(guards)}) AS {alias}"


def is_column_source(node: exp.Expr) -> bool:
    """Return whether a query gives the whole query its columns: it is that query, or a side of its set operation."""
    while isinstance(node.parent, exp.SetOperation | exp.Subquery):
        node = node.parent
    return node.parent is None


def _is_first_side(node: exp.Expr) -> bool:
    """Return whether it is the first side, whose names a set operation's columns have."""
    while node.parent is not None and node.arg_key == "this":
        node = node.parent
    return node.parent is None
