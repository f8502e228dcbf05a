"""The main thread of ``runworker``: it claims, hands out, stops and reports jobs, and never waits."""
