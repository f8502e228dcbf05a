"""The rules of Open Job Spec: pure functions and values, no database, no clock, no dice."""
