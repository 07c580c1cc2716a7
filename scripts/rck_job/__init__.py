"""Runs Iceberg's REST Compatibility Kit, which is called and never copied."""
