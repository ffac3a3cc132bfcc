"""The HTML page, the figures and the text in the terminal."""
