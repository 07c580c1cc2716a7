"""Object stores, the rules for locations, and keys and signatures for clients."""
