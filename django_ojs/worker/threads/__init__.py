"""The other threads of ``runworker`` and ``reap_timeouts``, each with a connection of its own."""
