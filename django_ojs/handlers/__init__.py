"""What user code imports: ``@job``, the context of a running job, what a handler may raise."""
