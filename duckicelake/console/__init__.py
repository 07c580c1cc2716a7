"""The console: pages for people, which ask the routes that all clients have. Its source is in `console/`."""
