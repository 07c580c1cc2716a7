"""Delta tables: imported and followed over their own files, and Delta logs beside tables of the lake."""
