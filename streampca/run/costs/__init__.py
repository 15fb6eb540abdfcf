"""What a run of a configuration would cost: memory of each process, bytes read and sent, and seconds."""

from streampca.run.costs.planning import planned

__all__ = ["planned"]
