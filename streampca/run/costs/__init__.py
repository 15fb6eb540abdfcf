"""Predicted costs of a run: memory of each process, bytes read and sent, and seconds."""
