"""The tables of lineage: events, datasets, jobs, runs, and who may know of which."""
