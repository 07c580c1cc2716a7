"""PURE. How a query ends, and windows: ORDER BY, LIMIT, OFFSET, OVER, said in the other dialect."""

from sqlglot import exp

from duckicelake.bridge.transpile.calls import only
from duckicelake.bridge.transpile.dialects import refuse
from duckicelake.bridge.transpile.expressions import ExpressionWriter


class OrderingWriter(ExpressionWriter):
    """Writes what has an order."""

    def ended(self, node: exp.Expr, text: str) -> str:
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
