"""What others are told of jobs: logs, traces, errors. Each module imports its library itself."""
