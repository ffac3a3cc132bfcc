"""A miniature Stable Diffusion pipeline of drawn scenes."""
