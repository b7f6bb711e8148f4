"""``nearsight keys``: key pairs of daemons and clients, and the allowed clients of a daemon."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nearsight.common.command_line.options import JsonOption
from nearsight.common.command_line.terminal import print_json, print_line, print_table

if TYPE_CHECKING:
    from nearsight.common.rpc.allow_list import ClientEntry

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    help="Make the keys of daemons and clients.\n\n"
    "A daemon that other machines can reach needs a key of its own (generate) and a folder with the public "
    "keys of its allowed clients (allow). Each client needs a key of its own and the daemon's public "
    "key. NAME.key is public; NAME.key_secret never leaves its machine. A client reads; one that may change "
    "catalogues of a cloud is a writer (allow --role writer).",
)

DEFAULT_KEYS = Path("keys")
DEFAULT_ALLOWED = Path("keys/allowed")
AllowedOption = Annotated[
    Path, typer.Option("--dir", metavar="DIR", help="The daemon's folder of allowed clients.")
]


@app.command()
def generate(
    name: Annotated[str, typer.Argument(help="Name of the daemon or client, e.g. edge.")],
    folder: Annotated[Path, typer.Option("--dir", metavar="DIR", help="Where to write.")] = DEFAULT_KEYS,
    force: Annotated[bool, typer.Option("--force", help="Replace the existing key of this name.")] = False,
) -> None:
    """Create a key pair: NAME.key to hand out, NAME.key_secret to keep."""
    from nearsight.common.rpc.security import generate_keys

    files = generate_keys(folder, name, overwrite=force)
    print_line(f"{files.secret_file}  secret: stays on this machine, readable by you only")
    print_line(f"{files.public_file}  public: {files.public_key}")
    print_line("Next, if this is a daemon:")
    print_line(f'  set secret_key_file = "{files.secret_file}" and allowed_clients = "{DEFAULT_ALLOWED}"')
    print_line(f"  in its table, such as [edge.security], and give {files.public_file} to its clients")
    print_line("Next, if this is a client:")
    print_line(f"  on the daemon's machine run: nearsight keys allow {name}.key --dir {DEFAULT_ALLOWED}")
    print_line("Next, if this is a device that shares with devices nearby:")
    print_line(f"  on each of the others run: nearsight keys allow {name}.key --dir keys/devices")
    print_line('  and set allowed = "keys/devices" in [device.recognizer.peers] of all of them')


@app.command()
def allow(
    key: Annotated[str, typer.Argument(metavar="KEY", help="The client's NAME.key file, or the key itself.")],
    folder: AllowedOption = DEFAULT_ALLOWED,
    name: Annotated[str, typer.Option("--name", help="Name of the client there. Default: its file's.")] = "",
    role: Annotated[
        str | None,
        typer.Option(
            "--role",
            metavar="ROLE",
            help="reader, or writer (may change catalogues). Default: the current role; reader if new.",
        ),
    ] = None,
    catalogue: Annotated[
        list[str] | None,
        typer.Option(
            "--catalogue",
            metavar="NAME",
            help="Limits the client to this catalogue; may be repeated. Default: the current ones, if no "
            "right is given; else all.",
        ),
    ] = None,
    writes: Annotated[
        list[str] | None,
        typer.Option(
            "--writes",
            metavar="NAME",
            help="Limits changes to this catalogue; may be repeated. Implies --role writer. Default: the "
            "current ones, unless --role is given.",
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace another client of this name.")] = False,
) -> None:
    """Allow a client, or change its rights. A running daemon applies the change by itself."""
    from nearsight.common.rpc.allow_list import allow_client, role_named

    client = allow_client(
        key,
        folder,
        name=name,
        role=role_named(role) if role else None,
        catalogues=catalogue or (),
        writes=writes or (),
        overwrite=force,
    )
    which = ", ".join(client.catalogues) or "all catalogues"
    print_line(f"{client.name} may connect to daemons with allowed_clients = {str(folder)!r}")
    changes = f", and may change {', '.join(client.writes)} only" if client.writes else ""
    print_line(f"{client.name} is a {client.role} of {which}{changes}")


@app.command()
def forbid(
    name: Annotated[str, typer.Argument(help="Name of the client, as `nearsight keys list` shows it.")],
    folder: AllowedOption = DEFAULT_ALLOWED,
) -> None:
    """Forbid a client. A running daemon applies this by itself, also to existing connections."""
    from nearsight.common.rpc.allow_list import forbid_client

    others = forbid_client(name, folder)
    if others:
        print_line(f"the same key is still allowed under the name {', '.join(others)}", err=True)
    else:
        print_line(f"{name} may not connect any more")


@app.command("list")
def list_keys(
    folder: Annotated[
        Path, typer.Option("--dir", metavar="DIR", help="A folder of keys, or of allowed clients.")
    ] = DEFAULT_KEYS,
    as_json: JsonOption = False,
) -> None:
    """List the keys in a folder."""
    from nearsight.common.rpc.allow_list import list_key_files

    entries = list_key_files(folder)
    if as_json:
        print_json([entry._asdict() for entry in entries])
    elif not entries:
        print_line(
            f"no keys in {folder}; make one with: nearsight keys generate NAME --dir {folder}", err=True
        )
    else:
        # Rights belong to folders of allowed clients. With the secret key, a folder is that of the owner.
        rows = [
            (e.name, e.public_key, *(("yes", "", "") if e.secret_here else ("", *_rights(e))))
            for e in entries
        ]
        print_table(("name", "public key", "secret key here", "role", "catalogues"), rows)


def _rights(entry: ClientEntry) -> tuple[str, str]:
    """Role and catalogues of an allowed client."""
    role = f"{entry.role} ({', '.join(entry.writes)})" if entry.writes else entry.role
    return role, ", ".join(entry.catalogues) or "all"
