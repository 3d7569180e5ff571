"""The page: answers, settings, the live view, phones, keyboards, math."""

import time

import pytest

from page_steps import NEEDS_BROWSER, ask, browser, click, messages, page, press, server, settled, titles, wait, write  # noqa: F401

pytestmark = NEEDS_BROWSER

HOSTILE = """<script>window.hacked = 1</script> <img src=x onerror="window.hacked = 2"> [x](javascript:window.hacked=3) [y](https://example.com/"onmouseover="z)

```html
<script>window.hacked = 4</script>
```
"""


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
    assert server.requests[-1]["input"] == [{"role": "user", "content": "Say something"}]


def test_tables_and_tasks(page, server):
    notes = "many words that a narrow screen would stack one upon another"
    server.answer = [f"| model | rate | kind |\n|---|--:|:-:|\n| quantized | 824 | {notes} |\n\n- [ ] open\n- [x] done\n- [y] text\n"]
    page.set_window_size(390, 844)
    ask(page, "A table")
    settled(page)
    body = messages(page)[1].find_element("css selector", ".markdown")
    cells = body.find_elements("css selector", "td")
    assert [c.value_of_css_property("text-align") for c in cells] == ["left", "right", "center"]
    one_line = body.find_element("css selector", "th").size["height"]
    assert cells[0].size["width"] > 70, "a word is not cut"
    assert cells[0].size["height"] < 4 * one_line, "the table scrolls instead of growing tall"
    assert page.execute_script("return document.documentElement.scrollWidth <= innerWidth")
    assert [li.text for li in body.find_elements("css selector", "li")] == ["☐ open", "☑ done", "[y] text"]


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
    wait(lambda: "stopped" in messages(page)[1].text)
    assert server.cancelled == 1


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
    assert server.requests[-1]["input"] == [{"role": "user", "content": "Changed"}]
    assert len(messages(page)) == 2


def test_conversations_are_kept(page, server):
    ask(page, "Remember this")
    settled(page)
    page.refresh()
    wait(lambda: messages(page) and "Remember this" in messages(page)[0].text)  # the one that was shown
    click(page, "#new-chat")
    wait(lambda: not messages(page))
    click(page, "#conversations .title")
    wait(lambda: messages(page) and "Remember this" in messages(page)[0].text)


def test_system_prompt_and_parameters(page, server):
    click(page, "#open-settings")
    write(page, "#system", "Be brief.")
    write(page, "#temperature", "0.5")
    click(page, "#settings button.primary")
    ask(page, "Hi")
    settled(page)
    request = server.requests[-1]
    assert request["instructions"] == "Be brief."
    assert request["temperature"] == 0.5 and "top_p" not in request


def test_reasoning_is_apart(page, server):
    server.reasoning, server.answer = ["Let me ", "think"], ["Done"]
    ask(page, "Why?")
    settled(page)
    assert messages(page)[1].find_element("css selector", ".markdown").text == "Done"
    assert messages(page)[1].find_element("css selector", "details div").get_attribute("textContent") == "Let me think"


def test_live_view(page, server):
    click(page, "#open-engine")
    text = wait(lambda: page.find_elements("css selector", "#engine-view table") and page.find_element("id", "engine-view").text)
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
        before = wait(lambda: len(messages(browser)) == 2 and messages(browser)[1].find_element("css selector", ".markdown").text)
        browser.refresh()  # the answer goes on, or has ended meanwhile
        wait(lambda: len(messages(browser)) == 2 and messages(browser)[1].find_element("css selector", ".markdown").text.startswith(before[:20]))
        # The answer may end before the button is pressed.
        wait(lambda: browser.find_element("id", "send").is_displayed() or browser.find_element("id", "stop").click())
        assert server.until(lambda: server.metric("vllm:num_requests_running") == 0), "stopping reaches the engine"
        browser.set_window_size(1200, 800)
        click(browser, "#open-engine")
        shown = wait(lambda: browser.find_elements("css selector", "#engine-view table") and browser.find_element("id", "engine-view").text)
        assert "%" in shown and "linear" in shown.lower(), shown
        click(browser, "#engine .dialog-head button")
        assert not [entry["message"] for entry in browser.get_log("browser") if entry["level"] == "SEVERE"]
        browser.execute_script("localStorage.clear(); sessionStorage.clear()")


