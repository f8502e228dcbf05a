"""``make failover``: replicated servers of our own lose the one that is written to, under load."""
