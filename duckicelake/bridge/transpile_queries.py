"""PURE. Queries of one dialect, said in the other: SELECT, set operations, joins, common table expressions."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final, Protocol

from sqlglot import exp

from duckicelake.bridge.transpile_calls import only
from duckicelake.bridge.transpile_dialects import DUCKDB, Side, refuse
from duckicelake.bridge.transpile_expressions import ExpressionWriter

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


class QueryWriter(ExpressionWriter):
    """Writes queries; `tables` says what tables are called that aren't defined in the query itself."""

    def __init__(self, source: Side, target: Side, tables: Tables) -> None:
        super().__init__(source, target)
        self._tables = tables
        self._defined: tuple[str, ...] = ()
        self._correlated = False

    def query(self, node: exp.Expr) -> str:
        """Give a query that stands in an expression, where names may be those of the query around it."""
        before, self._correlated = self._correlated, True
        try:
            return self.statement(node)
        finally:
            self._correlated = before

    def statement(self, node: exp.Expr) -> str:
        """Give a whole query in the other dialect; NotCarriedOver."""
        if isinstance(node, exp.Subquery) and not node.args.get("alias"):
            only(node, "this", *_ENDING)
            return self._ended(node, f"({self.statement(node.this)})")
        if not isinstance(node, exp.Select | exp.SetOperation):
            refuse(f"{node.key.upper()} as a query")
        with self._defining(node.args.get("with_")) as prefix:
            body = self._select(node) if isinstance(node, exp.Select) else self._set_operation(node)
            return prefix + self._ended(node, body)

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
        sides = (self._side(each) for each in (node.this, node.expression))
        return f" {SETS[type(node)]}{'' if node.args.get('distinct') else ' ALL'} ".join(sides)

    def _side(self, node: exp.Expr) -> str:
        text = self.statement(node)
        return text if isinstance(node, exp.Subquery) else f"({text})"

    def _select(self, node: exp.Select) -> str:
        only(node, *_SELECT, *_ENDING)
        self._check_aliases(node)
        self._check_stars(node)
        distinct = node.args.get("distinct")
        if distinct:
            only(distinct)
        parts = ["SELECT DISTINCT" if distinct else "SELECT", ", ".join(map(self._selected, node.expressions))]
        if node.args.get("from_"):
            parts.append(f"FROM {self._relation(node.args['from_'].this)}")
        text = " ".join(parts) + "".join(map(self._join, node.args.get("joins") or ()))
        if node.args.get("where"):
            text += f" WHERE {self.expression(node.args['where'].this).text}"
        text += self._grouped(node.args.get("group"))
        if node.args.get("having"):
            text += f" HAVING {self.expression(node.args['having'].this).text}"
        return text

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
        joins = "".join(map(self._join, node.args.get("joins") or ()))
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
        return f"{text} AS {self._alias(alias)}{joins}" if alias else text + joins

    def _alias(self, node: exp.TableAlias) -> str:
        only(node, "this", "columns")
        columns = ", ".join(map(self.name, node.columns))
        return self.name(node.this) + (f"({columns})" if columns else "")

    def _join(self, node: exp.Join) -> str:
        only(node, "this", "side", "kind", "on", "using")
        key, relation = (node.side, node.kind), self._relation(node.this)
        if node.this.args.get("joins"):
            relation = f"({relation})"
        condition = ""
        if node.args.get("on"):
            condition = f" ON {self.expression(node.args['on']).text}"
        elif node.args.get("using"):
            condition = f" USING ({', '.join(map(self.name, node.args['using']))})"
        elif key == ("", ""):
            return f", {relation}"
        word = JOINS.get(key) or refuse(f"{' '.join(filter(None, key))} JOIN")
        if word in {"SEMI", "ANTI"}:
            word = f"{word} JOIN" if self.target is DUCKDB else f"LEFT {word} JOIN"
        if not condition and word != "CROSS JOIN":
            refuse(f"{word} without a condition")
        return f" {word} {relation}{condition}"

    def _ended(self, node: exp.Expr, text: str) -> str:
        """The query with its ORDER BY, LIMIT and OFFSET."""
        order = node.args.get("order")
        if order:
            text += f" {self._ordered(order)}"
        for key in ("limit", "offset"):
            clause = node.args.get(key)
            if clause:
                only(clause, "expression")
                if not clause.expression.is_int or not isinstance(clause.expression, exp.Literal):
                    refuse(f"{key.upper()} that is not a literal")
                text += f" {key.upper()} {clause.expression.this}"
        return text

    def _ordered(self, node: exp.Order) -> str:
        """ORDER BY with the places of nulls, which aren't the same by default."""
        only(node, "expressions")
        return f"ORDER BY {', '.join(map(self._sort_key, node.expressions))}"

    def _sort_key(self, node: exp.Ordered) -> str:
        only(node, "this", "desc", "nulls_first")
        if isinstance(node.this, exp.Column) and node.this.name.lower() == "all" and not node.this.this.quoted:
            refuse("ORDER BY ALL")
        direction = "DESC" if node.args.get("desc") else "ASC"
        nulls = "FIRST" if node.args.get("nulls_first") else "LAST"
        return f"{self.expression(node.this).text} {direction} NULLS {nulls}"

    def window(self, node: exp.Window) -> str:
        """Give what stands between the parentheses of OVER."""
        parts = []
        if node.args.get("partition_by"):
            keys = self.expressions(node.args["partition_by"])
            parts.append(f"PARTITION BY {', '.join(each.text for each in keys)}")
        if node.args.get("order"):
            parts.append(self._ordered(node.args["order"]))
        if node.args.get("spec"):
            parts.append(self._frame(node.args["spec"]))
        return " ".join(parts)

    def _frame(self, node: exp.WindowSpec) -> str:
        only(node, "kind", "start", "start_side", "end", "end_side")
        kind = str(node.args["kind"]).upper()
        start = self._bound(kind, node.args["start"], node.args.get("start_side"))
        end = node.args.get("end")
        last = self._bound(kind, end, node.args.get("end_side")) if end else "CURRENT ROW"
        return f"{kind} BETWEEN {start} AND {last}"

    def _bound(self, kind: str, at: exp.Expr | str, side: str | None) -> str:
        if at == "CURRENT ROW":
            return "CURRENT ROW"
        if at != "UNBOUNDED" and (kind != "ROWS" or not isinstance(at, exp.Literal) or not at.is_int):
            refuse(f"a window's {kind} with an offset that is not a literal number of rows")
        return f"{at if isinstance(at, str) else at.this} {side}"

    def _check_aliases(self, node: exp.Select) -> None:
        """Refuse names that are a column to one engine and what the query calls so to the other."""
        aliases = {
            each.alias.lower()
            for each in node.expressions
            if isinstance(each, exp.Alias) and not _is_column(each.this, each.alias)
        }
        places: list[exp.Expr] = [
            key.this
            for key in (node.args["order"].expressions if node.args.get("order") else ())
            if not _plain(key.this)
        ]
        if self._correlated:
            places += [
                *node.expressions,
                *(node.args[key] for key in ("where", "group", "having") if node.args.get(key)),
            ]
        for place in places:
            for column in place.find_all(exp.Column):
                if not column.table and column.name.lower() in aliases:
                    refuse(f"{column.name[:60]}, which may be a column or the expression of that name")

    @staticmethod
    def _check_stars(node: exp.Select) -> None:
        """Refuse `*` where the engines give the columns another order."""
        joins = node.args.get("joins") or ()
        if any(each.args.get("using") for each in joins) and any(each.is_star for each in node.expressions):
            refuse("* over JOIN ... USING")


def _plain(node: exp.Expr) -> bool:
    return isinstance(node, exp.Column | exp.Literal)


def _is_column(node: exp.Expr, name: str) -> bool:
    return isinstance(node, exp.Column) and node.name.lower() == name.lower()
