"""The service: verdicts behind a request, bounded in time and memory, and honest under load."""
