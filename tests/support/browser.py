"""A real Chromium."""

import os
import shutil

from selenium import webdriver


def missing():
    """Return a sentence if there is no Chromium."""
    return "" if shutil.which("chromedriver") else "Chromium is not installed: apt-get install chromium chromium-driver"


def started():
    os.environ["SE_OFFLINE"] = "true"
    options = webdriver.ChromeOptions()
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--window-size=1280,900"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    return webdriver.Chrome(options, webdriver.ChromeService("/usr/bin/chromedriver"))
