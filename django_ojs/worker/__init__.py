"""What ``runworker`` is made of, a room per process or thread."""
