"""The page in a real browser: Debian's headless Chromium, driven by selenium."""

import shutil
import time

import pytest

from page_server import PageServer

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not shutil.which("chromedriver"), reason="needs chromium and chromium-driver")]

HOSTILE = """<script>window.hacked = 1</script> <img src=x onerror="window.hacked = 2"> [x](javascript:window.hacked=3) [y](https://example.com/"onmouseover="z)

```html
<script>window.hacked = 4</script>
```
"""


@pytest.fixture(scope="module")
def browser():
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--window-size=1200,800",
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
    from selenium.common.exceptions import ElementClickInterceptedException, ElementNotInteractableException, StaleElementReferenceException

    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            if condition():
                return
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


def test_streams_an_answer_with_markdown(page, server):
    server.answer = ["# Ti", "tle\n\nSome **bo", "ld** and `code`.\n\n- one\n", "- two\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n```py", "thon\ndef f():\n    return 1\n```\n"]
    server.pause = 0.05
    ask(page, "Say something")
    settled(page)
    body = messages(page)[1].find_element("css selector", ".markdown")
    assert body.find_element("css selector", "h3").text == "Title"
    assert body.find_element("css selector", "strong").text == "bold"
    assert [li.text for li in body.find_elements("css selector", "li")] == ["one", "two"]
    assert body.find_element("css selector", "td").text == "1"
    assert body.find_element("css selector", "pre").text == "def f():\n    return 1"
    assert body.find_elements("css selector", "pre .hl-word")
    assert server.requests[-1]["messages"] == [{"role": "user", "content": "Say something"}]


def test_model_output_never_runs(page, server):
    server.answer = [HOSTILE]
    ask(page, "Attack")
    settled(page)
    time.sleep(0.3)
    assert page.execute_script("return window.hacked") is None
    body = messages(page)[1].find_element("css selector", ".markdown")
    assert not body.find_elements("css selector", "script, img, [onerror], [onmouseover]")
    assert all(a.get_attribute("href").startswith("https://example.com/") for a in body.find_elements("css selector", "a"))
    assert "<script>" in body.text
    # Inline scripts must not run, wherever they come from.
    page.execute_script("const s = document.createElement('script'); s.textContent = 'window.hacked = 5'; document.body.append(s)")
    assert page.execute_script("return window.hacked") is None
    page.get_log("browser")  # drops the refusals logged above


def test_stop_ends_the_stream(page, server):
    server.answer = ["word "] * 400
    server.pause = 0.05
    ask(page, "Long")
    wait(lambda: len(messages(page)) == 2 and "word" in messages(page)[1].text)
    click(page, "#stop")
    settled(page)
    assert "stopped" in messages(page)[1].text
    wait(lambda: server.left_early == 1)


def test_regenerate_and_edit(page, server):
    ask(page, "First")
    settled(page)
    server.answer = ["Another"]
    press(page, 1, "Regenerate")
    wait(lambda: "Another" in messages(page)[-1].text)
    settled(page)
    assert len(messages(page)) == 2
    press(page, 0, "Edit")
    box = page.find_element("css selector", "textarea.edit")
    box.clear()
    box.send_keys("Changed")
    press(page, 0, "Send again")
    settled(page)
    assert server.requests[-1]["messages"][-1]["content"] == "Changed"
    assert len(messages(page)) == 2


def test_conversations_are_kept(page, server):
    ask(page, "Remember this")
    settled(page)
    page.refresh()
    wait(lambda: page.find_elements("css selector", "#conversations .title"))
    click(page, "#conversations .title")
    wait(lambda: messages(page) and "Remember this" in messages(page)[0].text)
    click(page, "#conversations .delete")
    wait(lambda: not page.find_elements("css selector", "#conversations li"))


def test_system_prompt_and_parameters(page, server):
    click(page, "#open-settings")
    write(page, "#system", "Be brief.")
    write(page, "#temperature", "0.5")
    click(page, "#settings button.primary")
    ask(page, "Hi")
    settled(page)
    request = server.requests[-1]
    assert request["messages"][0] == {"role": "system", "content": "Be brief."}
    assert request["temperature"] == 0.5 and "top_p" not in request


