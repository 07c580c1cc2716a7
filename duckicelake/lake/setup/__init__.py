"""Create, adopt, migrate and identify a lake."""
