"""A headless Firefox for tests, spoken to by its own protocol: any release will do."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
from browser import NUMBERS, SET, typed

NAMES = ("firefox-esr", "firefox")
SECONDS = 180.0


class Firefox:
    """A browser with one page open."""

    def __init__(self, port):
        deadline = time.monotonic() + SECONDS
        while True:
            try:
                self._socket = socket.create_connection(("127.0.0.1", port), SECONDS)
                break
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)
        self._rest, self._number = b"", 0
        self._message()
        self.send("WebDriver:NewSession", {})

    def send(self, command, arguments):
        """Send a command and return its result."""
        self._number += 1
        text = json.dumps([0, self._number, command, arguments]).encode()
        self._socket.sendall(b"%d:%s" % (len(text), text))
        _, number, error, result = self._message()
        assert number == self._number
        assert error is None, error
        return result

    def _message(self):
        """Read one message: its length, a colon, JSON."""
        while b":" not in self._rest:
            self._more()
        size, self._rest = self._rest.split(b":", 1)
        while len(self._rest) < int(size):
            self._more()
        text, self._rest = self._rest[: int(size)], self._rest[int(size) :]
        return json.loads(text)

    def _more(self):
        part = self._socket.recv(1 << 16)
        if not part:
            raise ConnectionError("Firefox has gone")
        self._rest += part

    def evaluate(self, function, *arguments):
        """Call a function in the page and wait for what it returns."""
        script = f"return ({function})(...arguments);"
        sent = {"script": script, "args": list(arguments), "sandbox": None}
        return self.send("WebDriver:ExecuteScript", sent)["value"]

    def close(self):
        """End the talk; the browser is ended by who began it."""
        self._socket.close()

    def open(self, address):
        """Open a page."""
        self.send("WebDriver:Navigate", {"url": address})


class FirefoxPage:
    """The page of a report in Firefox, with the methods of `browser.Watched`."""

    def __init__(self, firefox, path, folder):
        self.firefox, self.folder = firefox, folder
        firefox.open(path.as_uri())
        assert firefox.evaluate("() => document.querySelector('#explorer').dataset.rule !== null")

    def set(self, mode, **values):
        """Choose a model and type its bounds as shares or costs, then wait for the page."""
        self.firefox.evaluate(SET, [mode, {name: typed(value) for name, value in values.items()}])

    def numbers(self):
        """Return the values behind the table of the shown rule, and the texts to copy."""
        return self.firefox.evaluate(NUMBERS)

    def rule_file(self):
        """Return the text of the rule that the page lets one download."""
        self.firefox.evaluate("() => document.querySelector('#save-rule').click()")
        deadline = time.monotonic() + SECONDS
        while time.monotonic() < deadline:
            found = [path for path in self.folder.glob("rule*.json") if path.stat().st_size]
            if found and not list(self.folder.glob("*.part")):
                text = found[0].read_text()
                for path in self.folder.iterdir():
                    path.unlink()
                return text
            time.sleep(0.02)
        raise TimeoutError("Firefox saved no rule")

    def reopen(self):
        """Open the address that the page has now as if for the first time."""
        address = self.firefox.evaluate("() => location.href")
        self.firefox.open("about:blank")
        self.firefox.open(address)

    def close(self):
        """Leave the page."""
        self.firefox.open("about:blank")


@contextmanager
def firefox(folder: Path):
    """Yield a browser that saves files into a folder; skip where none can be had."""
    path = next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        pytest.skip("the tests in Firefox need it (apt-get install firefox-esr)")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    profile, saved = folder / "profile", folder / "saved"
    profile.mkdir()
    saved.mkdir()
    choices = {
        "marionette.port": port,
        "browser.download.folderList": 2,
        "browser.download.dir": str(saved),
        "browser.download.always_ask_before_handling_new_types": False,
        "browser.download.alwaysOpenPanel": False,
        "browser.helperApps.neverAsk.saveToDisk": "application/json,text/csv",
        "app.update.enabled": False,
        "network.captive-portal-service.enabled": False,
        "network.connectivity-service.enabled": False,
    }
    lines = [
        f"user_pref({json.dumps(name)}, {json.dumps(value)});" for name, value in choices.items()
    ]
    (profile / "user.js").write_text("\n".join(lines))
    command = [path, "--headless", "--marionette", "--no-remote", "--profile", str(profile)]
    running = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        found = Firefox(port)
        yield found
        found.close()
    finally:
        running.terminate()
        running.wait(SECONDS)
