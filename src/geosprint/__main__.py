"""`geosprint`, and `python -m geosprint`: from the first moment on, a signal ends them with one line."""

import signal

from geosprint.runs.signals import handle_signals, stop_at_once


def main() -> None:
    """The command line, which takes a while to import; what has ended is not stopped any more."""
    handle_signals(stop_at_once)
    try:
        from geosprint.cli import main as run

        run()
    finally:
        handle_signals(signal.SIG_IGN)


if __name__ == "__main__":
    main()
