"""Schedules: which are declared, when they are due, and the jobs that they enqueue (OJS cron)."""
