"""The page in a real browser: Debian's Chromium without a screen, driven by selenium."""

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
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--window-size=1200,800"):
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
    from selenium.common.exceptions import StaleElementReferenceException

    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            if condition():
                return
        except StaleElementReferenceException:  # the page drew it anew meanwhile
            pass
        time.sleep(0.05)
    raise AssertionError("waited in vain")


def ask(page, text):
    from selenium.webdriver.common.keys import Keys

    box = page.find_element("id", "prompt")
    box.send_keys(text)
    box.send_keys(Keys.ENTER)


def settled(page):
    wait(lambda: page.find_element("id", "send").is_displayed())


def messages(page):
    return page.find_elements("css selector", "article.message")


def press(page, message, name):
    next(b for b in message.find_elements("css selector", ".actions button") if b.text == name or b.get_attribute("textContent") == name).click()


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
    # Nothing inline may run, whoever put it there.
    page.execute_script("const s = document.createElement('script'); s.textContent = 'window.hacked = 5'; document.body.append(s)")
    assert page.execute_script("return window.hacked") is None
    page.get_log("browser")  # the refusals of the last lines


def test_stop_ends_the_stream(page, server):
    server.answer = ["word "] * 400
    server.pause = 0.05
    ask(page, "Long")
    wait(lambda: len(messages(page)) == 2 and "word" in messages(page)[1].text)
    page.find_element("id", "stop").click()
    settled(page)
    assert "stopped" in messages(page)[1].text
    wait(lambda: server.left_early == 1)


def test_regenerate_and_edit(page, server):
    ask(page, "First")
    settled(page)
    server.answer = ["Another"]
    press(page, messages(page)[1], "Regenerate")
    wait(lambda: "Another" in messages(page)[-1].text)
    settled(page)
    assert len(messages(page)) == 2
    press(page, messages(page)[0], "Edit")
    box = page.find_element("css selector", "textarea.edit")
    box.clear()
    box.send_keys("Changed")
    press(page, messages(page)[0], "Send again")
    settled(page)
    assert server.requests[-1]["messages"][-1]["content"] == "Changed"
    assert len(messages(page)) == 2


def test_conversations_are_kept(page, server):
    ask(page, "Remember this")
    settled(page)
    page.refresh()
    wait(lambda: page.find_elements("css selector", "#conversations .title"))
    page.find_element("css selector", "#conversations .title").click()
    assert "Remember this" in messages(page)[0].text
    page.find_element("css selector", "#conversations .delete").click()
    wait(lambda: not page.find_elements("css selector", "#conversations li"))


def test_system_prompt_and_parameters(page, server):
    page.find_element("id", "open-settings").click()
    page.find_element("id", "system").send_keys("Be brief.")
    page.find_element("id", "temperature").send_keys("0.5")
    page.find_element("css selector", "#settings button.primary").click()
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
    page.find_element("id", "open-engine").click()
    wait(lambda: page.find_elements("css selector", "#engine-view table"))
    text = page.find_element("id", "engine-view").text
    for part in ("41.5", "25 %", "<b>ann</b>", "gemv_sdot", "83 %"):
        assert part in text, (part, text)
    page.find_element("css selector", "#engine .dialog-head button").click()


def test_light_and_dark(page, server):
    before = page.execute_script("return getComputedStyle(document.body).backgroundColor")
    page.find_element("id", "theme").click()
    assert page.execute_script("return getComputedStyle(document.body).backgroundColor") != before


def test_phone(page, server):
    page.set_window_size(390, 800)
    assert page.execute_script("return document.documentElement.scrollWidth <= innerWidth")
    assert not page.find_element("id", "new-chat").is_displayed() or page.find_element("id", "new-chat").location["x"] < 0
    page.find_element("id", "open-sidebar").click()
    wait(lambda: page.execute_script("""  // it slides in
        const button = document.getElementById('close-sidebar'), box = button.getBoundingClientRect();
        return button.contains(document.elementFromPoint(box.x + box.width / 2, box.y + box.height / 2));"""))
    page.find_element("id", "close-sidebar").click()
    ask(page, "On the phone")
    settled(page)
    assert len(messages(page)) == 2


def test_keyboard_and_screen_readers(page, server):
    from selenium.webdriver.common.keys import Keys

    assert page.switch_to.active_element.get_attribute("id") == "prompt"
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
    assert page.switch_to.active_element.get_attribute("class") == "edit"
    page.switch_to.active_element.send_keys(Keys.ESCAPE)
    assert not page.find_elements("css selector", "textarea.edit")


def test_against_the_real_server(browser, tiny_chat):
    """The page, the API and the engine together, on a screen of a phone's width and by keyboard alone."""
    from selenium.webdriver.common.keys import Keys
    from serving import Server

    with Server(tiny_chat, "--served-model-name", "tiny") as server:
        browser.set_window_size(390, 800)
        browser.get(server.url)
        wait(lambda: browser.find_element("id", "model").text == "tiny")
        assert browser.execute_script("return document.documentElement.scrollWidth <= innerWidth")
        browser.switch_to.active_element.send_keys("Hello", Keys.ENTER)
        wait(lambda: len(messages(browser)) == 2 and messages(browser)[1].find_element("css selector", ".markdown").text)
        if not browser.find_element("id", "send").is_displayed():
            browser.find_element("id", "stop").click()
        settled(browser)
        assert server.until(lambda: server.metric("vllm:num_requests_running") == 0), "stopping reaches the engine"
        browser.set_window_size(1200, 800)
        browser.find_element("id", "open-engine").click()
        wait(lambda: browser.find_elements("css selector", "#engine-view table"))
        shown = browser.find_element("id", "engine-view").text
        assert "%" in shown and "linear" in shown.lower(), shown
        browser.find_element("css selector", "#engine .dialog-head button").click()
        assert not [entry["message"] for entry in browser.get_log("browser") if entry["level"] == "SEVERE"]
        browser.execute_script("localStorage.clear(); sessionStorage.clear()")
