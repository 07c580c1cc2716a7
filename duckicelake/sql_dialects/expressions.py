"""PURE. Translate expressions; only the listed kinds of nodes."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Final

from sqlglot import exp

from duckicelake.sql_dialects.calls import CallWriter, check_no_other_parts
from duckicelake.sql_dialects.dialects import (
    ADDED,
    DIVISIBLE,
    DUCKDB,
    EXACT,
    FAMILIES,
    INTEGERS,
    SPARK,
    TEXT,
    TIMES,
    TRINO,
    Kind,
    TypedSql,
    make_plain,
    refuse_construct,
)

MAX_QUERY_CHARS: Final = 65_536
_FEW: Final = 10**9
_DATE = re.compile(r"[12]\d{3}-\d\d-\d\d")
_TIMESTAMP = re.compile(r"[12]\d{3}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d{1,6})?")
_WHOLE, _FRACTION = re.compile(r"\d{1,18}"), re.compile(r"(?=[\d.]{2,16}$)\d*\.\d*")
CASTS: Final = {
    "SMALLINT": (INTEGERS | {Kind.BOOLEAN}, Kind.INTEGER),
    "INTEGER": (INTEGERS | {Kind.BOOLEAN}, Kind.INTEGER),
    "BIGINT": (INTEGERS | {Kind.BOOLEAN}, Kind.INTEGER),
    "DOUBLE": (DIVISIBLE | {Kind.FLOAT}, Kind.DOUBLE),
    "DECIMAL": (EXACT, None),
    "VARCHAR": (INTEGERS | TEXT | {Kind.BOOLEAN}, Kind.TEXT),
    "BOOLEAN": (INTEGERS | {Kind.BOOLEAN}, Kind.BOOLEAN),
    "DATE": (TIMES, Kind.DATE),
    "TIMESTAMP": (TIMES, Kind.TIMESTAMP),
}
"""Types that can be cast to: source kinds and result kind. Other casts round, or differ."""
_TYPE_NAMES: Final = {
    exp.DataType.Type.SMALLINT: "SMALLINT",
    exp.DataType.Type.INT: "INTEGER",
    exp.DataType.Type.BIGINT: "BIGINT",
    exp.DataType.Type.DOUBLE: "DOUBLE",
    exp.DataType.Type.TEXT: "VARCHAR",
    exp.DataType.Type.VARCHAR: "VARCHAR",
    exp.DataType.Type.BOOLEAN: "BOOLEAN",
    exp.DataType.Type.DATE: "DATE",
    exp.DataType.Type.TIMESTAMPNTZ: "TIMESTAMP",
    exp.DataType.Type.TIMESTAMP: "TIMESTAMP",
    exp.DataType.Type.DECIMAL: "DECIMAL",
}


class ExpressionWriter(CallWriter):
    """Writes expressions of `source` in `target`."""

    def expression(self, node: exp.Expr) -> TypedSql:
        """Translate an expression; NotTranslatableError."""
        write = self.WRITERS.get(type(node))
        if write is None:
            refuse_construct(f"{node.key.upper()} ({node.sql(self.source.parser)[:60]})")
        written = write(self, node)
        if len(written.text) > MAX_QUERY_CHARS:
            refuse_construct("a query of this length")
        return written

    def name(self, node: exp.Expr) -> str:
        """Quote an identifier for the other dialect."""
        if not isinstance(node, exp.Identifier) or not isinstance(node.this, str):
            refuse_construct(f"{node.key.upper()} as a name")
        return self.target.quote_name(node.this)

    def _write_literal(self, node: exp.Literal) -> TypedSql:
        if node.is_string:
            if self.source is SPARK and "'" in node.this:
                refuse_construct("a quote inside of a string")
            return make_plain(self.target.text(node.this), Kind.TEXT)
        if _WHOLE.fullmatch(node.this):
            return make_plain(node.this, Kind.INTEGER)
        if _FRACTION.fullmatch(node.this):
            return make_plain(node.this, Kind.SHORT)
        return refuse_construct(f"the number {node.this[:60]}")

    def _write_boolean(self, node: exp.Boolean) -> TypedSql:
        return make_plain(str(node.this).upper(), Kind.BOOLEAN)

    def _write_null(self, _node: exp.Null) -> TypedSql:
        return TypedSql("NULL", "NULL", frozenset())

    def _write_column(self, node: exp.Column) -> TypedSql:
        check_no_other_parts(node, "this", "table", "db", "catalog")
        return make_plain(".".join(self.name(part) for part in node.parts))

    def _write_paren(self, node: exp.Paren) -> TypedSql:
        return _shape_part("({})", self.expression(node.this))

    def _write_negative(self, node: exp.Neg) -> TypedSql:
        return _shape_part("-({})", self.expression(node.this))

    def _write_logic(self, node: exp.Expr) -> TypedSql:
        word = "AND" if isinstance(node, exp.And) else "OR"
        return _join_parts(
            f"({{}} {word} {{}})", [self.expression(node.this), self.expression(node.expression)], Kind.BOOLEAN
        )

    def _write_not(self, node: exp.Not) -> TypedSql:
        return _join_parts("(NOT {})", [self.expression(node.this)], Kind.BOOLEAN)

    def _write_operands(self, nodes: Sequence[exp.Expr]) -> list[TypedSql]:
        """Translate the operands of a condition. Engines parse nested conditions without parentheses differently."""
        for node in nodes:
            if isinstance(node, exp.Predicate | exp.Not | exp.Is | exp.In | exp.Between) and not isinstance(
                node, exp.Exists | exp.SubqueryPredicate
            ):
                refuse_construct("a condition on a condition without parentheses")
        return self.expressions(nodes)

    def _write_comparison(self, node: exp.Expr) -> TypedSql:
        if isinstance(node.expression, exp.Any):
            return self._write_one_of(node)
        sign = _SIGNS[type(node)]
        if self.target is SPARK and isinstance(node, exp.NullSafeEQ | exp.NullSafeNEQ):
            sign = "{} <=> {}" if isinstance(node, exp.NullSafeEQ) else "NOT ({} <=> {})"
        return self._write_same_family([node.this, node.expression], f"({sign})", "a comparison")

    def _write_one_of(self, node: exp.Expr) -> TypedSql:
        """Write `x = ANY(SELECT ...)`, DuckDB's form of IN."""
        query = node.expression.this
        if not isinstance(node, exp.EQ) or not isinstance(query, exp.Subquery):
            refuse_construct("ANY")
        return self._write_in_query(node.this, query)

    def _write_in_query(self, left: exp.Expr, query: exp.Expr) -> TypedSql:
        inner = _unwrap_query(query)
        members, (operand,) = make_plain(self.query(inner)), self._write_operands([left])
        asked = self.guard([operand, self.column(inner)], self.families, operand, "IN")
        return _join_parts("({} IN ({}))", [asked, members], Kind.BOOLEAN)

    def _write_in(self, node: exp.In) -> TypedSql:
        check_no_other_parts(node, "this", "expressions", "query")
        if node.args.get("query"):
            return self._write_in_query(node.this, node.args["query"])
        members = ", ".join(["{}"] * len(node.expressions))
        return self._write_same_family([node.this, *node.expressions], f"({{}} IN ({members}))", "IN")

    def _write_between(self, node: exp.Between) -> TypedSql:
        check_no_other_parts(node, "this", "low", "high")
        operands = [node.this, node.args["low"], node.args["high"]]
        return self._write_same_family(operands, "({} BETWEEN {} AND {})", "BETWEEN")

    def _write_is(self, node: exp.Is) -> TypedSql:
        if not isinstance(node.expression, exp.Null | exp.Boolean):
            refuse_construct("IS")
        sign = "IS NOT DISTINCT FROM" if self.target is TRINO and isinstance(node.expression, exp.Boolean) else "IS"
        return _join_parts(f"({{}} {sign} {node.expression.sql()})", self._write_operands([node.this]), Kind.BOOLEAN)

    def _write_like(self, node: exp.Like) -> TypedSql:
        check_no_other_parts(node, "this", "expression", "negate")
        if not node.expression.is_string:
            refuse_construct("LIKE with a pattern that is not a literal")
        word = "NOT LIKE" if node.args.get("negate") else "LIKE"
        operands = self._write_operands([node.this, node.expression])
        return self.guard(operands, [TEXT], _join_parts(f"({{}} {word} {{}})", operands, Kind.BOOLEAN), word)

    def _write_arithmetic(self, node: exp.Expr) -> TypedSql:
        operands = self.expressions([node.this, node.expression])
        sign = "+" if isinstance(node, exp.Add) else "-" if isinstance(node, exp.Sub) else "*"
        kinds = {kind for operand in operands for kind in operand.kinds or [None]}
        result = _join_parts(f"({{}} {sign} {{}})", operands, Kind.INTEGER if kinds == {Kind.INTEGER} else None)
        asked = [_allow_decimal(*item) for item in zip((node.this, node.expression), operands, strict=True)]
        return self.guard(asked, ADDED, result, sign)

    def _write_division(self, node: exp.Div) -> TypedSql:
        operands = self.expressions([node.this, node.expression])
        if self.source is TRINO:
            operands = _make_doubles((node.this, node.expression), operands)
        shape = _DIVISION[self.source.name, self.target.name]
        return self.guard(operands, [_DIVIDED[self.source.name]], _join_parts(shape, operands, Kind.DOUBLE), "/")

    def _write_remainder(self, node: exp.Mod) -> TypedSql:
        operands = self.expressions([node.this, node.expression])
        return self.guard(operands, [INTEGERS], _join_parts(_REMAINDER[self.target.name], operands, Kind.INTEGER), "%")

    def _write_concatenation(self, node: exp.DPipe) -> TypedSql:
        check_no_other_parts(node, "this", "expression", "safe")
        operands = self.expressions([node.this, node.expression])
        return self.guard(operands, [TEXT], _join_parts("({} || {})", operands, Kind.TEXT), "||")

    def _write_case(self, node: exp.Case) -> TypedSql:
        check_no_other_parts(node, "this", "ifs", "default")
        branches, default = node.args["ifs"], node.args.get("default")
        results = [branch.args["true"] for branch in branches] + ([default] if default else [])
        conditions = [
            exp.EQ(this=node.this, expression=branch.this) if node.this else branch.this for branch in branches
        ]
        shape = "".join(" WHEN {} THEN {}" for _ in branches) + (" ELSE {}" if default else "")
        return self._write_choice(conditions, results, f"CASE{shape} END")

    def _write_if(self, node: exp.If) -> TypedSql:
        check_no_other_parts(node, "this", "true", "false")
        results = [node.args["true"], node.args.get("false") or exp.Null()]
        return self._write_choice([node.this], results, "CASE WHEN {} THEN {} ELSE {} END")

    def _write_choice(self, conditions: Sequence[exp.Expr], results: Sequence[exp.Expr], shape: str) -> TypedSql:
        tests, values = self.expressions(conditions), self.expressions(results)
        parts = [part for pair in zip(tests, values, strict=False) for part in pair] + values[len(tests) :]
        return self.guard(values, FAMILIES, _join_parts(shape, parts, *_find_common_kind(values)), "CASE")

    def _write_cast(self, node: exp.Cast) -> TypedSql:
        check_no_other_parts(node, "this", "to", "_type", "safe")
        if self.source is TRINO and node.this.is_string and node.to.this == exp.DataType.Type.DECIMAL:
            return self._write_literal(
                exp.Literal(this=node.this.this, is_string=False)
            )  # Trino keeps 0.5 as DECIMAL '0.5'
        name, target = self._write_type(node.to)
        if node.this.is_string:
            return self._write_typed_literal(node, name)
        allowed, gives = CASTS[name]
        operand = self.expression(node.this)
        word = "TRY_CAST" if isinstance(node, exp.TryCast) else "CAST"
        result = _join_parts(f"{word}({{}} AS {target})", [operand], *([gives] if gives else []))
        return self.guard([operand], [allowed], result, f"CAST AS {name}")

    def _write_typed_literal(self, node: exp.Cast, name: str) -> TypedSql:
        """Translate a date or timestamp literal, or DuckDB's form of `true`. Engines read other texts differently."""
        text, target = node.this.this, self.target.types
        if name == "BOOLEAN" and text in {"t", "f"} and self.source is DUCKDB:
            return make_plain("TRUE" if text == "t" else "FALSE", Kind.BOOLEAN)
        if name == "DATE" and _DATE.fullmatch(text):
            return make_plain(f"CAST('{text}' AS DATE)", Kind.DATE)
        if name == "TIMESTAMP" and (_TIMESTAMP.fullmatch(text) or _DATE.fullmatch(text)):
            return make_plain(f"CAST('{text}' AS {target['TIMESTAMP']})", Kind.TIMESTAMP)
        if name == "VARCHAR":
            return self._write_literal(node.this)
        return refuse_construct(f"CAST of a text AS {name}")

    def _write_type(self, node: exp.DataType) -> tuple[str, str]:
        """Translate a type: DuckDB's name of it, and the other dialect's."""
        name = _TYPE_NAMES.get(node.this)
        if self.source is TRINO and name == "TIMESTAMP":
            name = name if [item.name for item in node.expressions] == ["6"] else None
        elif node.expressions and name != "DECIMAL":
            name = None
        if name is None or node.args.get("nested"):
            refuse_construct(f"the type {node.sql(self.source.parser)[:60]}")
        if name != "DECIMAL":
            return name, self.target.types[name]
        parameters = [expression.this.this for expression in node.expressions]
        if len(parameters) != 2 or not all(_WHOLE.fullmatch(str(parameter)) for parameter in parameters):
            refuse_construct("DECIMAL without precision and scale")
        return name, f"DECIMAL({parameters[0]}, {parameters[1]})"

    def _write_exists(self, node: exp.Exists) -> TypedSql:
        return make_plain(f"EXISTS ({self.query(_unwrap_query(node.this))})", Kind.BOOLEAN)

    def _write_scalar(self, node: exp.Subquery) -> TypedSql:
        check_no_other_parts(node, "this")
        return make_plain(f"({self.query(node.this)})")

    def _write_same_family(self, nodes: Sequence[exp.Expr], shape: str, what: str) -> TypedSql:
        operands = [
            self._allow_date(node, written) for node, written in zip(nodes, self._write_operands(nodes), strict=True)
        ]
        return self.guard_same(operands, _join_parts(shape, operands, Kind.BOOLEAN), what)

    def _allow_date(self, node: exp.Expr, written: TypedSql) -> TypedSql:
        """Allow a text as a date, too, where both engines compare it with one. Trino compares no texts with dates."""
        if not node.is_string or self.source is TRINO:
            return written
        if self.target is TRINO and _TIMESTAMP.fullmatch(node.this):
            refuse_construct(f"'{node.this}' without the word TIMESTAMP before it")
        if not _DATE.fullmatch(node.this):
            return written
        if self.target is TRINO:
            return make_plain(f"DATE {written.text}", Kind.DATE)
        return TypedSql(written.text, written.bare, TIMES | TEXT)

    WRITERS: ClassVar[Mapping[type[exp.Expr], Callable[[Any, Any], TypedSql]]] = {
        exp.Literal: _write_literal,
        exp.Boolean: _write_boolean,
        exp.Null: _write_null,
        exp.Column: _write_column,
        exp.Paren: _write_paren,
        exp.Neg: _write_negative,
        exp.And: _write_logic,
        exp.Or: _write_logic,
        exp.Not: _write_not,
        **dict.fromkeys(
            (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ, exp.NullSafeNEQ), _write_comparison
        ),
        exp.In: _write_in,
        exp.Between: _write_between,
        exp.Is: _write_is,
        exp.Like: _write_like,
        exp.Add: _write_arithmetic,
        exp.Sub: _write_arithmetic,
        exp.Mul: _write_arithmetic,
        exp.Div: _write_division,
        exp.Mod: _write_remainder,
        exp.DPipe: _write_concatenation,
        exp.Case: _write_case,
        exp.If: _write_if,
        exp.Cast: _write_cast,
        exp.TryCast: _write_cast,
        exp.Extract: CallWriter.extract,
        exp.Exists: _write_exists,
        exp.Subquery: _write_scalar,
        exp.Anonymous: CallWriter.call,
        exp.Dot: CallWriter.call,
        exp.Filter: CallWriter.write_filter,
        exp.Window: CallWriter.write_windowed,
    }


