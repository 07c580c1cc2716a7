"""What every use case needs: services, caller, commit queue, caches, meter."""
