"""The pictures of a report in docs: `geosprint demo -o out/demo`, then this with its page.

python -m benchmarks.screenshots out/demo/report.html    needs chromium and chromedriver (`make browser`)
"""

from __future__ import annotations

import base64
import io
import os
import shutil
import sys
from pathlib import Path

from PIL import Image
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.support.ui import WebDriverWait

DOCS = Path(__file__).parent.parent / "docs"
COLOURS = 255  # of the palette: text and lines need few
DESK = {"width": 1100, "height": 1330, "deviceScaleFactor": 1, "mobile": False}
PHONE = {"width": 390, "height": 1260, "deviceScaleFactor": 1.5, "mobile": True}


def browser() -> webdriver.Chrome:
    options = webdriver.ChromeOptions()
    options.binary_location = str(shutil.which("chromium"))
    for flag in ("--headless=new", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"):
        options.add_argument(flag)
    if os.geteuid() == 0:
        options.add_argument("--no-sandbox")
    return webdriver.Chrome(options=options, service=Service(str(shutil.which("chromedriver"))))


def picture(opened: webdriver.Chrome, page: Path, screen: dict[str, object], theme: str, out: Path) -> Path:
    opened.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
    wishes = [{"name": "prefers-color-scheme", "value": theme}]
    opened.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": wishes})
    opened.get(page.resolve().as_uri())
    WebDriverWait(opened, 60).until(lambda b: b.execute_script("return document.documentElement.dataset.ready"))
    shot = base64.b64decode(opened.execute_cdp_cmd("Page.captureScreenshot", {})["data"])
    few = Image.open(io.BytesIO(shot)).convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
    few.save(out, optimize=True)
    return out


def main() -> None:
    page, opened = Path(sys.argv[1]), browser()
    try:
        print(picture(opened, page, DESK, "light", DOCS / "report-desktop.png"))
        print(picture(opened, page, PHONE, "dark", DOCS / "report-phone.png"))
    finally:
        opened.quit()


if __name__ == "__main__":
    main()
