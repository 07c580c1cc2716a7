"""Optional features of the package: which are installed, and what each adds to the core."""
