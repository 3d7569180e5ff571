"""The page in a real browser: Debian's headless Chromium, driven by selenium. Fixtures and steps of the test_page files."""

import shutil
import time

import pytest

from page_server import PageServer

NEEDS_BROWSER = [pytest.mark.slow, pytest.mark.skipif(not shutil.which("chromedriver"), reason="needs chromium and chromium-driver")]


@pytest.fixture(scope="module")
def browser():
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--window-size=1200,800",
                     "--host-resolver-rules=MAP plain.test 127.0.0.1",
                     "--force-prefers-reduced-motion"):  # animated elements would be clicked at their old place
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    options.binary_location = shutil.which("chromium")
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))
    driver.set_script_timeout(20)
    yield driver
    driver.quit()


@pytest.fixture
def server():
    server = PageServer()
    yield server
    server.close()


@pytest.fixture
def page(browser, server):
    browser.get(server.url)
    wait(lambda: browser.find_element("id", "model").text == "test-model")
    yield browser
    severe = [entry["message"] for entry in browser.get_log("browser") if entry["level"] == "SEVERE"]
    browser.execute_script("localStorage.clear(); sessionStorage.clear()")
    browser.set_window_size(1200, 800)
    assert not severe, severe


def wait(condition, seconds=20):
    """What the condition returns as soon as it holds. Texts of a page that may still change are read inside of it."""
    from selenium.common.exceptions import ElementClickInterceptedException, ElementNotInteractableException, StaleElementReferenceException

    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            if found := condition():
                return found
        except (ElementClickInterceptedException, ElementNotInteractableException, StaleElementReferenceException):
            pass  # the page redrew the element meanwhile, or does not show it yet
        time.sleep(0.05)
    raise AssertionError("waited in vain")


def click(page, selector):
    wait(lambda: page.find_element("css selector", selector).click() is None)


def write(page, selector, *keys):
    wait(lambda: page.find_element("css selector", selector).send_keys(*keys) is None)


def ask(page, text):
    from selenium.webdriver.common.keys import Keys

    write(page, "#prompt", text, Keys.ENTER)


def settled(page):
    wait(lambda: page.find_element("id", "send").is_displayed())


def messages(page):
    return page.find_elements("css selector", "article.message")


def press(page, number, name):
    """The button of a message."""
    buttons = lambda: messages(page)[number].find_elements("css selector", ".actions button")
    wait(lambda: next(b for b in buttons() if b.get_attribute("textContent") == name).click() is None)


def titles(page):
    return [t.text for t in page.find_elements("css selector", "#conversations .title")]


def bodies(page):
    return [m.find_element("css selector", ".body").text for m in messages(page)]


def new_tab(page, server):
    page.switch_to.new_window("tab")
    page.get(server.url)
    wait(lambda: page.find_element("id", "model").text == "test-model")


@pytest.fixture
def two_tabs(page, server):
    first = page.current_window_handle
    new_tab(page, server)
    second = page.current_window_handle
    yield lambda n: page.switch_to.window((first, second)[n])
    page.switch_to.window(second)
    page.close()
    page.switch_to.window(first)
