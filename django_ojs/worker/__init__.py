"""The worker: claims jobs, runs them in child processes, really kills what will not stop."""
