"""What user code imports: ``@job``, the context of a running job, the exceptions."""
