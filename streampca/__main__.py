"""`python -m streampca` is the command `streampca`."""

from streampca.cli import main

main()
