"""Starts `k3 serve` for a test, and runs the checks of a file."""
import re
import subprocess
import sys
import time
import traceback


class Server:
    """A server on a free port; `log` is what it writes on stderr."""

    def __init__(self, *options, binary="build/release/k3", model="models/k3-mini"):
        self.process = subprocess.Popen([binary, "serve", model, "--port", "0", *options], stderr=subprocess.PIPE, text=True)
        self.log = []
        for line in self.process.stderr:
            self.log.append(line)
            found = re.search(r"ready at (http://\S+)", line)
            if found:
                self.url = found[1].rstrip("/")
                break
        else:
            raise SystemExit("k3 serve did not start:\n" + "".join(self.log))
        import threading
        self.reader = threading.Thread(target=lambda: self.log.extend(self.process.stderr), daemon=True)
        self.reader.start()

    def memory(self):
        """Resident bytes."""
        with open(f"/proc/{self.process.pid}/statm") as f:
            return int(f.read().split()[1]) * 4096

    def cpu_seconds(self):
        with open(f"/proc/{self.process.pid}/stat") as f:
            fields = f.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / 100

    def stop(self):
        """Ends it as a service manager does; its exit status must be 0."""
        self.process.terminate()
        status = self.process.wait(30)
        self.reader.join(5)
        return status


def run(checks, *arguments):
    """Runs each check, prints a line for it, and leaves with status 1 if one failed."""
    failed = 0
    for check in checks:
        started = time.monotonic()
        try:
            check(*arguments)
            word = "passed"
        except Exception:
            traceback.print_exc()
            word = "FAILED"
            failed += 1
        print(f"{word}  {check.__name__}  ({time.monotonic() - started:.1f} s)", flush=True)
    print(f"{len(checks) - failed} passed, {failed} failed")
    return failed
