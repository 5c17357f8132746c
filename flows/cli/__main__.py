"""`python -m flows.cli`: the same as `dpmix`."""

from flows.cli import main

main()