# ---- copying


def pasted(page):
    from selenium.webdriver.common.keys import Keys

    write(page, "#prompt", Keys.CONTROL, "v")
    text = page.find_element("id", "prompt").get_attribute("value")
    page.execute_script("document.getElementById('prompt').value = ''")
    return text


@pytest.mark.parametrize("host", ["127.0.0.1", "plain.test"])  # only the first counts as secure
def test_copy(page, server, host):
    page.get(f"http://{host}:{server.port}/")
    wait(lambda: page.find_element("id", "model").text == "test-model")
    assert page.execute_script("return isSecureContext") == (host == "127.0.0.1")
    server.answer = ["Copy *me*\n\n```\nand me\n```"]
    ask(page, "Question")
    settled(page)
    press(page, 1, "Copy")
    wait(lambda: "Copied" in messages(page)[1].text)
    assert pasted(page).replace("\r", "") == "Copy *me*\n\n```\nand me\n```"
    click(page, ".codeblock .bar button")
    wait(lambda: "Copied" in page.find_element("css selector", ".codeblock .bar").text)
    assert pasted(page) == "and me"
    page.execute_script("document.execCommand = () => false; Object.defineProperty(navigator, 'clipboard', {value: undefined})")
    press(page, 0, "Copy")
    wait(lambda: "Not copied" in messages(page)[0].text)
    page.execute_script("localStorage.clear(); sessionStorage.clear()")


# ---- on a phone


def test_touch(page, server):
    """A touch screen of phone size: nothing is invisible, targets are large, one tap deletes nothing."""
    page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {"width": 390, "height": 800, "deviceScaleFactor": 2, "mobile": True})
    page.execute_cdp_cmd("Emulation.setTouchEmulationEnabled", {"enabled": True})
    try:
        server.answer = ["$$\\sum_{i=0}^{n} " + "x_i + " * 60 + "y$$\n\n" + "word" * 60]
        ask(page, "On the phone")
        settled(page)
        assert page.execute_script("return document.documentElement.scrollWidth <= innerWidth")
        click(page, "#open-sidebar")
        wait(lambda: page.find_element("css selector", "#conversations .more").is_displayed())
        small = page.execute_script("""return [...document.querySelectorAll('button')].filter((b) => b.checkVisibility()).filter((b) => {
            const box = b.getBoundingClientRect(), style = getComputedStyle(b);
            return box.height < 28 || box.width < 28 || style.opacity === '0' || getComputedStyle(b.parentElement).opacity === '0'; }).map((b) => b.outerHTML)""")
        assert not small
        click(page, "#conversations .more")
        assert titles(page) == ["On the phone"]
        wait(lambda: page.find_element("id", "delete").is_displayed())
        assert page.execute_script("return document.documentElement.scrollWidth <= innerWidth")
        click(page, "#delete")
        wait(lambda: not titles(page))
        click(page, "#shade") if page.find_element("id", "shade").is_displayed() else None
        click(page, "#undo button")
        wait(lambda: len(messages(page)) == 2)
    finally:
        page.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        page.execute_cdp_cmd("Emulation.setTouchEmulationEnabled", {"enabled": False})


# ---- math


def rendered(page, source):
    """What the page makes of Markdown, as HTML."""
    return page.execute_async_script("""const [source, done] = arguments;
        import("/page/markdown.js").then(({ renderMarkdown }) => { const box = document.createElement("div"); box.append(...renderMarkdown(source)); done(box.innerHTML); })""", source)


