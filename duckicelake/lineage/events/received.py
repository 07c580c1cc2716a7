"""Validate OpenLineage events of other tools, as far as the graph is made of them."""

from typing import Annotated, Any, Final, Literal, Self
from uuid import UUID

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, RootModel, model_validator

from duckicelake.lineage.graph.parsed_event import parse_time

MAX_DATASETS: Final = 2000
MAX_COLUMNS: Final = 50_000
MAX_EDGES: Final = 50_000
MAX_NAME_CHARS: Final = 8000
_MAX_TEXT_CHARS: Final = 4000


def _is_time(text: str) -> str:
    try:
        parse_time(text)
    except (ValueError, OverflowError):
        raise ValueError("is not a time, as 2026-05-01T12:00:00Z") from None
    return text


Text = Annotated[str, Field(min_length=1, max_length=MAX_NAME_CHARS)]
Time = Annotated[str, AfterValidator(_is_time)]
Confidence = Annotated[float, Field(ge=0, le=1)]
Facet = dict[str, Any]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="allow")


class Identifier(_Part):
    """The name of a dataset."""

    namespace: Text
    name: Text


class Symlink(Identifier):
    """Another name of a dataset."""

    type: str | None = None


class Symlinks(_Part):
    """Other names of a dataset."""

    identifiers: tuple[Symlink, ...] | None = None


class LifecycleStateChange(_Part):
    """The change of a dataset's lifecycle."""

    lifecycleStateChange: Literal["ALTER", "CREATE", "DROP", "OVERWRITE", "RENAME", "TRUNCATE"]  # noqa: N815
    previousIdentifier: Identifier | None = None  # noqa: N815


class Version(_Part):
    """The version of a dataset."""

    datasetVersion: Annotated[str, Field(max_length=MAX_NAME_CHARS)]  # noqa: N815


class SchemaField(_Part):
    """A field of a dataset."""

    name: str


class SchemaFacet(_Part):
    """The fields of a dataset."""

    fields: tuple[SchemaField, ...] | None = None


class Transformation(_Part):
    """A transformation of a field."""

    type: Literal["DIRECT", "INDIRECT"]
    subtype: Annotated[str, Field(max_length=_MAX_TEXT_CHARS)] | None = None
    description: str | None = None
    masking: bool | None = None


class InputField(Identifier):
    """A field that another is made of."""

    field: Annotated[str, Field(max_length=MAX_NAME_CHARS)]
    transformations: tuple[Transformation, ...] | None = None


class OutputField(_Part):
    """The sources of a field."""

    inputFields: tuple[InputField, ...]  # noqa: N815
    transformationType: Annotated[str, Field(max_length=_MAX_TEXT_CHARS)] | None = None  # noqa: N815


class ColumnLineage(_Part):
    """The sources of a dataset's fields."""

    fields: dict[Annotated[str, Field(max_length=MAX_NAME_CHARS)], OutputField]
    dataset: tuple[InputField, ...] | None = None


class InferredColumn(_Part):
    """The confidence that a field, or all rows (none), come from another."""

    output: str | None = None
    input: InputField
    confidence: Confidence


class Inferred(_Part):
    """A confidence, from 0 to 1."""

    confidence: Confidence = 0.5
    columns: tuple[InferredColumn, ...] | None = None


class _Facets(BaseModel):
    """Facets by name. Facets that the graph doesn't use must only be objects."""

    model_config = ConfigDict(frozen=True, extra="allow")
    __pydantic_extra__: dict[str, Facet]

    duckicelake_inferred: Inferred | None = None


class DatasetFacets(_Facets):
    """Facets that an event has of a dataset."""

    symlinks: Symlinks | None = None
    lifecycleStateChange: LifecycleStateChange | None = None  # noqa: N815
    version: Version | None = None
    schema_: Annotated[SchemaFacet | None, Field(alias="schema")] = None
    datasetType: Facet | None = None  # noqa: N815
    columnLineage: ColumnLineage | None = None  # noqa: N815


class DatasetPart(Identifier):
    """An input, an output, or the dataset of a dataset event."""

    facets: DatasetFacets | None = None
    inputFacets: _Facets | None = None  # noqa: N815
    outputFacets: _Facets | None = None  # noqa: N815


class RunPart(_Part):
    """A run."""

    runId: UUID  # noqa: N815
    facets: _Facets | None = None


class JobPart(Identifier):
    """A job."""

    facets: _Facets | None = None


Datasets = Annotated[tuple[DatasetPart, ...], Field(max_length=MAX_DATASETS)]


class OpenLineageEvent(_Part):
    """A run event (with run and job), a job event (with job) or a dataset event (with dataset)."""

    eventTime: Time  # noqa: N815
    producer: Text
    schemaURL: Text  # noqa: N815
    eventType: Literal["START", "RUNNING", "COMPLETE", "ABORT", "FAIL", "OTHER"] | None = None  # noqa: N815
    run: RunPart | None = None
    job: JobPart | None = None
    dataset: DatasetPart | None = None
    inputs: Datasets | None = None
    outputs: Datasets | None = None

    @model_validator(mode="after")
    def _is_one_of_three(self) -> Self:
        if self.dataset is not None and (self.run is not None or self.job is not None):
            raise ValueError("has a dataset besides a run or job: send one of them")
        if self.run is not None and self.job is None:
            raise ValueError("has a run, but no job")
        if self.run is None and self.job is None and self.dataset is None:
            raise ValueError("has no run, job or dataset: an event needs one of them")
        if sum(map(_count_columns, self._all())) > MAX_COLUMNS:
            raise ValueError(f"has more than {MAX_COLUMNS} source fields of columns")
        if len(self.inputs or ()) * len(self.outputs or ()) > MAX_EDGES:
            raise ValueError(f"has inputs and outputs with more than {MAX_EDGES} edges between them")
        return self

    def _all(self) -> tuple[DatasetPart, ...]:
        about = () if self.dataset is None else (self.dataset,)
        return (*(self.inputs or ()), *(self.outputs or ()), *about)


class OpenLineageEvents(RootModel[tuple[OpenLineageEvent, ...]]):
    """A batch of events."""


def _count_columns(dataset: DatasetPart) -> int:
    lineage = dataset.facets.columnLineage if dataset.facets is not None else None
    if lineage is None:
        return 0
    return len(lineage.dataset or ()) + sum(len(field.inputFields) for field in lineage.fields.values())
