"""PURE. Queries of one dialect, said in the other: SELECT, set operations, joins, common table expressions."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final, Protocol

from sqlglot import exp

from duckicelake.bridge.transpile.ambiguities import check_aliases, check_stars
from duckicelake.bridge.transpile.calls import only
from duckicelake.bridge.transpile.dialects import DUCKDB, SPARK, Kind, Side, refuse
from duckicelake.bridge.transpile.expressions import LONGEST
from duckicelake.bridge.transpile.ordering import OrderingWriter
from duckicelake.bridge.transpile.placeholders import DUCKDB as DUCKDB_TYPES
from duckicelake.bridge.transpile.placeholders import SPARK as SPARK_TYPES
from duckicelake.bridge.transpile.placeholders import type_name
from duckicelake.bridge.transpile.types import FAMILIES, SIDES, Sql, plain
from duckicelake.iceberg.schema import Schema
from duckicelake.iceberg.types import IcebergType, PrimitiveType

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


class Tables(Protocol):
    """Says a table's name in the other dialect: the parts of it as they are written, quotes taken away."""

    def __call__(self, parts: Sequence[str]) -> str: ...


class QueryWriter(OrderingWriter):
    """Writes queries; `tables` says what tables are called that aren't defined in the query itself.

    The schema is that of the whole query, which tells what types the sides of its set operations become.
    """

    def __init__(self, source: Side, target: Side, tables: Tables, schema: Schema) -> None:
        super().__init__(source, target)
        self._tables, self._schema = tables, schema
        self._defined: tuple[str, ...] = ()
        self._guards: list[str] = []
        self._correlated = False

    def query(self, node: exp.Expr) -> str:
        """Give a query that stands in an expression, where names may be those of the query around it."""
        before, self._correlated = self._correlated, True
        try:
            return self.statement(node)
        finally:
            self._correlated = before

    def column(self, node: exp.Expr) -> Sql:
        """Give a query's one column, to ask for its type: what doesn't decide it is left away."""
        asked = node.copy()
        for key in ("where", "order", "limit", "offset"):
            asked.set(key, None)
        return plain(f"({self.query(asked)} LIMIT 0)")

    def statement(self, node: exp.Expr) -> str:
        """Give a whole query in the other dialect; NotCarriedOver."""
        if isinstance(node, exp.Subquery) and not node.args.get("alias"):
            only(node, "this", *_ENDING)
            return self.ended(node, f"({self.statement(node.this)})")
        if not isinstance(node, exp.Select | exp.SetOperation):
            refuse(f"{node.key.upper()} as a query")
        with self._defining(node.args.get("with_")) as prefix:
            body = self._select(node) if isinstance(node, exp.Select) else self._set_operation(node)
            return prefix + self.ended(node, body)

    @contextmanager
    def _defining(self, node: exp.With | None) -> Iterator[str]:
        """The common table expressions, whose names are known until the end."""
        before, written = self._defined, []
        try:
            for each in node.expressions if node else ():
                only(node or each, "expressions")
                only(each, "this", "alias")
                if any(table.name.lower() == each.alias.lower() for table in each.this.find_all(exp.Table)):
                    refuse(f"{each.alias[:60]}, which is defined by something of the same name")
                written.append(f"{self._alias(each.args['alias'])} AS ({self.statement(each.this)})")
                self._defined = (*self._defined, each.alias.lower())
            yield f"WITH {', '.join(written)} " if written else ""
        finally:
            self._defined = before

    def _set_operation(self, node: exp.SetOperation) -> str:
        only(node, "this", "expression", "distinct", *_ENDING)
        if not gives_columns(node):
            refuse(f"{SETS[type(node)]} inside of a query")
        sides = (self._side(each) for each in (node.this, node.expression))
        return f" {SETS[type(node)]}{'' if node.args.get('distinct') else ' ALL'} ".join(sides)

    def _side(self, node: exp.Expr) -> str:
        text, query = self.statement(node), node.unnest()
        if isinstance(query, exp.Select):
            return f"({self._asked(query, text)})"
        return text if isinstance(node, exp.Subquery) else f"({text})"

    def _asked(self, node: exp.Select, text: str) -> str:
        """A side of a set operation: it fails where a column isn't of what both engines turn into the result's type.

        The columns are found by place, those of the first side's `*` in Spark by the names that they had.
        """
        fields = self._schema.fields
        values = [exp.Star()] * len(fields) if node.is_star else node.expressions
        if len(values) != len(fields):
            refuse("a set operation whose columns are not known")
        names = [
            field.name if value.is_star else value.output_name for value, field in zip(values, fields, strict=True)
        ]
        by_name = node.is_star and self.target is SPARK and _leads(node)
        places = [self.target.quoted(each) for each in (names if by_name else map("c{}".format, range(len(names))))]
        columns = [
            self._turned(place, field.type, known=isinstance(value.unalias(), exp.Null))
            + (f" AS {self.target.quoted(name)}" if name else "")
            for place, value, name, field in zip(places, values, names, fields, strict=True)
        ]
        listed = "" if by_name else f"({', '.join(places)})"
        return f"SELECT {', '.join(columns)} FROM ({text}) AS {self.target.quoted('side')}{listed}"

    def _turned(self, place: str, kind: IcebergType, *, known: bool) -> str:
        kinds = SIDES.get(kind.name) if isinstance(kind, PrimitiveType) else None
        if kinds is None:
            refuse(f"a set operation with a column of type {str(kind)[:60]}")
        column = plain(place)
        text = place if known else self.guarded([column], [kinds], column, "a set operation").text
        return f"CAST({text} AS {type_name(SPARK_TYPES if self.target is SPARK else DUCKDB_TYPES, kind)})"

    def _select(self, node: exp.Select) -> str:
        only(node, *_SELECT, *_ENDING)
        check_aliases(node, is_correlated=self._correlated)
        check_stars(node)
        distinct = node.args.get("distinct")
        if distinct:
            only(distinct)
        word = "SELECT DISTINCT" if distinct else "SELECT"
        text = f"{word} {', '.join(map(self._selected, node.expressions))}{self._from(node)}"
        text += self._grouped(node.args.get("group"))
        if node.args.get("having"):
            text += f" HAVING {self.expression(node.args['having'].this).text}"
        return text if len(text) <= LONGEST else refuse("a query of this length")

    def _from(self, node: exp.Select) -> str:
        """FROM and WHERE, which has the guards of JOIN ... USING too: they hang on no row."""
        around, self._guards = self._guards, []
        text = ""
        if node.args.get("from_"):
            text = f" FROM {self._joined(self._relation(node.args['from_'].this), node)}"
        conditions, self._guards = self._guards, around
        if node.args.get("where"):
            conditions.insert(0, self.expression(node.args["where"].this).text)
        return f"{text} WHERE {' AND '.join(conditions)}" if conditions else text

    def _selected(self, node: exp.Expr) -> str:
        if isinstance(node, exp.Alias):
            only(node, "this", "alias")
            return f"{self.expression(node.this).text} AS {self.name(node.args['alias'])}"
        if isinstance(node, exp.Star):
            only(node)
            return "*"
        if isinstance(node, exp.Column) and isinstance(node.this, exp.Star):
            only(node, "this", "table")
            only(node.this)
            return f"{self.name(node.args['table'])}.*"
        return self.expression(node).text

    def _grouped(self, node: exp.Group | None) -> str:
        if node is None:
            return ""
        only(node, "expressions")
        return f" GROUP BY {', '.join(each.text for each in self.expressions(node.expressions))}"

    def _relation(self, node: exp.Expr) -> str:
        if isinstance(node, exp.Table):
            only(node, "this", "db", "catalog", "alias", "joins")
            names = [
                part.name if isinstance(part, exp.Identifier) else refuse("a table function") for part in node.parts
            ]
            known = len(names) == 1 and names[0].lower() in self._defined
            text = self.target.quoted(names[0]) if known else self._tables(names)
        elif isinstance(node, exp.Subquery):
            only(node, "this", "alias", "joins")
            inner = node.this
            text = f"({self._relation(inner) if isinstance(inner, exp.Table) else self.statement(inner)})"
        else:
            refuse(f"{node.key.upper()} in FROM")
        alias = node.args.get("alias")
        return self._joined(f"{text} AS {self._alias(alias)}" if alias else text, node)

    def _joined(self, text: str, node: exp.Expr) -> str:
        """A relation with what the node joins to it, which DuckDB does before it reads a comma, Spark after."""
        comma, bare = False, text
        for each in node.args.get("joins") or ():
            conditional = bool(each.args.get("on") or each.args.get("using"))
            if comma and conditional:
                refuse("JOIN after a comma")
            comma = comma or not (conditional or each.kind)
            join = self._join(each, bare)
            text, bare = text + join.text, bare + join.bare
            if len(text) > LONGEST:
                refuse("a query of this length")
        return text

    def _alias(self, node: exp.TableAlias) -> str:
        only(node, "this", "columns")
        columns = ", ".join(map(self.name, node.columns))
        return self.name(node.this) + (f"({columns})" if columns else "")

    def _join(self, node: exp.Join, left: str) -> Sql:
        """What is joined to `left`."""
        only(node, "this", "side", "kind", "on", "using")
        key, relation = (node.side, node.kind), self._relation(node.this)
        if node.this.args.get("joins"):
            relation = f"({relation})"
        condition, failing = "", relation
        if node.args.get("on"):
            condition = f" ON {self.expression(node.args['on']).text}"
        elif node.args.get("using"):
            names = [self.name(each) for each in node.args["using"]]
            condition = f" USING ({', '.join(names)})"
            guards = [self._alike(name, left, relation) for name in names]
            self._guards += guards
            failing = self._failing(node.this, relation, guards)
        elif key == ("", ""):
            return plain(f", {relation}")
        word = JOINS.get(key) or refuse(f"{' '.join(filter(None, key))} JOIN")
        if word in {"SEMI", "ANTI"}:
            word = f"{word} JOIN" if self.target is DUCKDB else f"LEFT {word} JOIN"
        if not condition and word != "CROSS JOIN":
            refuse(f"{word} without a condition")
        return Sql(f" {word} {failing}{condition}", f" {word} {relation}{condition}")

    def _alike(self, name: str, *relations: str) -> str:
        """A condition that fails where the relations' columns of the name aren't compared in the same way."""
        operands = [plain(f"(SELECT {name} FROM {each} LIMIT 0)") for each in relations]
        return self.guarded(operands, FAMILIES, plain("TRUE", Kind.BOOLEAN), "USING").text

    def _failing(self, node: exp.Expr, relation: str, guards: Sequence[str]) -> str:
        """A relation that fails if it has rows, even if none of them is joined to one of the other's."""
        if node.args.get("joins") or not node.alias_or_name:
            refuse("USING with a relation without a name")
        return f"(SELECT * FROM {relation} WHERE {' AND '.join(guards)}) AS {self.target.quoted(node.alias_or_name)}"


def gives_columns(node: exp.Expr) -> bool:
    """Tell whether a query's columns are the whole query's: it is that, or a side of its set operation."""
    while isinstance(node.parent, exp.SetOperation | exp.Subquery):
        node = node.parent
    return node.parent is None


def _leads(node: exp.Expr) -> bool:
    """Tell whether it's the first side, which gives a set operation's columns their names."""
    while node.parent is not None and node.arg_key == "this":
        node = node.parent
    return node.parent is None
