"""The verbs: what clients, workers and operators ask for. Every verb takes many."""
