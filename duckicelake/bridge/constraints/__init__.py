"""PURE. CHECK constraints: their text, what they mean, and what a file's metrics say of them."""
