"""PURE. OpenLineage's vocabulary: names, facets, jobs and runs, built from changes of the catalog."""
