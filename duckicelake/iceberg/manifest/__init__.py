"""Manifests and manifest lists (table spec, "Manifests" and "Manifest Lists")."""
