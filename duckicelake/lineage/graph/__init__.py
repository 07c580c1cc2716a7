"""The graph of datasets, jobs and runs: written from events, read as far as the caller may."""
