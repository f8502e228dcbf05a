"""Logs, traces and errors, with the real libraries."""
