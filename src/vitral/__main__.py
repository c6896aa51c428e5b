"""`python -m vitral` is `vitral`."""

from vitral.app.terminal import main

main()
