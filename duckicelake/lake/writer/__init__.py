"""Write change sets by DuckLake's commit protocol."""
