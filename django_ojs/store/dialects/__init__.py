"""What the databases spell differently, a module a family."""
