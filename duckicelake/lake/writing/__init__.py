"""ChangeSets become rows, by DuckLake's commit protocol."""
