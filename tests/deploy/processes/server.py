"""A stand-in for a vLLM server: answers /health, and has a helper process in a session of its own."""

import argparse
import os
import signal
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()


parser = argparse.ArgumentParser()
parser.add_argument("--port", type=int, required=True)
parser.add_argument("--pids", type=Path, required=True)
parser.add_argument("--die", type=float, default=0.0, help="end with status 3 after so many seconds")
parser.add_argument("--mute", action="store_true", help="never serve")
parser.add_argument("--stubborn", action="store_true", help="ignore SIGTERM")
options = parser.parse_args()
if options.stubborn:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
helper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
options.pids.write_text(f"{os.getpid()} {helper.pid}")
print("stand-in speaking", flush=True)
if options.die:
    time.sleep(options.die)
    sys.exit(3)
if options.mute:
    time.sleep(600)
HTTPServer(("127.0.0.1", options.port), Handler).serve_forever()
