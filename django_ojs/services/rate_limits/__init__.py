"""Rate limits: which jobs are held, and when they are let in (OJS rate limiting)."""
