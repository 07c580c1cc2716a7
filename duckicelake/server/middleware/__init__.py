"""ASGI layers around the routes: log, limits, audit, traces, browsers."""
