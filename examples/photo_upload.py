"""A web page for recognition: upload a photo, read the result. The catalogue is a folder of pictures.

No daemon is needed::

    pip install nearsight flask
    python examples/photo_upload.py museum --port 5000
"""

from __future__ import annotations

import argparse

from flask import Flask, render_template_string, request

from nearsight import CallerError, LocalRecognizer, NearsightError, Recognizer

PAGE = """<!doctype html>
<html lang="en">
<meta name="viewport" content="width=device-width">
<title>What is this?</title>
<form method="post" enctype="multipart/form-data">
  <label>Photo <input type="file" name="image" accept="image/*" required></label>
  <button>What is this?</button>
</form>
{% if error %}<p role="alert">{{ error }}</p>{% endif %}
{% if found and not found.known %}<p>Not in the catalogue.</p>{% endif %}
{% if found and found.known %}
<h1>{{ found.label or found.object_id }}</h1>
<dl>{% for name, value in found.metadata.items() %}<dt>{{ name }}</dt><dd>{{ value }}</dd>{% endfor %}</dl>
<p>Confidence {{ "%.0f" | format(100 * found.confidence) }} %, {{ "%.0f" | format(found.latency_ms) }} ms.</p>
{% endif %}
"""
"""Flask escapes the catalogue's texts, so that markup in them has no effect."""

LARGEST_UPLOAD_BYTES = 16 * 2**20


def create_app(recognizer: LocalRecognizer | Recognizer) -> Flask:
    """Create the application; the threads of the server share the recognizer."""
    app = Flask(__name__)
    app.config["MAX_CONTENT_LENGTH"] = LARGEST_UPLOAD_BYTES

    @app.get("/")
    def form() -> str:
        return render_template_string(PAGE)

    @app.post("/")
    def answer() -> tuple[str, int]:
        try:
            found = recognizer.recognize_blocking(request.files["image"].read())
        except NearsightError as error:
            return render_template_string(PAGE, error=error), 400 if isinstance(error, CallerError) else 503
        return render_template_string(PAGE, found=found), 200

    return app


def main() -> None:
    """Serve until Ctrl-C."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--port", type=int, default=5000)
    parser.add_argument("museum", help="folder of pictures; or the database of a cloud")
    arguments = parser.parse_args()
    with LocalRecognizer(arguments.museum) as recognizer:
        create_app(recognizer).run(port=arguments.port)


if __name__ == "__main__":
    main()
