"""``nearsight gateway``: the daemon, and the commands for its tokens."""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from nearsight.common.command_line.options import (
    AnnounceOption,
    ConfigOption,
    JsonOption,
    command_follows,
    flag_overrides,
    set_option,
)
from nearsight.common.command_line.terminal import print_json, print_line, print_table
from nearsight.common.errors import InvalidArgument, MissingDependency

app = typer.Typer(
    invoke_without_command=True,
    add_completion=False,
    help="Run the gateway, which lets browsers and HTTP clients use an edge.\n\n"
    "It serves a page for phones and an HTTP interface until Ctrl-C or SIGTERM. Browsers of this machine "
    "need nothing; others need https (--self-signed, or --tls-cert and --tls-key) and tokens (--tokens).",
)
tokens_app = typer.Typer(no_args_is_help=True, help="Create, list and revoke the tokens of clients.")
app.add_typer(tokens_app, name="tokens")

TokensOption = Annotated[
    Path | None, typer.Option("--tokens", metavar="FILE", help="File with the tokens of clients.")
]


@app.callback()
def gateway(  # noqa: PLR0917  each is a flag
    ctx: typer.Context,
    edge: Annotated[
        str | None, typer.Option(metavar="ENDPOINT", help="The edge. Default: tcp://127.0.0.1:7100")
    ] = None,
    listen: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Where to serve. Default: 127.0.0.1:8080")
    ] = None,
    tokens: TokensOption = None,
    self_signed: Annotated[
        bool, typer.Option("--self-signed", help="Create a certificate for this machine, and store it.")
    ] = False,
    tls_cert: Annotated[Path | None, typer.Option(metavar="FILE", help="Certificate, PEM.")] = None,
    tls_key: Annotated[Path | None, typer.Option(metavar="FILE", help="Its private key, PEM.")] = None,
    config: ConfigOption = None,
    assignments: Annotated[list[str] | None, set_option("limits.streams_max=100")] = None,
    announce: AnnounceOption = None,
) -> None:
    """Serve until Ctrl-C or SIGTERM, unless a command follows."""
    if command_follows(ctx):
        return
    from nearsight.common.config.base import load_settings
    from nearsight.common.operation.daemon import run_daemon
    from nearsight.edge.gateway.settings import GatewaySettings

    named = {
        "edge": edge,
        "listen": listen,
        "tokens": str(tokens) if tokens else None,
        "tls.self_signed": True if self_signed else None,
        "tls.cert": str(tls_cert) if tls_cert else None,
        "tls.key": str(tls_key) if tls_key else None,
    }
    settings = load_settings(GatewaySettings, "gateway", config, flag_overrides(assignments, named)).settings
    try:
        from nearsight.edge.gateway.daemon import GatewayDaemon
    except ModuleNotFoundError as error:
        raise MissingDependency(
            f"`nearsight gateway` needs the library {error.name!r}, which is not installed",
            advice="pip install 'nearsight[web]'",
        ) from error
    run_daemon(
        "gateway", settings, lambda metrics: GatewayDaemon(settings, metrics, _show), announce=announce
    )


@tokens_app.command()
def add(
    name: Annotated[str, typer.Argument(help="Name of the holder, such as visitors.")],
    catalogue: Annotated[
        list[str] | None,
        typer.Option("--catalogue", metavar="NAME", help="May use this catalogue alone; may be repeated."),
    ] = None,
    rate_per_s: Annotated[
        float | None,
        typer.Option("--rate", metavar="N", min=0.01, help="Photos per second. Default: limits.rate_per_s."),
    ] = None,
    page: Annotated[
        str | None,
        typer.Option("--page", metavar="URL", help="Address of the page; also print a link with the token."),
    ] = None,
    tokens: TokensOption = None,
    config: ConfigOption = None,
) -> None:
    """Create a token and print it. Only its hash is stored, so it cannot be shown again."""
    from nearsight.edge.gateway.tokens import add_token

    if page is not None and not page.startswith(("http://", "https://")):
        raise InvalidArgument(
            f"--page {page!r} is not the address of a page", advice="for example https://192.168.1.20:8443"
        )
    secret = add_token(_file(tokens, config), name, catalogue or (), rate_per_s)
    print_line(secret)
    print_line(f"{name} may use {', '.join(catalogue or ()) or 'all catalogues'}", err=True)
    if page is not None:
        query = f"?catalogue={catalogue[0]}" if catalogue and len(catalogue) == 1 else ""
        _show([f"{page.rstrip('/')}/{query}#token={secret}"])


@tokens_app.command("list")
def list_tokens(
    tokens: TokensOption = None, config: ConfigOption = None, as_json: JsonOption = False
) -> None:
    """List the tokens with their catalogues and rates."""
    from nearsight.edge.gateway.tokens import read_tokens

    found = read_tokens(_file(tokens, config))
    if as_json:
        print_json([{"name": t.name, "catalogues": t.catalogues, "rate_per_s": t.rate_per_s} for t in found])
        return
    rows = [
        (t.name, ", ".join(t.catalogues) or "all", "as set" if t.rate_per_s is None else f"{t.rate_per_s:g}")
        for t in found
    ]
    print_table(("name", "catalogues", "photos per second"), rows)


@tokens_app.command()
def revoke(
    name: Annotated[str, typer.Argument(help="Name from `nearsight gateway tokens list`.")],
    tokens: TokensOption = None,
    config: ConfigOption = None,
) -> None:
    """Revoke a token; a running gateway ends its streams within seconds."""
    from nearsight.edge.gateway.tokens import revoke_token

    revoke_token(_file(tokens, config), name)
    print_line(f"the token of {name} is revoked")


def _file(tokens: Path | None, config: Path | None) -> Path:
    from nearsight.common.config.base import load_settings
    from nearsight.edge.gateway.settings import GatewaySettings
    from nearsight.edge.gateway.tokens import DEFAULT_FILE

    return tokens or load_settings(GatewaySettings, "gateway", config).settings.tokens or DEFAULT_FILE


def _show(urls: Sequence[str]) -> None:
    """Print the addresses of the page; in a terminal also as QR codes for phones."""
    for url in urls:
        print_line(f"open {url}")
        if sys.stdout.isatty():
            for line in qr_lines(url):
                print_line(line)
    sys.stdout.flush()


def qr_lines(text: str) -> list[str]:
    """A QR code of half blocks, for a terminal with light text on a dark background."""
    import segno

    out = io.StringIO()
    segno.make(text, micro=False, error="l").terminal(out=out, border=2, compact=True)
    return out.getvalue().splitlines()
