"""CHECK constraints: parse them, check commits and posted rows against them, and verify existing rows."""
