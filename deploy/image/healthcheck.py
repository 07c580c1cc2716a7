"""Ask the server of this container whether it is ready; the exit code is 1 if it isn't."""

import http.client
import os
import ssl
import sys

TIMEOUT_SECONDS = 4.0


def main() -> int:
    """Return 0 if /readyz answers 200. Prints what it answers otherwise."""
    port = int(os.environ.get("DUCKICELAKE_PORT") or 8181)
    client: http.client.HTTPConnection
    if os.environ.get("DUCKICELAKE_TLS_CERTIFICATE"):
        context = ssl._create_unverified_context()  # noqa: S323, SLF001 - the name in the certificate isn't 127.0.0.1
        client = http.client.HTTPSConnection("127.0.0.1", port, timeout=TIMEOUT_SECONDS, context=context)
    else:
        client = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_SECONDS)
    try:
        client.request("GET", "/readyz")
        answer = client.getresponse()
        text = answer.read(4096).decode(errors="replace")
    except OSError as error:
        sys.stdout.write(f"no answer at port {port}: {error}\n")
        return 1
    sys.stdout.write(f"{answer.status} {text}\n")
    return 0 if answer.status == http.HTTPStatus.OK else 1


if __name__ == "__main__":
    sys.exit(main())
