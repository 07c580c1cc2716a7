"""The HTTP API of lineage: its routes, who may use them, and the bodies that they take."""

from collections.abc import Mapping
from typing import Final

from duckicelake.lineage import intake_routes, marquez_routes, routes
from duckicelake.lineage.events.received import OpenLineageEvent, OpenLineageEvents
from duckicelake.server.auth.permissions import AnyToken, Need, Public
from duckicelake.server.hooks import FeatureRoutes

_NEEDS: Final[Mapping[tuple[str, str], Need]] = {
    ("GET", "/ui/lineage"): Public(),
    ("HEAD", "/ui/lineage"): Public(),
    ("GET", "/lineage/v1/graph"): AnyToken(),
    ("GET", "/lineage/v1/export"): AnyToken(),
    ("GET", "/lineage/v1/datasets"): AnyToken(),
    ("GET", "/lineage/v1/runs/{run}"): AnyToken(),
    ("GET", "/lineage/v1/facets/{facet}.json"): Public(),
    ("POST", "/api/v1/lineage"): AnyToken(),
    ("POST", "/api/v1/lineage/batch"): AnyToken(),
    ("GET", "/api/v1/namespaces"): AnyToken(),
    ("GET", "/api/v1/namespaces/{space}/datasets"): AnyToken(),
    ("GET", "/api/v1/namespaces/{space}/datasets/{dataset}"): AnyToken(),
    ("GET", "/api/v1/namespaces/{space}/datasets/{dataset}/versions"): AnyToken(),
    ("GET", "/api/v1/jobs"): AnyToken(),
    ("GET", "/api/v1/namespaces/{space}/jobs"): AnyToken(),
    ("GET", "/api/v1/namespaces/{space}/jobs/{job}"): AnyToken(),
    ("GET", "/api/v1/namespaces/{space}/jobs/{job}/runs"): AnyToken(),
    ("GET", "/api/v1/jobs/runs/{run}"): AnyToken(),
    ("GET", "/api/v1/jobs/runs/{run}/facets"): AnyToken(),
    ("GET", "/api/v1/lineage"): AnyToken(),
    ("GET", "/api/v1/lineage/"): AnyToken(),
    ("GET", "/api/v1/column-lineage"): AnyToken(),
    ("GET", "/api/v1/events/lineage"): AnyToken(),
    ("GET", "/api/v1/search"): AnyToken(),
    ("GET", "/api/v1/search/"): AnyToken(),
    ("GET", "/api/v1/tags"): AnyToken(),
    ("GET", "/api/v1/stats/lineage-events"): AnyToken(),
    ("GET", "/api/v1/stats/{counted}"): AnyToken(),
}
"""Answers hold what their reader may read. Of a received event, the right to each of its datasets is checked."""

ROUTES: Final = FeatureRoutes(
    (routes.router, intake_routes.router, marquez_routes.router, routes.page_router),
    _NEEDS,
    (OpenLineageEvent, OpenLineageEvents),
)
