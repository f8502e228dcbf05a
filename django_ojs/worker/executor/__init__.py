"""The child processes in which handlers run."""
