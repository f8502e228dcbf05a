"""Two at once, step by step: every operation stopped at every point while another one runs."""
