"""Tables of other catalogs: brought into the lake, and given up to them."""
