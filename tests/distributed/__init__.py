"""What distributed SQL does to its clients, on PostgreSQL: see :mod:`tests.distributed.engine.base`."""
