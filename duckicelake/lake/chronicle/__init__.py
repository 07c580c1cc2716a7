"""The chronicle's rows, and what is read of the lake to write them."""
