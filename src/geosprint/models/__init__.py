"""Things that can be denoised here."""
