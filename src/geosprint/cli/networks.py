"""The verb about the networks in the box: models."""

from __future__ import annotations

from geosprint.cli.options import Json
from geosprint.cli.running import tell


def models(as_json: Json = False) -> None:
    """List the models in the box."""
    from geosprint.models.registry import models_in_the_box
    from geosprint.report.terminal import show_table

    rows = list(models_in_the_box().items())
    content = [{"name": name, "description": text} for name, text in rows]
    tell(as_json, content, lambda: show_table(("model", "what it is"), rows))
