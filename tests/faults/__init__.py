"""What can go wrong, injected: the catalogue of faults, and the count of what was tried and held."""
