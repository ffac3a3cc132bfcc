"""Other people's software: diffusers, and the tools that take lists of sigmas."""