_SIGNS: Final[Mapping[type[exp.Expr], str]] = {
    exp.EQ: "{} = {}",
    exp.NEQ: "{} <> {}",
    exp.LT: "{} < {}",
    exp.LTE: "{} <= {}",
    exp.GT: "{} > {}",
    exp.GTE: "{} >= {}",
    exp.NullSafeEQ: "{} IS NOT DISTINCT FROM {}",
    exp.NullSafeNEQ: "{} IS DISTINCT FROM {}",
}
_DIVIDED: Final = {
    DUCKDB.name: DIVISIBLE,
    SPARK.name: DIVISIBLE - {Kind.SHORT},
    TRINO.name: frozenset({Kind.DOUBLE}),
}
"""Kinds whose quotients are doubles, by the dialect that they are read from."""
_DIVISION: Final = {
    (DUCKDB.name, SPARK.name): (
        "CASE WHEN CAST({1} AS DOUBLE) = 0 THEN CAST({0} AS DOUBLE) * "
        "CASE WHEN CAST(CAST({1} AS DOUBLE) AS STRING) = '-0.0' THEN DOUBLE('-Infinity') ELSE DOUBLE('Infinity') END "
        "ELSE CAST({0} AS DOUBLE) / CAST({1} AS DOUBLE) END"
    ),
    (SPARK.name, DUCKDB.name): (
        "(CAST({0} AS DOUBLE) / CASE WHEN {1} = 0 THEN error('Division by zero') ELSE CAST({1} AS DOUBLE) END)"
    ),
    (DUCKDB.name, TRINO.name): "(CAST({0} AS DOUBLE) / CAST({1} AS DOUBLE))",
    (TRINO.name, DUCKDB.name): "({0} / {1})",
}
"""DuckDB and Trino divide doubles by zero; Spark fails."""
_REMAINDER: Final = {
    SPARK.name: "({0} % nullif({1}, 0))",
    DUCKDB.name: "({0} % CASE WHEN {1} = 0 THEN error('Division by zero') ELSE {1} END)",
    TRINO.name: "({0} % nullif({1}, 0))",
}
"""The remainder by zero is NULL in DuckDB; Spark and Trino fail."""


