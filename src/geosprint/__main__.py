"""`geosprint`, and `python -m geosprint`: from the first moment on, a signal ends them with one line."""

from geosprint.runs.signals import handling_signals, stop_at_once


def main() -> None:
    """The command line, which takes a while to import."""
    with handling_signals(stop_at_once):
        from geosprint.cli import main as run

        run()


if __name__ == "__main__":
    main()
