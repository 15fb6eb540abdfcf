"""One pass over the data: tiles, statistics, the merge tree and its checkpoints, and the memory that it takes."""
