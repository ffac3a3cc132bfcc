"""`python -m geosprint.cli` is `geosprint`."""

from geosprint.cli import main

main()
