"""The page: conversations in several tabs, versions of messages, streams that outlive the page, several models."""

import json

from page_steps import NEEDS_BROWSER, ask, bodies, browser, click, messages, page, press, server, settled, titles, two_tabs, wait, write  # noqa: F401

pytestmark = NEEDS_BROWSER


def test_two_tabs_keep_each_others_conversations(page, server, two_tabs):
    two_tabs(0)
    ask(page, "From the first tab")
    settled(page)
    two_tabs(1)
    wait(lambda: titles(page) == ["From the first tab"])
    ask(page, "From the second tab")
    settled(page)
    two_tabs(0)
    ask(page, "More of the first")
    settled(page)
    wait(lambda: sorted(titles(page)) == ["From the first tab", "From the second tab"])
    page.refresh()
    wait(lambda: sorted(titles(page)) == ["From the first tab", "From the second tab"])
    assert len(messages(page)) == 4


def test_two_tabs_in_one_conversation(page, server, two_tabs):
    """Both add to the same conversation: nothing is lost, the messages become versions."""
    two_tabs(0)
    ask(page, "Question")
    settled(page)
    two_tabs(1)
    click(page, "#conversations .title")
    wait(lambda: len(messages(page)) == 2)
    # Writes as a tab does whose read came before the other's write.
    page.execute_script("window.addEventListener('storage', (e) => e.stopImmediatePropagation(), true)")
    ask(page, "Second tab")
    settled(page)
    two_tabs(0)
    wait(lambda: len(messages(page)) == 4)
    press(page, 1, "Regenerate")
    wait(lambda: len(messages(page)) == 2)
    settled(page)
    two_tabs(1)
    ask(page, "Third question")
    settled(page)
    two_tabs(0)
    wait(lambda: "2/2" in messages(page)[1].text)
    click(page, "article:nth-child(2) .versions button")
    wait(lambda: [m.find_element("css selector", ".body").text for m in messages(page)] == ["Question", "Hello", "Second tab", "Hello", "Third question", "Hello"])


def test_an_overwritten_conversation_is_healed(page, server, two_tabs):
    """A tab that overwrites what another one wrote at the same time gets it back from that one."""
    two_tabs(0)
    ask(page, "Question")
    settled(page)
    two_tabs(1)
    wait(lambda: titles(page) == ["Question"])
    page.execute_script("""const key = Object.keys(localStorage).find((k) => k.startsWith("millrace.conversation."));
        const stale = JSON.parse(localStorage.getItem(key)); stale.messages = {}; localStorage.setItem(key, JSON.stringify(stale))""")
    wait(lambda: "Question" in page.execute_script("return Object.values(localStorage).join()"))


def test_deleting_in_one_tab(page, server, two_tabs):
    two_tabs(0)
    ask(page, "Doomed")
    settled(page)
    two_tabs(1)
    wait(lambda: titles(page) == ["Doomed"])
    click(page, "#conversations .more")
    click(page, "#delete")
    two_tabs(0)
    wait(lambda: not titles(page) and not messages(page))
    two_tabs(1)
    click(page, "#undo button")
    wait(lambda: titles(page) == ["Doomed"] and len(messages(page)) == 2)
    two_tabs(0)
    wait(lambda: titles(page) == ["Doomed"])


def test_rename(page, server):
    ask(page, "An unwieldy beginning")
    settled(page)
    click(page, "#conversations .more")
    wait(lambda: page.find_element("id", "name").is_displayed())
    page.execute_script("document.getElementById('name').value = ''")
    write(page, "#name", "Short")
    click(page, "#rename .primary")
    wait(lambda: titles(page) == ["Short"])
    page.refresh()
    wait(lambda: titles(page) == ["Short"])


def test_search(page, server):
    for text, answer in (("About cats", "They purr"), ("About dogs", "They bark")):
        server.answer = [answer]
        click(page, "#new-chat")
        ask(page, text)
        settled(page)
    assert titles(page) == ["About dogs", "About cats"]
    write(page, "#search", "PURR")
    wait(lambda: len(titles(page)) == 1)
    assert titles(page)[0].splitlines() == ["About cats", "They purr"]
    write(page, "#search", "zzz")
    wait(lambda: "Nothing found" in page.find_element("id", "conversations").text)


def test_export(page, server):
    server.answer = ["An *answer*"]
    ask(page, "A question")
    settled(page)
    press(page, 1, "Regenerate")
    settled(page)
    # The files as the page makes them; a headless browser has no place to save them to.
    page.execute_script("""window.saved = {};
        HTMLAnchorElement.prototype.click = function () { fetchText(this.href).then((text) => (saved[this.download] = text)); };
        const blobs = new Map(), make = URL.createObjectURL;
        URL.createObjectURL = (blob) => { const address = make.call(URL, blob); blobs.set(address, blob); return address; };
        window.fetchText = (address) => blobs.get(address).text();""")
    click(page, "#conversations .more")
    click(page, "#export-markdown")
    click(page, "#export-json")
    wait(lambda: len(page.execute_script("return Object.keys(saved)")) == 2)
    saved = page.execute_script("return saved")
    click(page, "#close-conversation")
    assert saved["A-question.md"] == "# A question\n\n## You\n\nA question\n\n## Model\n\nAn *answer*\n"
    whole = json.loads(saved["A-question.json"])
    assert [m["content"] for m in whole["messages"]] == ["A question", "An *answer*"]
    assert len(whole["versions"]) == 3


