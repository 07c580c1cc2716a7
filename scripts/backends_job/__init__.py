"""Postgres and MinIO as production has them, on this machine: for trying things out, and for tests."""
