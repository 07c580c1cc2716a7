"""What every layer needs of HTTP: errors, headers, paths, scope, route classes."""
