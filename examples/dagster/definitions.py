"""Sales of a shop in Dagster: the lake's change feed starts runs, PyIceberg writes the table, a check compares it."""

import os

import dagster as dg
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.catalog.rest import RestCatalog

import duckicelake

URI = os.environ.get("DUCKICELAKE_CLIENT_URI", "http://localhost:8181")
ORDERS, BY_REGION = dg.AssetKey(["sales", "orders"]), dg.AssetKey(["sales", "by_region"])


class LakeIOManager(dg.ConfigurableIOManager):
    """Keep the asset `a/b` as the table `a.b`, by Iceberg's REST protocol."""

    uri: str = URI

    def handle_output(self, context: dg.OutputContext, obj: pa.Table) -> None:
        """Replace the table's rows in one commit, so that a run that is repeated doubles none."""
        catalog, name = RestCatalog("lake", uri=self.uri), tuple(context.asset_key.path)
        catalog.create_namespace_if_not_exists(name[:-1])
        table = catalog.create_table_if_not_exists(name, schema=obj.schema)
        table.overwrite(obj)
        context.add_output_metadata({"rows": obj.num_rows, "snapshot": str(table.current_snapshot().snapshot_id)})

    def load_input(self, context: dg.InputContext) -> pa.Table:
        return RestCatalog("lake", uri=self.uri).load_table(tuple(context.asset_key.path)).scan().to_arrow()


@dg.asset(key=BY_REGION, ins={"orders": dg.AssetIn(ORDERS)})
def by_region(orders: pa.Table) -> pa.Table:
    """Orders and sales of each region."""
    sums = orders.group_by("region").aggregate([("id", "count"), ("amount", "sum")]).sort_by("region")
    return sums.rename_columns(["region", "orders", "amount"])


@dg.asset_check(asset=BY_REGION, additional_ins={"orders": dg.AssetIn(ORDERS)})
def every_order_counts(by_region: pa.Table, orders: pa.Table) -> dg.AssetCheckResult:
    """Whether the regions have as many orders as the shop had when they were computed, or fewer."""
    counted = pc.sum(by_region["orders"]).as_py()
    return dg.AssetCheckResult(passed=0 < counted <= orders.num_rows, metadata={"counted": counted})


@dg.sensor(target=[BY_REGION], minimum_interval_seconds=5, default_status=dg.DefaultSensorStatus.RUNNING)
def new_orders(context: dg.SensorEvaluationContext) -> dg.SensorResult:
    """Start a run for what the change feed says of the orders since the last look, whoever wrote them.

    The cursor is the feed's position, and the run's key the last event's: Dagster starts one run for each key.
    """
    with duckicelake.connect(URI) as lake:
        page = lake.read_events("sales.orders", after=context.cursor, kinds=["append", "overwrite", "delete"])
    return dg.SensorResult(
        run_requests=[dg.RunRequest(run_key=event.position) for event in page.events[-1:]],
        asset_events=[
            dg.AssetMaterialization(ORDERS, metadata={"position": event.position, "source": event.source})
            for event in page.events
        ],
        cursor=page.position,
    )


definitions = dg.Definitions(
    assets=[dg.AssetSpec(ORDERS), by_region],
    asset_checks=[every_order_counts],
    sensors=[new_orders],
    resources={"io_manager": LakeIOManager()},
    executor=dg.in_process_executor,
)
