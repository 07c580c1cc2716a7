"""A lake that keeps itself: a queue of tasks in Postgres, a planner that fills it, and workers that empty it."""