def _join_parts(shape: str, parts: Sequence[TypedSql], *kinds: Kind | None) -> TypedSql:
    known = frozenset(kind for kind in kinds if kind is not None)
    return TypedSql(shape.format(*(p.text for p in parts)), shape.format(*(p.bare for p in parts)), known or None)


def _shape_part(shape: str, part: TypedSql) -> TypedSql:
    return TypedSql(shape.format(part.text), shape.format(part.bare), part.kinds)


def _find_common_kind(values: Sequence[TypedSql]) -> list[Kind]:
    """Find the kind that all values are known to have, if there is one."""
    kinds = {literal.kinds for literal in values if literal.kinds is None or literal.kinds}
    (only_one, *others) = kinds or {None}
    return [] if others or only_one is None or len(only_one) > 1 else list(only_one)


def _make_doubles(nodes: Sequence[exp.Expr], written: list[TypedSql]) -> list[TypedSql]:
    """Make the one operand that is a literal a double, as Trino does beside a double. It divides integers otherwise."""
    literal = [node.unnest().is_number for node in nodes]
    if sum(literal) != 1:
        return written
    return [
        make_plain(f"CAST({part.bare} AS DOUBLE)", Kind.DOUBLE) if is_literal else part
        for is_literal, part in zip(literal, written, strict=True)
    ]


def _allow_decimal(node: exp.Expr, written: TypedSql) -> TypedSql:
    """Allow a number of few digits as a decimal, too. Spark makes other BIGINTs decimals of 20 digits."""
    number = node.unnest()
    if number.is_int and abs(int(number.to_py())) < _FEW:
        return TypedSql(written.text, written.bare, INTEGERS | {Kind.SHORT})
    return written


def _unwrap_query(query: exp.Expr) -> exp.Expr:
    """Remove the parentheses around a query, which have no clauses of their own."""
    while isinstance(query, exp.Subquery):
        check_no_other_parts(query, "this")
        query = query.this
    return query
