"""Long work in parts: kept on disk as soon as they are done, and shared out among processes."""
