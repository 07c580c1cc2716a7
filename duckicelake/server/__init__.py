"""The HTTP server: routes, and the layers around them."""