MATH = [
    (r"$x^2$", ["<msup><mi>x</mi><mn>2</mn></msup>"]),
    (r"\(a_{ij}\)", ["<msub><mi>a</mi><mrow><mi>i</mi><mi>j</mi></mrow></msub>"]),
    (r"$x_1^{2}$", ["<msubsup><mi>x</mi><mn>1</mn><mn>2</mn></msubsup>"]),
    (r"$$\frac{a+1}{\sqrt[3]{b}}$$", ['display="block"', "<mfrac><mrow><mi>a</mi><mo>+</mo><mn>1</mn></mrow><mroot><mi>b</mi><mn>3</mn></mroot></mfrac>"]),
    ("\\[\n\\sum_{i=0}^\\infty x_i\n\\]", ['<munderover><mo movablelimits="true">∑</mo>', '<mi mathvariant="normal">∞</mi>', 'display="block"']),
    (r"$\int_0^1 f'(x)\,dx$", ["<msubsup><mo>∫</mo><mn>0</mn><mn>1</mn></msubsup>", "<msup><mi>f</mi><mo>′</mo></msup>", "mspace"]),
    (r"$\alpha\le\Omega, \mathbb{R}, \mathcal{L}, \mathbf{x}$", ["<mi>α</mi>", "<mo>≤</mo>", "Ω", "ℝ", "ℒ", "𝐱"]),
    (r"$\left(\frac12\right]$", ['<mo fence="true" stretchy="true">(</mo><mfrac><mn>1</mn><mn>2</mn></mfrac>', "]</mo>"]),
    (r"$\begin{pmatrix}1&2\\3&4\end{pmatrix}$", ["<mtable><mtr><mtd><mn>1</mn></mtd><mtd><mn>2</mn></mtd></mtr><mtr><mtd><mn>3</mn></mtd>"]),
    (r"$f(x)=\begin{cases}1&\text{if } x>0\\0\end{cases}$", ["math-left", "<mtext>if\u00a0</mtext>".replace("\u00a0", "&nbsp;")]),
    ("$$\n\\begin{aligned}\na &= b \\\\\n  &= c\n\\end{aligned}\n$$", ["math-aligned"]),
    (r"$\hat{x} \vec v \overline{ab} \underbrace{a}_{n}$", ['<mover accent="true"><mi>x</mi>', "→", "<munder><munder>"]),
    (r"$\sin x + \log_2 n + \lim_{x\to 0}$", ['<mi>sin</mi><mspace width="0.167em">', "<msub><mi>log</mi><mn>2</mn></msub>", "<munder>"]),
    (r"$\sqrt2 \ne 1.414$", ["<msqrt><mn>2</mn></msqrt>", "<mo>≠</mo>", "<mn>1.414</mn>"]),
    (r"$\text{<img src=x onerror=alert(1)>}$", ["&lt;img"]),
    (r"| a | b |" "\n|---|---|\n" r"| $x^2$ | 1 |", ["<td><math"]),
]
NOT_MATH = ["It costs $5 and $10 today.", r"\$x\$", "`$x$`", "a $ b $ c", "```\n$x$\n```", "$", "$$", "$$ open"]
UNKNOWN_MATH = [r"$\nosuch{x}$", r"$\frac{1}$", "$x}$", r"$\left( x$", r"$$\begin{pmatrix}1$$", "$" + "{" * 200 + "}" * 200 + "$", r"$\constructor$", r"$\end{x}$", "$a & b$"]


def test_math(page):
    for source, parts in MATH:
        html = rendered(page, source)
        assert "<math" in html and "math-source" not in html, html
        for part in parts:
            assert part in html, (part, html)
    for source in NOT_MATH:
        assert "<math" not in rendered(page, source) and "math-source" not in rendered(page, source), source
    for source in UNKNOWN_MATH:  # shown as written
        assert "math-source" in rendered(page, source) and "<math" not in rendered(page, source), source
