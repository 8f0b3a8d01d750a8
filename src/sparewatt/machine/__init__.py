"""What any process needs of its host: data directory, file lock, signals, child processes and their logs.

Every process started here dies with the process that started it, and is signalled only by its own pid. The package
knows nothing of what its children do.
"""
