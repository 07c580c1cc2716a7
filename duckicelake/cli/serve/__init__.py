"""The server as processes: socket, workers, background tasks."""