def test_lists_of_earlier_versions_are_taken_over(page, server):
    page.execute_script("""localStorage.setItem("millrace.conversations", JSON.stringify([
        {id: "a", title: "", system: "S", messages: [{role: "user", content: "Old"}, {role: "assistant", content: "Answer", note: "n"}]},
        {id: "b", messages: "broken"}]))""")
    page.refresh()
    wait(lambda: titles(page) == ["Old"])
    click(page, "#conversations .title")
    wait(lambda: len(messages(page)) == 2)
    assert page.execute_script("return localStorage.getItem('millrace.conversations')") is None


# ---- versions of messages


def test_regenerating_keeps_what_was_there(page, server):
    ask(page, "First")
    settled(page)
    ask(page, "Second")
    settled(page)
    server.answer = ["Another"]
    press(page, 1, "Regenerate")
    wait(lambda: bodies(page) == ["First", "Another"])
    settled(page)
    wait(lambda: "2/2" in messages(page)[1].text)
    click(page, "article:nth-child(2) .versions button:first-child")
    wait(lambda: bodies(page) == ["First", "Hello", "Second", "Hello"])
    press(page, 2, "Edit")
    box = page.find_element("css selector", "textarea.edit")
    box.clear()
    box.send_keys("Changed")
    press(page, 2, "Send again")
    wait(lambda: bodies(page) == ["First", "Hello", "Changed", "Another"])
    settled(page)
    assert [m["content"] for m in server.requests[-1]["input"]] == ["First", "Hello", "Changed"]
    click(page, "article:nth-child(3) .versions button:first-child")
    wait(lambda: bodies(page) == ["First", "Hello", "Second", "Hello"])
    page.refresh()
    wait(lambda: len(messages(page)) == 4 and "1/2" in messages(page)[1].text)


# ---- streams that outlive the page


def test_a_reload_keeps_the_running_answer(page, server):
    server.answer, server.pause = [f"{i} " for i in range(60)], 0.05
    ask(page, "Count")
    wait(lambda: len(messages(page)) == 2 and "3 4 5" in messages(page)[1].text)
    page.refresh()
    settled_text = " ".join(map(str, range(60)))
    wait(lambda: len(messages(page)) == 2 and messages(page)[1].find_element("css selector", ".markdown").text == settled_text)
    settled(page)
    assert len(server.requests) == 1 and server.cancelled == 0
    assert server.followed and server.followed[0] > 3, "what was stored is not sent again"


def test_a_lost_connection_is_taken_up_again(page, server):
    server.answer, server.cut_after = ["one ", "two ", "three"], 2
    ask(page, "Count")
    wait(lambda: len(messages(page)) == 2 and messages(page)[1].find_element("css selector", ".markdown").text == "one two three")
    assert server.followed == [1]


def test_an_answer_that_the_server_forgot(page, server):
    """A restarted server: what came is kept, and the answer can be asked for again."""
    server.answer, server.pause = ["word "] * 200, 0.05
    ask(page, "Long")
    wait(lambda: len(messages(page)) == 2 and "word word" in messages(page)[1].text)
    server.responses.clear()
    page.refresh()
    shown = wait(lambda: len(messages(page)) == 2 and "interrupted" in messages(page)[1].text and messages(page)[1].text)
    assert "word word" in shown
    page.get_log("browser")  # the 404
    server.answer, server.pause = ["Done"], 0
    press(page, 1, "Retry")
    wait(lambda: bodies(page) == ["Long", "Done"])


def test_a_second_tab_follows_a_running_answer(page, server, two_tabs):
    server.answer, server.pause = ["word "] * 400, 0.05
    two_tabs(0)
    ask(page, "Long")
    wait(lambda: len(messages(page)) == 2 and "word" in messages(page)[1].text)
    two_tabs(1)
    click(page, "#conversations .title")
    wait(lambda: len(messages(page)) == 2 and "word word word" in messages(page)[1].text)
    click(page, "#stop")
    settled(page)
    two_tabs(0)
    settled(page)
    wait(lambda: "stopped" in messages(page)[1].text)
    assert server.cancelled == 1


# ---- several models


def test_a_full_context_is_explained(browser, tiny_chat):
    from serving import Server

    with Server(tiny_chat, "--ctx", "64") as running:
        browser.get(running.url)
        wait(lambda: browser.find_element("id", "model").text == "tiny")
        ask(browser, "a" * 200)
        wait(lambda: browser.find_element("id", "problem").text.startswith("The conversation is too long for the model: edit"))
        browser.get_log("browser")  # drops the refused request
        browser.execute_script("localStorage.clear(); sessionStorage.clear()")


def test_one_model_has_no_list(page, server):
    assert not page.find_element("id", "models").is_displayed(), "a second name is not a second model"


def test_several_models(page, server):
    from selenium.webdriver.support.select import Select

    server.models = [{"id": "first", "state": "loaded"}, {"id": "second", "state": "unloaded"}]
    page.refresh()
    wait(lambda: page.find_element("id", "models").is_displayed())
    listed = Select(page.find_element("id", "models"))
    assert [o.text for o in listed.options] == ["first", "second (not loaded)"] and listed.first_selected_option.text == "first"
    ask(page, "To the first")
    settled(page)
    assert server.requests[-1]["model"] == "first"
    click(page, "#new-chat")
    listed.select_by_value("second")
    ask(page, "To the second")
    settled(page)
    assert server.requests[-1]["model"] == "second"
    assert messages(page)[1].find_element("css selector", ".who").text == "second"
    wait(lambda: "To the first" in titles(page))
    next(t for t in page.find_elements("css selector", "#conversations .title") if t.text == "To the first").click()
    wait(lambda: page.find_element("id", "models").get_property("value") == "first")
    click(page, "#new-chat")
    page.refresh()
    wait(lambda: page.find_element("id", "models").get_property("value") == "second")  # the last choice
    page.set_window_size(390, 800)
    assert page.execute_script("return document.documentElement.scrollWidth <= innerWidth")
