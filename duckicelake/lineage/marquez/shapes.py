"""JSON of Marquez's API, by its names."""

from datetime import datetime
from typing import Any

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel


class Shape(BaseModel):
    """An object of Marquez's: what is unknown is null, as its page wants it."""

    model_config = ConfigDict(frozen=True, alias_generator=to_camel, populate_by_name=True)


class MarquezName(Shape):
    """A dataset or job."""

    namespace: str
    name: str


class MarquezNamespace(Shape):
    """A namespace."""

    name: str
    created_at: datetime
    updated_at: datetime
    owner_name: str = "anonymous"
    description: str = ""
    is_hidden: bool = False


class MarquezNamespaces(Shape):
    """Namespaces."""

    namespaces: tuple[MarquezNamespace, ...]


class MarquezField(Shape):
    """A field of a dataset."""

    name: str
    type: str | None
    tags: tuple[str, ...] = ()
    description: str = ""


class MarquezInputField(Shape):
    """A field that another is made of."""

    namespace: str
    dataset: str
    field: str
    transformation_description: str | None
    transformation_type: str | None


class MarquezColumnLineage(Shape):
    """What a field is made of."""

    name: str
    input_fields: tuple[MarquezInputField, ...]
    transformation_description: str | None = None
    transformation_type: str | None = None


class MarquezDataset(Shape):
    """A dataset. physical_name: where it lies."""

    id: MarquezName
    type: str
    name: str
    physical_name: str
    created_at: datetime
    updated_at: datetime
    namespace: str
    source_name: str
    fields: tuple[MarquezField, ...]
    tags: tuple[str, ...] = ()
    last_modified_at: datetime | None
    last_lifecycle_state: str | None
    description: str
    facets: dict[str, Any]
    deleted: bool
    column_lineage: tuple[MarquezColumnLineage, ...] = ()


class MarquezDatasets(Shape):
    """Part of a list of datasets."""

    datasets: tuple[MarquezDataset, ...]
    total_count: int


class MarquezJobVersion(MarquezName):
    """A version of a job: there is one of each."""

    version: str


class MarquezRun(Shape):
    """A run."""

    id: str
    created_at: datetime
    updated_at: datetime
    nominal_start_time: str | None
    nominal_end_time: str | None
    state: str
    job_version: MarquezJobVersion
    started_at: datetime | None
    ended_at: datetime | None
    duration_ms: int | None
    args: dict[str, str] = {}
    facets: dict[str, Any]


class MarquezRuns(Shape):
    """Part of a list of runs."""

    runs: tuple[MarquezRun, ...]
    total_count: int


class MarquezJob(Shape):
    """A job with its newest run."""

    id: MarquezName
    type: str
    name: str
    simple_name: str
    parent_job_name: str | None = None
    parent_job_uuid: str | None = None
    created_at: datetime
    updated_at: datetime
    namespace: str
    inputs: tuple[MarquezName, ...]
    outputs: tuple[MarquezName, ...]
    location: str | None
    description: str
    latest_run: MarquezRun | None
    latest_runs: tuple[MarquezRun, ...]
    tags: tuple[str, ...] = ()
    facets: dict[str, Any]


class MarquezJobs(Shape):
    """Part of a list of jobs."""

    jobs: tuple[MarquezJob, ...]
    total_count: int


class MarquezDatasetVersionId(MarquezName):
    """A version of a dataset."""

    version: str


class MarquezDatasetVersion(Shape):
    """What a run made of a dataset."""

    id: MarquezDatasetVersionId
    type: str
    created_by_run: MarquezRun | None
    name: str
    physical_name: str
    created_at: datetime
    version: str
    namespace: str
    source_name: str
    fields: tuple[MarquezField, ...]
    tags: tuple[str, ...] = ()
    last_modified_at: datetime
    description: str
    lifecycle_state: str | None
    facets: dict[str, Any]


class MarquezDatasetVersions(Shape):
    """Part of a list of versions."""

    versions: tuple[MarquezDatasetVersion, ...]
    total_count: int


class MarquezEvents(Shape):
    """Part of a list of events of OpenLineage."""

    events: tuple[dict[str, Any], ...]
    total_count: int


class MarquezFacets(Shape):
    """The facets of a run, or of its job."""

    run_id: str
    facets: dict[str, Any]


class MarquezResult(MarquezName):
    """Something that was sought."""

    node_id: str
    type: str
    updated_at: datetime


class MarquezSearch(Shape):
    """What was found."""

    total_count: int
    results: tuple[MarquezResult, ...]


class MarquezTags(Shape):
    """Tags, of which this catalog has none."""

    tags: tuple[dict[str, str], ...] = ()


class MarquezMetric(Shape):
    """How many events of each type there were in an interval."""

    start_interval: datetime
    end_interval: datetime
    fail: int
    start: int
    complete: int
    abort: int


class MarquezCount(Shape):
    """How many there were at the end of an interval."""

    start_interval: datetime
    end_interval: datetime
    count: int


class MarquezEdge(Shape):
    """From node to node."""

    origin: str
    destination: str


class MarquezNode(Shape):
    """A dataset, a job or a field, with what leads to it and from it."""

    id: str
    type: str
    data: MarquezDataset | MarquezJob | dict[str, Any]
    in_edges: tuple[MarquezEdge, ...]
    out_edges: tuple[MarquezEdge, ...]


class MarquezGraph(Shape):
    """A graph."""

    graph: tuple[MarquezNode, ...]
