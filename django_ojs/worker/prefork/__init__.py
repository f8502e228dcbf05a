"""Starting, feeding and killing executors. Nothing here imports Django."""
