"""Headless Chromium, for pages that must work in a real browser."""

import shutil
from contextlib import contextmanager

import pytest

OPTIONS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage",
    # a microphone that plays a file, for pages that ask for one
    "--use-fake-ui-for-media-stream", "--use-fake-device-for-media-stream",
)  # fmt: skip


@contextmanager
def open_browser(folder, *options):
    """Start Chromium with a new profile in `folder`; skip the test where it is not installed."""
    programs = {"chromium": shutil.which("chromium"), "chromedriver": shutil.which("chromedriver")}
    for name, path in programs.items():
        if path is None:
            pytest.skip(f"{name} is not installed")
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    settings = webdriver.ChromeOptions()
    settings.binary_location = programs["chromium"]
    settings.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    for option in (*OPTIONS, f"--user-data-dir={folder}", *options):
        settings.add_argument(option)
    browser = webdriver.Chrome(settings, webdriver.ChromeService(programs["chromedriver"]))
    try:
        browser.set_script_timeout(20)
        yield browser
    finally:
        browser.quit()


def set_size(browser, width, height, *, dark=False):
    """Give the page the size and the colours of a device."""
    metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    theme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": theme})


def wait_for(browser, condition):
    """Wait until a condition in JavaScript is true, and return its value."""
    support = pytest.importorskip("selenium.webdriver.support.wait")
    return support.WebDriverWait(browser, 20, poll_frequency=0.02).until(
        lambda driver: driver.execute_script(f"return {condition}")
    )
