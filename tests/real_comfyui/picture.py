"""The example workflow as ComfyUI's front end draws it: docs/comfyui.png.

python tests/real_comfyui/picture.py COMFYUI_DIRECTORY PYTHON_OF_COMFYUI
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

from PIL import Image
from run import LATE, PORT, ROOT, exact_model, get, made_by, running
from selenium import webdriver
from selenium.webdriver.chrome.service import Service

WORKFLOW = ROOT / "comfyui" / "example_workflows" / "geosprint.json"
QUIET = {"Comfy.TutorialCompleted": True, "Comfy.Minimap.Visible": False, "Comfy.UseNewMenu": "Disabled"}
SHOW = """
const done = arguments[arguments.length - 1];
app.loadGraphData(arguments[0]).then(() => {
  app.canvas.ds.scale = 1;
  app.canvas.ds.offset = [20, 50];
  app.canvas.draw(true, true);
  setTimeout(done, 1500);
});
"""


def main(comfyui: Path, python: str) -> None:
    """Drag the workflow in, and keep what is seen of it."""
    steps, checkpoint = (comfyui / "models" / name for name in ("geosprint/sd15.json", "checkpoints/sd15.safetensors"))
    steps.parent.mkdir(exist_ok=True)
    made_by(exact_model("vp"), LATE, "ddim").save(steps)
    checkpoint.touch()  # a name to pick; nothing is loaded
    options = webdriver.ChromeOptions()
    for word in ("headless=new", "no-sandbox", "window-size=1660,780"):
        options.add_argument(f"--{word}")
    with running(comfyui, python):
        get("settings", QUIET)
        browser = webdriver.Chrome(options, Service("/usr/bin/chromedriver"))
        try:
            browser.get(f"http://127.0.0.1:{PORT}")
            while not browser.execute_script("return !!window.LiteGraph?.registered_node_types.GeoSprintSteps"):
                time.sleep(1)
            browser.execute_async_script(SHOW, json.loads(WORKFLOW.read_text()))
            picture = ROOT / "docs" / "comfyui.png"
            browser.save_screenshot(str(picture))
        finally:
            browser.quit()
    Image.open(picture).crop((0, 0, 1440, 500)).convert("P", palette=Image.Palette.ADAPTIVE).save(picture)


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve(), os.path.abspath(sys.argv[2]))
