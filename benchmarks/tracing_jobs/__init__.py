"""An app with the jobs of :mod:`benchmarks.tracing`."""
