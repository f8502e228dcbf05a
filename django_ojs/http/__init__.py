"""The HTTP binding of Open Job Spec (OJS HTTP binding 1.0), on Django REST framework."""
