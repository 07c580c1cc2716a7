"""Which files a scan reads: filters bound to columns, decided by partitions and bounds, and tasks as JSON."""
