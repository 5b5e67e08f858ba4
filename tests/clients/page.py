#!/usr/bin/env python3
"""The page of `k3 serve`, driven in Chromium with the bundled model: ask, watch, stop, a tool's call, Markdown, dark, a phone's width.
Usage: page.py [BINARY [FOLDER]]; screenshots are written to FOLDER."""
import contextlib
import json
import os
import shutil
import sys
import time
import urllib.request

try:
    from playwright.sync_api import sync_playwright
except ImportError as e:
    print(e)
    sys.exit(77)

from server import Server, run

TOOLS = json.dumps([{"type": "function", "function": {"name": "get_weather", "description": "Get the weather of a city.", "parameters": {
    "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}])
CODE = "class A:\n    def __init__(self, **kwargs):\n        self.x = kwargs['a'] ** 2  # `kept` <b>\n"
shots = None


def shot(page, name):
    if shots:
        page.screenshot(path=f"{shots}/{name}.png")


def ask(page, text):
    page.fill("#text", text)
    page.keyboard.press("Enter")


def wait_done(page):
    page.wait_for_selector("#send:visible", timeout=30000)


def settings(page, **values):
    page.click("#settings")
    for name, value in values.items():
        page.select_option(f"[name={name}]", value) if name == "effort" else page.fill(f"[name={name}]", value)
    page.click("#options button.main")


@contextlib.contextmanager
def answers_without_end(page):
    """One token is biased until nothing else is drawn, so that an answer is still being written whenever a check looks."""
    def biased(route):
        route.continue_(post_data=json.dumps({**route.request.post_data_json, "logit_bias": {"64": 100}, "max_tokens": 12000}))
    page.route("**/v1/chat/completions", biased)
    yield
    page.unroute("**/v1/chat/completions")


def metric(server, name):
    text = urllib.request.urlopen(server.url + "/metrics").read().decode()
    return float(next(line.split()[-1] for line in text.splitlines() if line.startswith(name + " ")))


def an_answer_streams_and_thinking_is_folded(page, server):
    settings(page, temperature="0")
    ask(page, "What is 58 plus 67?")
    wait_done(page)
    answer = page.locator(".turn.assistant").last
    assert answer.locator(".markdown").inner_text() == "58 + 67 = 125", answer.inner_text()
    assert not answer.locator("details").evaluate("d => d.open")
    assert "carry" in answer.locator("details .text").evaluate("d => d.textContent")
    assert page.inner_text("#count").endswith("/ 16,384")
    assert page.inner_text("#state") == "Done."
    shot(page, "page-light")


def stop_stops_the_server(page, server):
    """A long answer: it is stopped in the page, and the server has nothing left to do."""
    with answers_without_end(page):
        ask(page, "Tell me a very long story without end.")
        page.wait_for_function("() => document.querySelector('#state').textContent.includes('tokens')", timeout=30000)
    before = metric(server, "k3_requests_cancelled_total")
    page.keyboard.press("Escape")
    wait_done(page)
    for _ in range(100):
        if metric(server, "k3_requests_running") == 0:
            break
        time.sleep(0.05)
    assert metric(server, "k3_requests_running") == 0
    assert metric(server, "k3_requests_cancelled_total") == before + 1
    assert page.inner_text("#state") == "Stopped."


def a_tool_is_called_and_its_result_answered(page, server):
    settings(page, tools=TOOLS)
    page.click("#new")
    ask(page, "What is the weather in Paris?")
    page.wait_for_selector(".call textarea", timeout=30000)
    assert json.loads(page.inner_text(".call pre")) == {"city": "Paris"}
    page.fill(".call textarea", '{"sky": "sunny", "degrees": 21}')
    shot(page, "page-tool")
    page.click("text=Send results")
    wait_done(page)
    assert page.locator(".turn.assistant").last.locator(".markdown").inner_text() == "It is sunny in Paris, 21 degrees."
    settings(page, tools="")


def markdown_keeps_code_and_escapes_everything(page, server):
    """Case J12. Through the page's own functions: the bundled model writes no code."""
    text = f"It is **bold**, `a ** b`, __init__ and f(*args, **kwargs) <img src=x onerror=alert(1)>.\n\n```python\n{CODE}```\n\n- [bad](javascript:alert(1))\n"
    got = page.evaluate("""text => { const n = document.createElement('div'); markdown(n, text); document.querySelector('#log').append(n);
        return {html: n.querySelector('p').innerHTML, code: n.querySelector('pre code').textContent, links: n.querySelectorAll('a, img').length}; }""", text)
    assert got["code"] + "\n" == CODE, got["code"]
    assert got["html"] == "It is <strong>bold</strong>, <code>a ** b</code>, __init__ and f(*args, **kwargs) &lt;img src=x onerror=alert(1)&gt;.", got["html"]
    assert got["links"] == 0
    page.evaluate("navigator.clipboard.writeText('')")
    page.locator(".block button").last.click()
    page.wait_for_function("() => document.querySelector('.block button').textContent === 'Copied'")
    assert page.evaluate("navigator.clipboard.readText()") + "\n" == CODE


def markdown_grows_as_it_would_be_made_at_once(page, server):
    text = open("README.md").read()[:6000] + "\n1. a\n   - b\n\n     ```c\n     int x;\n     ```\n2. c\n\n| a | b |\n|---|---|\n| 1 | `|` |\n"
    equal = page.evaluate("""text => { const a = document.createElement('div'), b = document.createElement('div');
        for (let i = 0; i <= text.length; i += 7) markdown(a, text.slice(0, i)); markdown(a, text); markdown(b, text); return a.innerHTML === b.innerHTML; }""", text)
    assert equal


def the_reader_is_not_scrolled_away(page, server):
    """Case J11: what comes scrolls only while the end is in view."""
    page.click("#new")
    page.evaluate("""() => { for (let i = 0; i < 80; i++) current.messages.push({role: 'user', content: 'line ' + i}, {role: 'assistant', content: 'answer ' + i}); draw(); }""")
    at_end = page.evaluate("log.scrollHeight - log.scrollTop - log.clientHeight")
    assert at_end < 2, at_end
    page.evaluate("log.scrollTop = 100")
    page.wait_for_selector("#down:visible")
    ask_top = page.evaluate("() => { log.append(el('p', {textContent: 'more'})); pin(); return log.scrollTop; }")
    assert ask_top == 100
    page.click("#down")
    assert page.evaluate("log.scrollHeight - log.scrollTop - log.clientHeight") < 2


def a_full_window_offers_a_new_conversation(page, server):
    """Case J13."""
    page.click("#new")
    page.evaluate("current.messages.push({role: 'user', content: 'word '.repeat(30000)}); ask(current)")
    page.wait_for_selector(".problem button")
    assert "window" in page.inner_text(".problem")
    page.click(".problem button")
    assert page.locator(".turn").count() == 0


def conversations_stay(page, server):
    n = page.locator("#list li").count()
    page.reload()
    page.wait_for_selector("#list li")
    assert page.locator("#list li").count() >= n - 2 and n > 2
    page.locator("#list .open", has_text="What is 58 plus 67?").click()
    assert page.locator(".turn.assistant").first.locator(".markdown").inner_text() == "58 + 67 = 125"


def no_answer_breaks_the_page(page, server):
    """A model that repeats itself nests without end; the page shows it all the same."""
    for text in ("> " * 20000, "+ " * 20000 + "x", "1. " * 20000, "**a *b ~~c " * 3000):
        n = page.evaluate("text => { const n = document.createElement('div'); markdown(n, text); return n.textContent.length; }", text)
        assert n > 10000, (text[:10], n)


def deleted_conversations_stay_deleted(page, server):
    """Also where an answer was still being written."""
    page.click("#new")
    with answers_without_end(page):
        ask(page, "Tell me a very long story that is deleted.")
        page.wait_for_function("() => document.querySelector('#state').textContent.includes('tokens')", timeout=30000)
    page.once("dialog", lambda d: d.accept())
    page.locator("#list li.on button.quiet", has_text="Delete").click()
    page.wait_for_function("() => running.size === 0")
    page.reload()
    page.wait_for_selector("#list li")
    assert page.locator("#list .open", has_text="that is deleted").count() == 0


def imports_lose_nothing_and_break_nothing(page, server):
    """A file of another program, a damaged one, and an old one of what has gone on since."""
    def read(conversations):
        page.set_input_files("#file", {"name": "c.json", "mimeType": "application/json", "buffer": json.dumps(conversations).encode()})
        page.wait_for_function("() => document.querySelector('#file').value === ''")
    odd = [{"role": "user", "content": [{"type": "text", "text": "from "}, {"type": "text", "text": "elsewhere"}]},
           {"role": "assistant", "content": None, "reasoning_content": 5, "seconds": "x", "tool_calls": [{}, None, {"id": "a", "function": {"name": "f", "arguments": {}}}]}, None]
    read([{"id": "odd", "title": {}, "changed": 9e15, "messages": odd}])
    page.reload()
    page.wait_for_selector("#list li")
    assert page.locator(".turn.user .body").inner_text() == "from elsewhere"
    old = page.evaluate("() => conversations.find(c => c.title.includes('58 plus 67'))")
    read([{**old, "messages": old["messages"][:1], "changed": old["changed"] - 1}])
    assert page.evaluate("id => conversations.find(c => c.id === id).messages.length", old["id"]) == len(old["messages"])
    read([{"no": "conversation"}])
    page.wait_for_selector(".problem")
    assert "no file of conversations" in page.inner_text(".problem")


def it_is_dark_where_the_system_is_and_fits_a_phone(page, server):
    page.emulate_media(color_scheme="dark")
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert sum(int(x) for x in background[4:-1].split(",")) < 120, background
    shot(page, "page-dark")
    page.set_viewport_size({"width": 360, "height": 740})
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    assert not page.locator("nav").is_visible()
    shot(page, "page-phone")
    page.click("#menu")
    assert page.locator("nav").is_visible() and page.get_attribute("#menu", "aria-expanded") == "true"
    page.keyboard.press("Escape")
    assert not page.locator("nav").is_visible()
    page.set_viewport_size({"width": 1200, "height": 850})
    page.emulate_media(color_scheme="light")
    page.click("#theme")
    page.click("#theme")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"


def everything_has_a_name_and_keys_reach_it(page, server):
    unnamed = page.evaluate("""() => [...document.querySelectorAll('button, input:not([type=file]), select, textarea')]
        .filter(n => !(n.ariaLabel || n.textContent.trim() || n.labels?.length)).map(n => n.outerHTML)""")
    assert unnamed == [], unnamed
    page.keyboard.press("Alt+n")
    assert page.evaluate("document.activeElement.id") == "text"


def main():
    global shots
    shots = sys.argv[2] if len(sys.argv) > 2 else None
    chromium = next((shutil.which(n) for n in ("chromium", "chromium-browser", "google-chrome") if shutil.which(n)), None)
    if not chromium:
        print("no Chromium here")
        sys.exit(77)
    server = Server("--quiet", binary=sys.argv[1] if len(sys.argv) > 1 else "build/release/k3")
    errors = []
    with sync_playwright() as p:
        browser = p.chromium.launch(executable_path=chromium, args=["--no-sandbox"] if os.getuid() == 0 else [])
        context = browser.new_context(viewport={"width": 1200, "height": 850})
        context.grant_permissions(["clipboard-read", "clipboard-write"], origin=server.url)
        page = context.new_page()
        page.on("console", lambda m: errors.append(m.text) if m.type == "error" and "400" not in m.text else None)
        page.on("pageerror", lambda e: errors.append(str(e)))
        page.goto(server.url)
        failed = run([an_answer_streams_and_thinking_is_folded, a_tool_is_called_and_its_result_answered, stop_stops_the_server,
                      markdown_keeps_code_and_escapes_everything, markdown_grows_as_it_would_be_made_at_once, the_reader_is_not_scrolled_away,
                      a_full_window_offers_a_new_conversation, conversations_stay, no_answer_breaks_the_page, deleted_conversations_stay_deleted,
                      imports_lose_nothing_and_break_nothing, it_is_dark_where_the_system_is_and_fits_a_phone,
                      everything_has_a_name_and_keys_reach_it], page, server)
        browser.close()
    if errors:
        print("errors in the page's console:", *errors, sep="\n")
    sys.exit(failed or bool(errors) or server.stop())


main()
