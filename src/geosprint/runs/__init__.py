"""Long work: what is kept on disk, how processes share it, how far it is."""
