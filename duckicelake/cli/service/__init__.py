"""The server as processes: its socket, its workers, and the threads beside its requests."""
