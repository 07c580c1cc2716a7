-- Views as Iceberg clients see them; what DuckDB sees of them is in ducklake_view. Where that differs from what is kept
-- of it here, DuckDB has changed the view since.
CREATE TABLE duckicelake_view (
    view_id           bigint PRIMARY KEY,  -- DuckLake's; when DuckDB replaces a view it gets another, and so does the row
    version           bigint NOT NULL,     -- counts metadata versions
    metadata          json   NOT NULL,     -- ViewMetadata
    metadata_location text   NOT NULL,     -- where it is written
    dialect           text   NOT NULL,
    sql               text   NOT NULL,
    column_aliases    text   NOT NULL,
    comment           text
);

CREATE INDEX duckicelake_view_id ON ducklake_view (view_id);
