"""`python -m vitral` is `vitral`."""

from vitral.cli import main

main()
