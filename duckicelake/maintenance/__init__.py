"""Policies of tables' upkeep, and what they make due: one planner for the server and for Spark's pipeline."""
