"""A headless Chromium that tests can look through, by its DevTools protocol."""

import asyncio
import base64
import json
import re
import subprocess
import tempfile
import time
from contextlib import contextmanager, suppress

import aiohttp

LIMIT_SECONDS = 90


class Page:
    """One tab."""

    def __init__(self, loop, socket):
        self._loop, self._socket, self._number = loop, socket, 0
        self.events = []
        """What the browser told unasked, of the domains that were enabled."""

    def call(self, method, **params):
        """Returns what the browser answers to one command."""
        return self._loop.run_until_complete(self._call(method, params))

    async def _call(self, method, params):
        self._number += 1
        mine = self._number
        await self._socket.send_json({"id": mine, "method": method, "params": params})
        while True:
            answer = json.loads((await self._socket.receive(timeout=LIMIT_SECONDS)).data)
            if answer.get("id") == mine:
                assert "error" not in answer, answer
                return answer["result"]
            self.events.append(answer)

    def open(self, address):
        """Goes to an address."""
        self.call("Page.navigate", url=address)

    def run(self, script):
        """Returns the value of a JavaScript expression."""
        found = self.call("Runtime.evaluate", expression=script, returnByValue=True)
        return found["result"].get("value")

    def wait(self, script):
        """Waits until a JavaScript expression is true; returns it."""
        until = time.monotonic() + LIMIT_SECONDS
        while time.monotonic() < until:
            found = self.run(script)
            if found:
                return found
            time.sleep(0.1)
        raise AssertionError(f"{script} never came true; the page says {self.text()[:2000]!r}")

    def text(self):
        """Returns what can be read on the page."""
        return self.run("document.body.innerText") or ""

    def picture(self):
        """Returns the page as PNG."""
        return base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"])


@contextmanager
def opened_browser(program, width=1400, height=800):
    """Yields a tab of a browser of its own, which is ended afterwards."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        words = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--hide-scrollbars"]
        words += ["--remote-debugging-port=0", f"--user-data-dir={profile}", "about:blank"]
        words += [f"--window-size={width},{height}", "--disable-dev-shm-usage"]
        browser = subprocess.Popen(
            [program, *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        loop = asyncio.new_event_loop()
        session = None
        try:
            host = None
            for line in browser.stderr:
                if found := re.search(r"ws://([\d.:]+)/", line):
                    host = found[1]
                    break
            assert host, "the browser did not start"

            async def connect():
                session = aiohttp.ClientSession()
                async with session.get(f"http://{host}/json") as answer:
                    (tab,) = [tab for tab in await answer.json() if tab["type"] == "page"]
                # Pictures are larger than the usual limit of a message.
                return session, await session.ws_connect(tab["webSocketDebuggerUrl"], max_msg_size=0)

            session, socket = loop.run_until_complete(connect())
            yield Page(loop, socket)
        finally:
            if session is not None:
                with suppress(Exception):
                    loop.run_until_complete(session.close())
            loop.close()
            browser.terminate()
            browser.wait(timeout=30)
            browser.stderr.close()
