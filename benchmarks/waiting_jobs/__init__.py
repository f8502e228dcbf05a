"""An app with the jobs of :mod:`benchmarks.tracing` and :mod:`benchmarks.coroutines`."""
