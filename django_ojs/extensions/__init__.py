"""Optional features that plug into the extension points of the core."""
