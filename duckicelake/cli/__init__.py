"""The `duckicelake` command: one module per command or small group of commands."""