def test_reasoning_is_apart(page, server):
    server.reasoning, server.answer = ["Let me ", "think"], ["Done"]
    ask(page, "Why?")
    settled(page)
    assert messages(page)[1].find_element("css selector", ".markdown").text == "Done"
    assert messages(page)[1].find_element("css selector", "details div").get_attribute("textContent") == "Let me think"


def test_live_view(page, server):
    click(page, "#open-engine")
    wait(lambda: page.find_elements("css selector", "#engine-view table"))
    text = page.find_element("id", "engine-view").text
    for part in ("41.5", "25 %", "<b>ann</b>", "gemv_sdot", "83 %"):
        assert part in text, (part, text)
    click(page, "#engine .dialog-head button")


def test_light_and_dark(page, server):
    before = page.execute_script("return getComputedStyle(document.body).backgroundColor")
    click(page, "#theme")
    wait(lambda: page.execute_script("return getComputedStyle(document.body).backgroundColor") != before)


def test_phone(page, server):
    page.set_window_size(390, 800)
    assert page.execute_script("return document.documentElement.scrollWidth <= innerWidth")
    assert not page.find_element("id", "new-chat").is_displayed() or page.find_element("id", "new-chat").location["x"] < 0
    click(page, "#open-sidebar")
    click(page, "#close-sidebar")
    ask(page, "On the phone")
    settled(page)
    assert len(messages(page)) == 2


def test_keyboard_and_screen_readers(page, server):
    from selenium.webdriver.common.keys import Keys

    wait(lambda: page.switch_to.active_element.get_attribute("id") == "prompt")
    unnamed = page.execute_script("""return [...document.querySelectorAll('button, input, textarea')].filter(e =>
        !(e.getAttribute('aria-label') || e.textContent.trim() || e.labels?.length)).map(e => e.outerHTML)""")
    assert not unnamed
    ask(page, "Hi")
    settled(page)
    wait(lambda: page.find_element("id", "status").get_attribute("textContent") == "Answer complete")
    box = page.find_element("id", "prompt")
    box.send_keys(Keys.SHIFT, Keys.ENTER)
    assert box.get_attribute("value") == "\n"
    box.send_keys(Keys.BACKSPACE, Keys.ARROW_UP)
    wait(lambda: page.switch_to.active_element.get_attribute("class") == "edit")
    page.switch_to.active_element.send_keys(Keys.ESCAPE)
    wait(lambda: not page.find_elements("css selector", "textarea.edit"))


def test_against_the_real_server(browser, tiny_chat):
    """Page, API and engine together, at a phone's screen width and by keyboard alone."""
    from selenium.webdriver.common.keys import Keys
    from serving import Server

    with Server(tiny_chat, "--served-model-name", "tiny") as server:
        browser.set_window_size(390, 800)
        browser.get(server.url)
        wait(lambda: browser.find_element("id", "model").text == "tiny")
        assert browser.execute_script("return document.documentElement.scrollWidth <= innerWidth")
        wait(lambda: browser.switch_to.active_element.get_attribute("id") == "prompt")
        browser.switch_to.active_element.send_keys("Hello", Keys.ENTER)
        wait(lambda: len(messages(browser)) == 2 and messages(browser)[1].find_element("css selector", ".markdown").text)
        # The answer may end before the button is pressed.
        wait(lambda: browser.find_element("id", "send").is_displayed() or browser.find_element("id", "stop").click())
        assert server.until(lambda: server.metric("vllm:num_requests_running") == 0), "stopping reaches the engine"
        browser.set_window_size(1200, 800)
        click(browser, "#open-engine")
        wait(lambda: browser.find_elements("css selector", "#engine-view table"))
        shown = browser.find_element("id", "engine-view").text
        assert "%" in shown and "linear" in shown.lower(), shown
        click(browser, "#engine .dialog-head button")
        assert not [entry["message"] for entry in browser.get_log("browser") if entry["level"] == "SEVERE"]
        browser.execute_script("localStorage.clear(); sessionStorage.clear()")
