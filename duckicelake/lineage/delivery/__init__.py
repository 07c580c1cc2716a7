"""Deliver lineage events to receivers: HTTP, files, console and Kafka, from an outbox in Postgres."""
